"""A damaged file as HDF5 reads it: its own bytes, except for those of a repaired superblock.

HDF5 reads it through h5py's driver for Python files, so that a repair that writes nothing needs no copy.
"""

from __future__ import annotations

import contextlib
import os

from shardkeep.files.durable import read_all
from shardkeep.files.positioned import PositionedFile
from shardkeep.jobs.salvage.hdf5.superblock import Superblock

__all__ = ["PatchedFile"]


class PatchedFile(PositionedFile):
    """File that is only read, at most `size_bytes` of it.

    Parameters
    ----------
    fd : int
        Stays open.
    size_bytes : int
    block : Superblock
        The bytes that replace those of the file.
    """

    def __init__(self, fd: int, size_bytes: int, block: Superblock) -> None:
        self._fd = fd
        self.size_bytes = size_bytes
        self._block = block

    def read_at(self, offset_bytes: int, count: int) -> bytes:
        """Return at most `count` bytes from an offset in the file; fewer at its end."""
        parts, left = [], max(0, min(count, self.size_bytes - offset_bytes))
        while left and (data := os.pread(self._fd, left, offset_bytes)):
            parts.append(self._patched(data, offset_bytes))
            offset_bytes, left = offset_bytes + len(data), left - len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def copy_to(self, fd: int, target_bytes: int, offset_bytes: int, count: int) -> bool:
        """Copy bytes to an offset of another file within the kernel; return False if that cannot be done.

        An error of either file is raised again by a read or a write.
        """
        if offset_bytes + count > self.size_bytes or self._patch(offset_bytes, count)[1]:
            return False
        # Not on macOS, and not between all file systems.
        with contextlib.suppress(AttributeError, OSError):
            while count and (copied := os.copy_file_range(self._fd, fd, count, offset_bytes, target_bytes)):
                offset_bytes, target_bytes, count = (
                    offset_bytes + copied,
                    target_bytes + copied,
                    count - copied,
                )
            return not count
        return False

    def _patched(self, data: bytes, at: int) -> bytes:
        where, patch = self._patch(at, len(data))
        return data[: where.start] + patch + data[where.stop :] if patch else data

    def _patch(self, at: int, count: int) -> tuple[slice, bytes]:
        """Return which of `count` bytes from an offset are of the superblock, and their new values."""
        start, data = self._block.offset_bytes, self._block.data
        first, last = max(at, start), min(at + count, start + len(data))
        if first >= last:
            return slice(0, 0), b""
        return slice(first - at, last - at), data[first - start : last - start]

    def _read(self, target: memoryview) -> int:
        count = read_all(self._fd, target, self._position)
        where, patch = self._patch(self._position, count)
        target[where] = patch
        return count

    def _end_bytes(self) -> int:
        return self.size_bytes
