"""Identity of a file in one state, by which a later change is noticed."""

from __future__ import annotations

import os
from typing import NamedTuple

__all__ = ["FileVersion"]


class FileVersion(NamedTuple):
    """A file in one state; a change of the file changes its version.

    Attributes
    ----------
    device, inode, size_bytes, mtime_ns : int
        As `os.stat` has them.
    may_grow : bool
        Whether a collector may add bytes at the end while those within `size_bytes` stay
        (`shardkeep.hdf5.journal.live_view`).
    """

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    may_grow: bool = False

    @classmethod
    def of(cls, status: os.stat_result) -> FileVersion:
        """Return the version of a file that has this status."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def is_unchanged(self, status: os.stat_result) -> bool:
        """Return whether a file with this status still has the bytes of this version."""
        if self.may_grow:
            same_file = (status.st_dev, status.st_ino) == (self.device, self.inode)
            return same_file and status.st_size >= self.size_bytes
        return FileVersion.of(status) == self
