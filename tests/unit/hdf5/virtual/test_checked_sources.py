"""The table with which a virtual file is opened without its sources: used where it holds, and only there.

Covers `shardkeep.hdf5.virtual.boxes` and `shardkeep.hdf5.virtual.sources`.
"""

from __future__ import annotations

import fcntl
import os
import time

import h5py
import numpy as np
import pytest

import shardkeep as sk
from shardkeep.errors import CorruptDataError, LockTimeoutError, NotFoundError, SchemaError
from shardkeep.hdf5 import open as hopen
from shardkeep.hdf5.virtual.checked_sources import is_settled
from shardkeep.hdf5.virtual.sources import VirtualSource

HOUR_NS = 3_600_000_000_000


@pytest.fixture
def examined(monkeypatch):
    """Names of the sources that are opened through HDF5 to be checked."""
    names = []
    real = VirtualSource._check_dataset

    def seen(self, file_id):
        names.append(os.path.basename(self.path))
        return real(self, file_id)

    monkeypatch.setattr(VirtualSource, "_check_dataset", seen)
    return names


def age(path) -> None:
    then = time.time_ns() // HOUR_NS * HOUR_NS - HOUR_NS + 1234
    os.utime(path, ns=(then, then))


def make(folder, *, old: bool = True, dtypes=("i4", "i4", "i4"), **options) -> np.ndarray:
    whole = np.arange(90).reshape(30, 3)
    for i, dtype in enumerate(dtypes):
        with h5py.File(folder / f"s%{i}.h5", "w") as file:
            file.create_dataset("g/x", data=whole[10 * i : 10 * i + 10].astype(dtype), **options)
        if old:
            age(folder / f"s%{i}.h5")
    promote = "promote" if len(set(dtypes)) > 1 else "refuse"
    paths = [folder / f"s%{i}.h5" for i in range(3)]
    sk.hdf5.merge(paths, folder / "all.h5", mode="virtual", on_mismatch=promote)
    return whole


@pytest.mark.parametrize("options", [{}, {"chunks": (4, 3)}, {"compression": "gzip"}])
def test_merged_file_is_opened_without_opening_sources_by_hdf5(tmp_path, examined, options):
    whole = make(tmp_path, **options)
    with hopen(tmp_path / "all.h5") as file:
        assert examined == []
        np.testing.assert_array_equal(file["g/x"][5:25], whole[5:25])
    assert sk.hdf5.verify(tmp_path / "all.h5").ok


def test_sources_of_a_narrower_type(tmp_path, examined):
    whole = make(tmp_path, dtypes=("i2", "i4", "i4"))
    with hopen(tmp_path / "all.h5") as file:
        np.testing.assert_array_equal(file["g/x"][:], whole)
    assert examined == []


def test_moved_merged_file_is_opened_without_opening_sources_by_hdf5(tmp_path, examined):
    (tmp_path / "one").mkdir()
    whole = make(tmp_path / "one")
    os.rename(tmp_path / "one", tmp_path / "two")
    with hopen(tmp_path / "two/all.h5") as file:
        np.testing.assert_array_equal(file["g/x"][:], whole)
    assert examined == []


def test_link_to_a_merged_file_is_opened_without_opening_sources_by_hdf5(tmp_path, examined):
    """Then the sources are in the last of the places where they are looked for."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    whole = make(tmp_path / "one")
    os.symlink("../one/all.h5", tmp_path / "two/all.h5")
    with hopen(tmp_path / "two/all.h5") as file:
        np.testing.assert_array_equal(file["g/x"][:], whole)
    assert examined == []


def test_sources_that_changed_just_before_the_merge_are_opened(tmp_path, examined):
    whole = make(tmp_path, old=False)
    with hopen(tmp_path / "all.h5") as file:
        np.testing.assert_array_equal(file["g/x"][:], whole)
    assert len(examined) == 3


def test_settled_modification_times():
    now = 1_700_000_000_500_000_000
    assert is_settled(now - 100_000_001, now)
    assert not is_settled(now - 50_000_000, now)
    assert not is_settled(now + HOUR_NS, now)
    assert not is_settled(now - 10_500_000_000, now), "whole seconds"


def test_a_source_with_another_time_is_opened(tmp_path, examined):
    make(tmp_path)
    os.utime(tmp_path / "s%1.h5")
    hopen(tmp_path / "all.h5").close()
    assert examined == ["s%1.h5"]


def test_a_changed_source_is_an_error(tmp_path):
    make(tmp_path)
    with h5py.File(tmp_path / "s%1.h5", "w") as file:
        file["g/x"] = np.zeros((9, 3), "i4")
    with pytest.raises(CorruptDataError, match=r"s%1\.h5.*shape"):
        hopen(tmp_path / "all.h5")
    os.unlink(tmp_path / "s%1.h5")
    with pytest.raises(NotFoundError, match=r"s%1\.h5"):
        hopen(tmp_path / "all.h5")


def test_source_locked_by_a_writer_is_an_error(tmp_path):
    make(tmp_path)
    with open(tmp_path / "s%1.h5", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(LockTimeoutError, match=r"s%1\.h5"):
            hopen(tmp_path / "all.h5")


def test_dataset_that_was_created_again_is_checked(tmp_path, examined):
    """The table is about the type of that time."""
    make(tmp_path)
    with h5py.File(tmp_path / "all.h5", "r+", libver="latest") as file:
        del file["g/x"]
        layout = h5py.VirtualLayout((10, 3), "i2")
        layout[:] = h5py.VirtualSource("s%%1.h5", "g/x", (10, 3))
        file.create_virtual_dataset("g/x", layout)
    with pytest.raises(SchemaError, match="does not fit into int16"):
        hopen(tmp_path / "all.h5")
    assert examined == ["s%1.h5"]


@pytest.mark.parametrize("damage", ["row", "crc", "none", "column", "text"])
def test_a_damaged_table_is_not_used(tmp_path, examined, damage):
    whole = make(tmp_path)
    with h5py.File(tmp_path / "all.h5", "r+") as file:
        if damage == "row":
            table = file["_checks"][:]
            table["offset_bytes"] += 4
            file["_checks"][...] = table
        elif damage == "crc":
            file["_checks"].attrs["crc32c"] = "no"
        elif damage == "none":
            del file["_checks"].attrs["crc32c"]
        else:
            del file["_checks"]
            file["_checks"] = np.zeros(3, [("mtime_ns", "i8")]) if damage == "column" else "x"
    with hopen(tmp_path / "all.h5") as file:
        np.testing.assert_array_equal(file["g/x"][:], whole)
    assert len(examined) == 3
