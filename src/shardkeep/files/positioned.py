"""A file for HDF5 whose position is its own: reads and writes name their offset."""

from __future__ import annotations

import io

__all__ = ["PositionedFile"]


class PositionedFile(io.RawIOBase):
    """The part of a file object that is the same wherever its bytes go.

    A position in the descriptor would be shared with a forked child.
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
            raise ValueError(f"a file has no byte {offset}")
        self._position = offset
        return offset

    def _end_bytes(self) -> int:
        """Return how long the file is."""
        raise NotImplementedError
