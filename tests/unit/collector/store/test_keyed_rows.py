import h5py
import numpy as np
import pytest

from shardkeep.collector.protocol.schema import Schema
from shardkeep.collector.store.keyed_rows import check_row_count
from shardkeep.collector.store.store import Store
from shardkeep.errors import CollectorError, SchemaError


def _put(store, keys, rank, world_size=8):
    keys = np.array(keys, "<i8")
    store.put("k", memoryview(keys + 1).cast("B"), keys, rank, world_size)


@pytest.fixture
def store(tmp_path):
    store = Store(str(tmp_path / "all.h5"), synced=False)
    store.declare(Schema("k", np.dtype("<i8"), (), 4, rows=10))
    yield store
    store.close()
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["k"][:].tolist() == [1, 0, 0, 4, 0, 0, 0, 0, 0, 10]
        assert file["_collector/writers/k"][:].tolist() == [3, 0, 0, 3, 0, 0, 0, 0, 0, 3]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([1, 3], "row 3 of 'k' was written by rank 2 and is written again by rank 5"),
        ([4, 4], "rank 5 writes row 4 of 'k' twice"),
        ([4, 10], "rows 0 to 9, rank 5 writes row 10"),
        ([-1], "writes row -1"),
    ],
)
def test_a_refused_call_writes_no_row(store, keys, message):
    _put(store, [9, 0, 3], 2)
    store.commit()
    with pytest.raises(CollectorError, match=message):
        _put(store, keys, 5)


def test_a_row_of_a_second_rank_0_of_1_names_the_cure(tmp_path):
    store = Store(str(tmp_path / "all.h5"), synced=False)
    store.declare(Schema("k", np.dtype("<i8"), (), 4, rows=10))
    _put(store, [3], 0, 1)
    with pytest.raises(CollectorError, match=r"by rank 0: .* each is rank 0 of 1: pass World\("):
        _put(store, [3], 0, 1)
    with pytest.raises(CollectorError, match=r"by rank 0: each row is written once$"):
        _put(store, [3], 0, 2)
    store.close()


def test_more_rows_than_hdf5_can_place_are_refused():
    check_row_count(Schema("k", np.dtype("u1"), (), 8, rows=8 * ((1 << 32) - 1)))
    with pytest.raises(SchemaError, match="declare fewer"):
        check_row_count(Schema("k", np.dtype("u1"), (), 8, rows=8 * (1 << 32)))
