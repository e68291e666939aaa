"""Copies of contiguous rows in blocks: bytes that are not read, and those at the end of a cut file."""

import errno
import os
import signal
from pathlib import Path

import h5py
import numpy as np
import pytest

from shardkeep.hdf5.storage import layout
from shardkeep.jobs.salvage.hdf5.findings import Findings
from shardkeep.jobs.salvage.hdf5.patched_file import PatchedFile
from shardkeep.jobs.salvage.hdf5.rows import RowCopy
from shardkeep.jobs.salvage.hdf5.storage import Hdf5Rows
from shardkeep.jobs.salvage.hdf5.superblock import Superblock

# More than the sieve buffer of HDF5, as the real ones.
BLOCK_BYTES = 80_000
SHAPE, ITEM_BYTES, FILL = (100, 1037), 4, -7


@pytest.fixture
def salvaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that makes a file, copies its rows, and returns those of the copy."""
    monkeypatch.setattr(layout, "_BLOCK_BYTES", BLOCK_BYTES)
    path = str(tmp_path / "x.h5")

    def copy(*, user_block: int = 0, cut_bytes: int = 0, patch: bytes = b"", patched_row_bytes: int = 0):
        with h5py.File(path, "w", userblock_size=user_block) as file:
            made = file.create_dataset("x", SHAPE, "i4", fillvalue=FILL)
            made[:] = np.arange(np.prod(SHAPE)).reshape(SHAPE)
            file["after"] = np.zeros(10)
        fd = os.open(path, os.O_RDONLY)
        try:
            with h5py.File(path) as file, h5py.File(tmp_path / "y.h5", "w", userblock_size=512) as new:
                source = file["x"].id
                at = source.get_offset()
                raw = PatchedFile(
                    fd, at + made_bytes() - cut_bytes, Superblock(at + patched_row_bytes, patch)
                )
                new["before"] = np.ones(100)
                target = h5py.h5d.create(
                    new.id, b"x", source.get_type(), source.get_space(), source.get_create_plist()
                )
                findings = Findings(stops=False)
                RowCopy(Hdf5Rows(source), target, raw, findings, "/x", checked=False, writes=True).run()
            with h5py.File(tmp_path / "y.h5") as new:
                assert (new["before"][:] == 1).all()
                return new["x"][:]
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)  # the limit for a child process
            os.close(fd)

    return copy


def made_bytes() -> int:
    return int(np.prod(SHAPE)) * ITEM_BYTES


EXPECTED = np.arange(np.prod(SHAPE)).reshape(SHAPE)


@pytest.mark.parametrize("user_block", [0, 512])
def test_blocks_after_the_first_are_copied_without_reading_them(salvaged, monkeypatch, user_block):
    read: list[int] = []
    whole = PatchedFile.read_at
    monkeypatch.setattr(PatchedFile, "read_at", lambda self, at, n: read.append(n) or whole(self, at, n))
    assert (salvaged(user_block=user_block) == EXPECTED).all()
    assert sum(read) <= BLOCK_BYTES


@pytest.mark.parametrize("cut_bytes", [1, ITEM_BYTES, BLOCK_BYTES, 3 * BLOCK_BYTES + 5])
def test_rows_after_the_end_of_the_file_have_the_fill_value(salvaged, cut_bytes):
    found = salvaged(cut_bytes=cut_bytes).reshape(-1)
    whole = (made_bytes() - cut_bytes) // ITEM_BYTES
    assert (found[:whole] == EXPECTED.reshape(-1)[:whole]).all()
    assert (found[whole:] == FILL).all()


def test_bytes_of_the_repaired_superblock_replace_those_of_the_file(salvaged):
    found = salvaged(patch=b"\1\0\0\0", patched_row_bytes=2 * BLOCK_BYTES).reshape(-1)
    expected = EXPECTED.reshape(-1).copy()
    expected[2 * BLOCK_BYTES // ITEM_BYTES] = 1
    assert (found == expected).all()


@pytest.mark.parametrize("outcome", ["another file system", "short", "nothing"])
def test_blocks_are_read_where_the_kernel_does_not_copy_them(salvaged, monkeypatch, outcome):
    copied = os.copy_file_range
    calls = []

    def copy(source, target, count, *offsets):
        calls.append(count)
        if outcome == "another file system":
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        if outcome == "nothing" or len(calls) % 2 == 0:
            return 0
        return copied(source, target, count // 2, *offsets)

    monkeypatch.setattr(os, "copy_file_range", copy)
    assert (salvaged() == EXPECTED).all()
    assert calls
