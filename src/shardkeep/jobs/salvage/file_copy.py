"""Copies of whole files, independent of the original; the file system may share their blocks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Protocol

from shardkeep.errors import CorruptDataError
from shardkeep.hdf5.locking.file_version import FileVersion

__all__ = ["copy_into"]

_BLOCK_BYTES = 16 << 20


class _Target(Protocol):
    """A new file without a buffer."""

    def fileno(self) -> int: ...
    def seek(self, offset: int, /) -> int: ...
    def write(self, data: bytes, /) -> int | None: ...


def copy_into(source: str, target: _Target, tick: Callable[[int], None]) -> None:
    """Copy all bytes of a file into a new file, and call `tick` with the size of each block.

    Raises
    ------
    CorruptDataError
        The source changed during the copy.
    DurabilityError
        The copy cannot be written.
    OSError
        The source cannot be read.
    """
    fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        before = FileVersion.of(os.fstat(fd))
        done, size = 0, os.fstat(fd).st_size
        while done < size:
            count = _copy_block(fd, target, done, min(_BLOCK_BYTES, size - done))
            if not count:
                break
            done += count
            tick(count)
        if done < size or FileVersion.of(os.fstat(fd)) != before:
            message = f"{source!r} changed while it was copied: end the process that writes it"
            raise CorruptDataError(f"{message}, then repair again", path=source)
    finally:
        os.close(fd)


def _copy_block(fd: int, target: _Target, offset: int, size: int) -> int:
    """Copy at most `size` bytes to the same offset; return their number, 0 at the end of the source."""
    # Not on macOS, not between all file systems, and some copy nothing without an error; an error of the disk
    # is raised again by the read or the write.
    with contextlib.suppress(AttributeError, OSError):
        count = os.copy_file_range(fd, target.fileno(), size, offset, offset)
        if count:
            return count
    target.seek(offset)
    return target.write(os.pread(fd, size, offset)) or 0
