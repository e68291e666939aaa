"""Rows that lie in the sources as in memory: read without HDF5, and properly where that cannot be."""

from __future__ import annotations

import fcntl
import os

import h5py
import numpy as np
import pytest

from shardkeep._core import descriptor_usage, set_descriptor_limit
from shardkeep.errors import LockTimeoutError, ShardkeepError
from shardkeep.hdf5 import open as hopen
from shardkeep.hdf5.virtual import contiguous_rows
from shardkeep.hdf5.virtual.sources import VirtualSource
from tests.descriptors import open_descriptors


def make(folder, counts, *, order=None, starts=None, chunked=()) -> np.ndarray:
    """Write sources of so many rows and ``all.h5``, in which they begin at `starts`, mapped in an order."""
    starts = list(np.cumsum([0, *counts])[:-1]) if starts is None else starts
    total = max(at + n for at, n in zip(starts, counts, strict=True))
    layout = h5py.VirtualLayout((total, 3), "i4")
    for i in order or range(len(counts)):
        rows = (np.arange(counts[i] * 3) + 1000 * i).reshape(counts[i], 3).astype("i4")
        options = {"chunks": (2, 3)} if i in chunked else {}
        with h5py.File(folder / f"s{i}.h5", "w") as file:
            part = h5py.VirtualSource(file.create_dataset("x", data=rows, **options))
            layout[starts[i] : starts[i] + counts[i]] = part
    with h5py.File(folder / "all.h5", "w", libver="latest") as file:
        file.create_virtual_dataset("x", layout, fillvalue=-1)
    with h5py.File(folder / "all.h5") as file:
        return file["x"][:]


@pytest.fixture
def by_hdf5(monkeypatch):
    """Return how many pieces are read through HDF5."""
    calls: list[str] = []
    original = VirtualSource.read_into

    def counted(self, target, parts):
        calls.append(os.path.basename(self.path))
        original(self, target, parts)

    monkeypatch.setattr(VirtualSource, "read_into", counted)
    return calls


@pytest.mark.parametrize("parts", [(1 << 20, 1 << 20), (24, 1 << 20), (24, 60), (5, 7)])
def test_every_range_of_rows(tmp_path, monkeypatch, by_hdf5, parts):
    monkeypatch.setattr(contiguous_rows, "_PART_BYTES", parts[0])
    monkeypatch.setattr(contiguous_rows, "_CALL_BYTES", parts[1])
    whole = make(tmp_path, [4, 1, 7, 3])
    with hopen(tmp_path / "all.h5") as file:
        for first in range(15):
            for stop in range(first, 16):
                np.testing.assert_array_equal(file["x"][first:stop], whole[first:stop])
        assert file["x"][4].tolist() == whole[4].tolist()
    assert by_hdf5 == []


def test_hundreds_of_sources_in_threads(tmp_path, by_hdf5):
    whole = make(tmp_path, [2] * 300)
    with hopen(tmp_path / "all.h5") as file:
        before = open_descriptors()
        np.testing.assert_array_equal(file["x"][:], whole)
        np.testing.assert_array_equal(file["x"][1:599], whole[1:599])
        assert open_descriptors() == before
    assert by_hdf5 == []


def test_mappings_in_another_order_with_holes(tmp_path, by_hdf5):
    whole = make(tmp_path, [2, 3, 2], order=[2, 0, 1], starts=[5, 0, 9])
    assert -1 in whole
    with hopen(tmp_path / "all.h5") as file:
        for first in range(11):
            np.testing.assert_array_equal(file["x"][first:], whole[first:])
            np.testing.assert_array_equal(file["x"][: first + 1], whole[: first + 1])
    assert by_hdf5 == []


def test_sources_that_overlap(tmp_path):
    whole = make(tmp_path, [4, 4], starts=[0, 2])
    with hopen(tmp_path / "all.h5") as file:
        np.testing.assert_array_equal(file["x"][:], whole)
        np.testing.assert_array_equal(file["x"][3:5], whole[3:5])


def test_chunked_sources_are_read_by_hdf5(tmp_path, by_hdf5):
    whole = make(tmp_path, [4, 5, 6, 7], chunked=(0, 2))
    with hopen(tmp_path / "all.h5") as file:
        np.testing.assert_array_equal(file["x"][1:20], whole[1:20])
    assert by_hdf5 == ["s0.h5", "s2.h5"]


def test_replaced_source_is_read_by_hdf5_once(tmp_path, by_hdf5):
    whole = make(tmp_path, [3, 3, 3])
    with hopen(tmp_path / "all.h5") as file:
        np.testing.assert_array_equal(file["x"][:], whole)
        with h5py.File(tmp_path / "new.h5", "w", userblock_size=512) as new:
            new["x"] = -whole[3:6]
        os.rename(tmp_path / "new.h5", tmp_path / "s1.h5")
        whole[3:6] *= -1
        for _ in range(3):
            np.testing.assert_array_equal(file["x"][:], whole)
    assert by_hdf5 == ["s1.h5"]


def test_source_locked_by_a_writer_is_an_error(tmp_path):
    make(tmp_path, [3] * 80)
    with hopen(tmp_path / "all.h5") as file, open(tmp_path / "s70.h5", "rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        with pytest.raises(LockTimeoutError, match=r"s70\.h5"):
            file["x"][:]
        assert file["x"][69 * 3, 0] == 69_000


def test_one_descriptor_is_enough(tmp_path):
    whole = make(tmp_path, [2] * 100)
    limit = descriptor_usage()["limit"]
    set_descriptor_limit(1)
    try:
        with hopen(tmp_path / "all.h5") as file:
            before = descriptor_usage()["opened"]
            np.testing.assert_array_equal(file["x"][:], whole)
            assert descriptor_usage()["opened"] == before + 100
    finally:
        set_descriptor_limit(limit)


def test_truncated_source_is_an_error(tmp_path):
    make(tmp_path, [300, 300])
    with hopen(tmp_path / "all.h5") as file:
        os.truncate(tmp_path / "s1.h5", 3000)
        with pytest.raises(ShardkeepError, match=r"s1\.h5"):
            file["x"][:]
