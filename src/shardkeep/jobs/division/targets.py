"""Shards that a unit of work writes: existing files, at fixed offsets."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import Any

from shardkeep import _core
from shardkeep.files.durable import durably, write_all
from shardkeep.files.leftovers import open_temporary

__all__ = ["Place", "Targets"]

# Slices shorter than this are joined and written by one call, which is faster than a vector of them.
_JOIN_BELOW_BYTES = 8192
_VECTOR = 1024
# Shorter pieces share pages with later data; these pages would be written twice.
_WRITE_BACK_BYTES = 8 << 20


@dataclass(frozen=True)
class Place:
    """Place of the first frame of a unit in one shard.

    Attributes
    ----------
    temporary : str
        Existing file that is written.
    path : str
        Final name, for messages.
    offset_bytes, record : int
        Offset of that frame, and its number in the shard.
    """

    temporary: str
    path: str
    offset_bytes: int
    record: int


class Targets:
    """The shards of a unit, of which one is open at a time."""

    def __init__(self, places: dict[int, Place]) -> None:
        self.places = places
        self._shard, self._fd = -1, -1

    def __enter__(self) -> Targets:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def fd(self, shard: int) -> int:
        """Return a descriptor of a shard for writing and reading, valid until the next call."""
        if self._shard != shard:
            self._close()
            place = self.places[shard]
            with durably("open", place.path):
                self._fd = open_temporary(place.temporary, os.O_RDWR)
            self._shard = shard
        return self._fd

    def write(self, shard: int, data: Any, offset_bytes: int) -> int:
        """Write all of `data`; return its length."""
        fd = self.fd(shard)
        with durably("write", self.places[shard].path):
            write_all(fd, data, offset_bytes)
        return len(data)

    def write_slices(self, shard: int, slices: list[memoryview], offset_bytes: int) -> int:
        """Write slices one after the other; return their length."""
        total = sum(map(len, slices))
        if total < _JOIN_BELOW_BYTES * len(slices):
            return self.write(shard, b"".join(slices), offset_bytes)
        done, fd = 0, self.fd(shard)
        for first in range(0, len(slices), _VECTOR):
            some = slices[first : first + _VECTOR]
            with durably("write", self.places[shard].path):
                put = os.pwritev(fd, some, offset_bytes + done)
            if put < sum(map(len, some)):
                self.write(shard, b"".join(some)[put:], offset_bytes + done + put)
            done += sum(map(len, some))
        return total

    def write_records(self, shard: int, records: list[bytes], offset_bytes: int) -> int:
        """Write records as frames; return the length of the frames."""
        if not records:
            return 0
        fd, path = self.fd(shard), self.places[shard].path
        with durably("write", path):
            os.lseek(fd, offset_bytes, os.SEEK_SET)
            frames = _core.FrameWriter(fd, path)
            for record in records:
                frames.write(record)
            frames.finish()
        return frames.written_bytes

    def write_back(self, shard: int, offset_bytes: int, length: int) -> None:
        """Make the kernel begin to write these bytes to disk, so that the sync at the end waits less."""
        if length >= _WRITE_BACK_BYTES and hasattr(os, "posix_fadvise"):
            # On Linux this advice starts the writing; pages that are still dirty stay in memory.
            with contextlib.suppress(OSError):
                os.posix_fadvise(self.fd(shard), offset_bytes, length, os.POSIX_FADV_DONTNEED)

    def _close(self) -> None:
        fd, shard, self._fd, self._shard = self._fd, self._shard, -1, -1
        if fd >= 0:
            with durably("write", self.places[shard].path):
                os.close(fd)
