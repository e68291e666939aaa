from __future__ import annotations

import fcntl
import os

import h5py
import numpy as np
import pytest

from shardkeep.errors import CorruptDataError, LockError, NotFoundError
from shardkeep.files.kinds.kind import HDF5_SIGNATURE
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


@pytest.mark.parametrize("more_bytes", [0, 2 << 20], ids=["read at once", "larger"])
def test_rows_at_any_address_are_aligned(tmp_path, more_bytes):
    """HDF5 writes only aligned arrays."""
    values = np.arange(7.0)
    for shift in range(8):
        path = tmp_path / f"{shift}"
        path.write_bytes(HDF5_SIGNATURE + bytes(shift) + values.tobytes() + bytes(more_bytes))
        with RawFile.open_source(str(path), FileVersion.of(os.stat(path))) as raw:
            (rows,) = raw.rows([8 + shift], 7, values.dtype, (), 1, 7)
            assert rows.flags.aligned
            assert rows.tolist() == values[1:].tolist()


def test_a_small_file_is_read_with_one_call(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(HDF5_SIGNATURE + bytes(range(100)))
    calls = []
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda *given: calls.append(given) or preadv(*given))
    with RawFile.open_source(str(path), FileVersion.of(os.stat(path))) as raw:
        for start in range(0, 100, 10):
            (rows,) = raw.rows([8], 100, np.dtype("u1"), (), start, start + 10)
            assert rows.tolist() == list(range(start, start + 10))
    assert len(calls) == 1


def test_a_file_that_changed_or_was_removed_is_refused(path):
    version = FileVersion.of(os.stat(path))
    os.utime(path, ns=(0, 1))
    with pytest.raises(CorruptDataError, match="changed while it was merged"):
        RawFile.open_source(str(path), version)
    path.unlink()
    with pytest.raises(NotFoundError):
        RawFile.open_source(str(path), version)
