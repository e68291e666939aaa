"""Base of file objects for HDF5 that read and write at explicit offsets."""

from __future__ import annotations

import io
from typing import Any

__all__ = ["PositionedFile"]


class PositionedFile(io.RawIOBase):
    """Common part of file objects with their own position.

    The position of a descriptor would be shared with a forked child.
    """

    _position = 0

    def readable(self) -> bool:
        """Return True: HDF5 reads back what it wrote."""
        return True

    def writable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move the position."""
        if whence == 1:
            offset += self._position
        elif whence == 2:
            offset += self._end_bytes()
        if offset < 0:
            raise ValueError(f"offset {offset} is not valid: must be 0 or more")
        self._position = offset
        return offset

    def readinto(self, buffer: Any) -> int:
        """Read at the position into a writable buffer; past the end there are zeros.

        HDF5 expects zeros there, for instance where a write failed. h5py ignores the count of bytes, so HDF5
        uses the whole buffer: it would take what memory held before for references to old text, fail to free
        that text, and crash while it handles this error.
        """
        with memoryview(buffer) as view, view.cast("B") as target:
            size = len(target)
            count = self._read(target)
            target[count:] = bytes(size - count)
        self._position += size
        return size

    def _read(self, target: memoryview) -> int:
        """Read at the position; return how many bytes there are."""
        raise NotImplementedError

    def _end_bytes(self) -> int:
        """Return the size of the file in bytes."""
        raise NotImplementedError
