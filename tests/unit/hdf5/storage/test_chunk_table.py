import itertools

import h5py
import numpy as np
import pytest

from shardkeep.hdf5 import merge, verify
from shardkeep.hdf5.storage.chunk_table import ChunkTable, read_chunk_table

SHAPES = [((8, 12), (4, 2)), ((8, 8), (2, 2)), ((6, 4), (2, 4))]
LIMITS = ["same", "more", "none"]


def table_of(offsets, addresses, sizes=(10, 10), *, shape=(8, 3), chunks=(4, 2)):
    numbers = np.array(addresses), np.array(sizes)
    masks = np.arange(len(addresses), dtype=np.uint32)
    return ChunkTable.of_dataset(np.array(offsets), masks, *numbers, shape=shape, chunks=chunks)


def test_chunks_are_sorted_by_position():
    table = table_of([[4, 0], [0, 2], [0, 0]], [100, 200, 300], [10, 20, 30])
    assert table.offsets.tolist() == [[0, 0], [0, 2], [4, 0]]
    assert table.addresses.tolist() == [300, 200, 100]
    assert table.sizes.tolist() == [30, 20, 10]
    assert table.masks.tolist() == [2, 1, 0]


def test_a_damaged_number_of_rows_takes_no_memory():
    table = table_of([[0, 0], [4, 0]], [100, 200])
    assert table.rows_in_order(8, 4)
    assert not table.rows_in_order(1 << 48, 4)
    assert not table.rows_in_order(0, 4)


@pytest.mark.parametrize(
    ("offsets", "addresses"),
    [
        ([[0, 0], [0, 0]], [100, 200]),
        ([[0, 0], [8, 0]], [100, 200]),
        ([[0, 0], [0, 4]], [100, 200]),
        ([[0, 0], [2, 0]], [100, 200]),
        ([[0, 0], [-4, 0]], [100, 200]),
        ([[0, 0], [4, 0]], [100, 105]),
        ([[0, 0], [4, 0]], [100, -1]),
    ],
    ids=["twice", "below", "beside", "within another", "before", "shared bytes", "no address"],
)
def test_impossible_report_has_no_table(offsets, addresses):
    assert table_of(offsets, addresses) is None


@pytest.mark.parametrize("version", ["earliest", "v110", "latest"])
@pytest.mark.parametrize(("shape", "chunks"), SHAPES)
@pytest.mark.parametrize("limits", list(itertools.product(LIMITS, LIMITS)), ids="-".join)
def test_table_is_right_for_every_growing_axis(tmp_path, version, shape, chunks, limits):
    values = np.arange(np.prod(shape), dtype="<i4").reshape(shape)
    most = {"same": lambda size: size, "more": lambda size: size + 9, "none": lambda size: None}
    with h5py.File(tmp_path / "a.h5", "w", libver=version) as file:
        maxshape = tuple(most[limit](size) for limit, size in zip(limits, shape, strict=True))
        dataset = file.create_dataset("x", data=values, chunks=chunks, maxshape=maxshape)
        dataset.flush()
        table = read_chunk_table(dataset.id)
    if table is None:
        assert limits[0] != "none" and limits[1] == "none"
        return
    assert len(table) == (shape[0] // chunks[0]) * (shape[1] // chunks[1])
    data = (tmp_path / "a.h5").read_bytes()
    for (row, column), address in zip(table.offsets.tolist(), table.addresses.tolist(), strict=True):
        there = np.frombuffer(data, "<i4", int(np.prod(chunks)), address).reshape(chunks)
        assert np.array_equal(there, values[row : row + chunks[0], column : column + chunks[1]])


def test_wrong_positions_within_the_shape_have_no_table(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        dataset = file.create_dataset("x", (8, 8), "i4", chunks=(2, 2), maxshape=(8, None))
        dataset[:, :2] = 1
        assert read_chunk_table(dataset.id) is None


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize(("shape", "chunks"), SHAPES)
def test_datasets_growing_along_another_axis_are_merged(tmp_path, shape, chunks, compression):
    expected = []
    for number in range(2):
        expected.append(np.arange(np.prod(shape), dtype="<i4").reshape(shape) + 1000 * number)
        with h5py.File(tmp_path / f"{number}.h5", "w", libver="latest") as file:
            options = {"chunks": chunks, "maxshape": (shape[0], None), "compression": compression}
            file.create_dataset("x", data=expected[-1], **options)
    plan = merge([tmp_path / "0.h5", tmp_path / "1.h5"], tmp_path / "all.h5", dry_run=True)
    assert "chunks" not in plan.datasets[0].strategy
    merge([tmp_path / "0.h5", tmp_path / "1.h5"], tmp_path / "all.h5")
    with h5py.File(tmp_path / "all.h5") as file:
        assert np.array_equal(file["x"][()], np.concatenate(expected))
    assert verify(tmp_path / "all.h5").ok
