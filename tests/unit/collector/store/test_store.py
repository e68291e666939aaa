"""Declared datasets: created completely or not at all, and thousands of them.

Covers `shardkeep.collector.store.creation`.
"""

import time

import h5py
import numpy as np
import pytest

from shardkeep.collector.protocol.schema import Schema
from shardkeep.collector.protocol.values import pack_attribute, pack_put
from shardkeep.collector.store.store import Store
from shardkeep.errors import SchemaError
from shardkeep.hdf5 import Collector
from shardkeep.world import World


@pytest.fixture
def store(tmp_path):
    one = Store(str(tmp_path / "all.h5"), synced=False)
    yield one
    one.close()


def _names(store):
    names = []
    store._file.visit(names.append)
    return names


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("a/b/x", {"dtype": np.dtype("V0")}),
        ("a/b/x", {"chunk_rows": 1 << 40}),
        ("a/b/x", {"filters": ((32767, 0, ()),)}),
        ("a/b/x", {"filters": ((1, 0, (77,)),)}),
        ("a/b/x", {"rows": 1 << 62}),
        ("a/" * 40_000 + "x", {}),
        ("a//x", {}),
    ],
)
def test_a_refused_declaration_leaves_nothing(store, name, changes):
    store.declare(Schema("kept", np.dtype("<f4"), (), 64))
    before = _names(store)
    wanted = Schema(**{**Schema(name, np.dtype("<f4"), (2,), 64).__dict__, **changes})
    with pytest.raises(SchemaError):
        store.declare(wanted)
    assert _names(store) == before
    assert list(store.rows) == ["kept"]
    store.declare(Schema("a/b/x", np.dtype("<f4"), (), 64))  # as if it had not failed before
    store.append("a/b/x", memoryview(bytes(8)), 2)
    store.commit()
    assert store.rows == {"kept": 0, "a/b/x": 2}


def test_a_failed_declaration_removes_what_it_created(store, monkeypatch):
    store.declare(Schema("a/kept", np.dtype("<f4"), (), 64))
    store.store_value(memoryview(pack_attribute("unit", "m", "a/b/x")))
    before = _names(store)

    def fail(*_args):
        raise ValueError("no room")

    monkeypatch.setattr("shardkeep.collector.store.appended_rows.require_filters", fail)
    with pytest.raises(SchemaError, match="no room"):
        store.declare(Schema("a/b/x", np.dtype("<f4"), (), 64, ((1, 0, (4,)),)))
    assert _names(store) == before
    monkeypatch.undo()
    store.declare(Schema("a/b/x", np.dtype("<f4"), (), 64, ((1, 0, (4,)),)))
    assert dict(store._file["a/b/x"].attrs) == {"unit": "m"}


def test_a_failed_declaration_keeps_existing_groups(tmp_path):
    path = str(tmp_path / "all.h5")
    for _ in range(2):
        store = Store(path, synced=False)
        store.store_value(memoryview(pack_put("values/one", 1)))
        store.store_value(memoryview(pack_attribute("note", "of nothing", "alone/inside")))
        for name in ("values", "values/x", "alone/inside", "alone/x"):
            with pytest.raises(SchemaError):
                store.declare(Schema(name, np.dtype("V0"), (), 64))
        store.close()
    with h5py.File(path) as file:
        assert file["values/one"][()] == 1
        assert file["alone/inside"].attrs["note"] == "of nothing"
        assert sorted(file) == ["_collector", "alone", "values"]
        assert list(file["values"]) == ["one"]


def test_a_dataset_and_a_group_of_one_name_are_refused(store):
    store.declare(Schema("a/b", np.dtype("<f4"), (), 64))
    for name in ("a", "a/b/c", "a/b/c/d"):
        with pytest.raises(SchemaError, match="at once"):
            store.declare(Schema(name, np.dtype("<f4"), (), 64))
    store.declare(Schema("a/bc", np.dtype("<f4"), (), 64))


def test_the_time_of_a_declaration_does_not_grow_with_their_number(store):
    def some(start):
        began = time.process_time()
        for number in range(start, start + 500):
            store.declare(Schema(f"many/{number}", np.dtype("<f4"), (), 64))
        return time.process_time() - began

    first = some(0)
    some(500)
    some(1000)
    assert some(1500) < 4 * first + 0.5


@pytest.mark.parametrize("compression", ["gzip", "lzf", "zstd", "blosc2"])
def test_a_collector_has_every_compression_of_its_clients(tmp_path, compression):
    if compression in ("zstd", "blosc2"):
        pytest.importorskip("hdf5plugin")
    with Collector(tmp_path / "all.h5") as collector, collector.connect(World(rank=0, size=1)) as client:
        client.declare("x", "<i8", (), chunk_rows=1000, compression=compression)
        client.append("x", np.zeros(5000, "<i8"))
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["x"][:].tolist() == [0] * 5000
        assert file["x"].id.get_storage_size() < 10_000
