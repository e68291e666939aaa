"""`ExtentMap`: changed pieces of a file, held in memory above what is on disk."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from shardkeep.hdf5.journal.redo_log import Extent

__all__ = ["ExtentMap"]


class ExtentMap:
    """Pieces by offset; they never overlap, a later one cuts an earlier one.

    Examples
    --------
    >>> pieces = ExtentMap()
    >>> pieces.put(10, b"aaaa")
    >>> pieces.put(12, b"bb")
    >>> pieces.put(0, b"z")
    >>> list(pieces), pieces.bytes
    ([(0, b'z'), (10, b'aabb')], 5)
    >>> view = bytearray(b"........")
    >>> pieces.lay_over(8, view)
    >>> bytes(view)
    b'..aabb..'
    """

    # A bytes object, a number and their places: of rows by number, each may be such a piece.
    _PIECE_BYTES = 200

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._pieces: dict[int, bytes] = {}
        self.bytes = 0

    @property
    def held_bytes(self) -> int:
        """Memory that the pieces take."""
        return self.bytes + self._PIECE_BYTES * len(self._starts)

    def put(self, offset: int, data: bytes) -> None:
        """Set the bytes from `offset` on."""
        if not data:
            return
        old = self._pieces.get(offset)
        if old is not None and len(old) == len(data):  # the same object of HDF5 once more
            self._pieces[offset] = data
            return
        stop = offset + len(data)
        first, last = self._touching(offset, stop)
        if first < last:
            start, piece = self._remove(first)
            if start <= offset:
                data = piece[: offset - start] + data + piece[stop - start :]
                offset = start
            else:
                data = data + piece[stop - start :]
            # What is left in between lies inside; only the last one may reach further.
            for _ in range(last - first - 1):
                start, piece = self._remove(first)
                if start + len(piece) > stop:
                    data += piece[stop - start :]
        self._starts.insert(bisect_left(self._starts, offset), offset)
        self._pieces[offset] = data
        self.bytes += len(data)

    def lay_over(self, offset: int, view: bytearray | memoryview) -> None:
        """Put what is known of the bytes from `offset` on into `view`."""
        stop = offset + len(view)
        first, last = self._touching(offset, stop)
        for start in self._starts[first:last]:
            piece = self._pieces[start]
            begin, end = max(start, offset), min(start + len(piece), stop)
            view[begin - offset : end - offset] = piece[begin - start : end - start]

    def update(self, other: ExtentMap) -> None:
        """Put every piece of another map."""
        for offset, data in other:
            self.put(offset, data)

    def __iter__(self) -> Iterator[Extent]:
        """Yield (offset, bytes) in the order of the file."""
        return ((start, self._pieces[start]) for start in self._starts)

    def __len__(self) -> int:
        return len(self._starts)

    def _touching(self, offset: int, stop: int) -> tuple[int, int]:
        """Return which pieces share a byte with the range."""
        first = bisect_right(self._starts, offset) - 1
        if first < 0 or self._starts[first] + len(self._pieces[self._starts[first]]) <= offset:
            first += 1
        return first, max(first, bisect_left(self._starts, stop))

    def _remove(self, place: int) -> tuple[int, bytes]:
        start = self._starts.pop(place)
        piece = self._pieces.pop(start)
        self.bytes -= len(piece)
        return start, piece
