from __future__ import annotations

import fcntl
import os

import h5py
import pytest

from shardkeep.errors import CorruptDataError, LockError, NotFoundError
from shardkeep.hdf5.locking.file_version import FileVersion
from shardkeep.hdf5.locking.mode import locking_mode
from shardkeep.hdf5.sources.raw_file import RawFile


@pytest.fixture
def path(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = [1, 2, 3]
    return tmp_path / "a.h5"


@pytest.mark.skipif(locking_mode().effect == "off", reason="HDF5 locks nothing here")
@pytest.mark.parametrize("value", ["FALSE", "OFF", "no", "TRUE"])
def test_the_lock_is_taken_whenever_hdf5_of_this_process_takes_it(path, monkeypatch, value):
    monkeypatch.setenv("HDF5_USE_FILE_LOCKING", value)  # too late to do anything, or nothing at all
    with open(path, "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(LockError, match="open in a process that writes it"):
            RawFile.open_source(str(path), FileVersion.of(os.stat(path)))


def test_a_file_that_changed_or_was_removed_is_refused(path):
    version = FileVersion.of(os.stat(path))
    os.utime(path, ns=(0, 1))
    with pytest.raises(CorruptDataError, match="changed while it was merged"):
        RawFile.open_source(str(path), version)
    path.unlink()
    with pytest.raises(NotFoundError):
        RawFile.open_source(str(path), version)
