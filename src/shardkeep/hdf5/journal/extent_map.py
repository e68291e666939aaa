"""`ExtentMap`: changed bytes of a file, held in memory above those on disk."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from shardkeep.hdf5.journal.redo_log import Extent

__all__ = ["ExtentMap"]

# A bytes object, an int and their slots in list and dict: rows by number may make an extent each.
_EXTENT_BYTES = 200


class ExtentMap:
    """Extents by offset. They never overlap: a later one replaces the bytes of an earlier one.

    Examples
    --------
    >>> extents = ExtentMap()
    >>> extents.put(10, b"aaaa")
    >>> extents.put(12, b"bb")
    >>> extents.put(0, b"z")
    >>> list(extents), extents.bytes
    ([(0, b'z'), (10, b'aabb')], 5)
    >>> view = bytearray(b"........")
    >>> extents.overlay(8, view)
    >>> bytes(view)
    b'..aabb..'
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._extents: dict[int, bytes] = {}
        self.bytes = 0

    @property
    def held_bytes(self) -> int:
        """Memory of all extents."""
        return self.bytes + _EXTENT_BYTES * len(self._starts)

    def put(self, offset: int, data: bytes) -> None:
        """Set the bytes that begin at `offset`."""
        if not data:
            return
        old = self._extents.get(offset)
        if old is not None and len(old) == len(data):  # the same object of HDF5 once more
            self._extents[offset] = data
            return
        stop = offset + len(data)
        first, last = self._touching(offset, stop)
        if first < last:
            start, extent = self._remove(first)
            if start <= offset:
                data = extent[: offset - start] + data + extent[stop - start :]
                offset = start
            else:
                data = data + extent[stop - start :]
            # The others in between lie inside; only the last one may reach further.
            for _ in range(last - first - 1):
                start, extent = self._remove(first)
                if start + len(extent) > stop:
                    data += extent[stop - start :]
        self._starts.insert(bisect_left(self._starts, offset), offset)
        self._extents[offset] = data
        self.bytes += len(data)

    def overlay(self, offset: int, view: bytearray | memoryview) -> None:
        """Copy the known bytes into `view`, which holds the bytes of the file that begin at `offset`."""
        stop = offset + len(view)
        first, last = self._touching(offset, stop)
        for start in self._starts[first:last]:
            extent = self._extents[start]
            begin, end = max(start, offset), min(start + len(extent), stop)
            view[begin - offset : end - offset] = extent[begin - start : end - start]

    def update(self, other: ExtentMap) -> None:
        """Put every extent of another map."""
        for offset, data in other:
            self.put(offset, data)

    def __iter__(self) -> Iterator[Extent]:
        """Yield (offset, bytes) in ascending order."""
        return ((start, self._extents[start]) for start in self._starts)

    def _touching(self, offset: int, stop: int) -> tuple[int, int]:
        """Return the [first, last) extents that share a byte with a range."""
        first = bisect_right(self._starts, offset) - 1
        if first < 0 or self._starts[first] + len(self._extents[self._starts[first]]) <= offset:
            first += 1
        return first, max(first, bisect_left(self._starts, stop))

    def _remove(self, index: int) -> tuple[int, bytes]:
        start = self._starts.pop(index)
        extent = self._extents.pop(start)
        self.bytes -= len(extent)
        return start, extent
