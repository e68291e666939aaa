"""Copies of the rows of a dataset: chunk by chunk, or block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from shardkeep.hdf5.read_errors import first_line
from shardkeep.hdf5.storage.dtypes import has_parts_elsewhere, has_references
from shardkeep.hdf5.storage.layout import blocks_of
from shardkeep.jobs.salvage.hdf5.attributes import stored_size
from shardkeep.jobs.salvage.hdf5.findings import Findings, limit_time
from shardkeep.jobs.salvage.hdf5.patched_file import PatchedFile
from shardkeep.jobs.salvage.hdf5.storage import Hdf5Rows, LostChunks, RawRows, References
from shardkeep.jobs.salvage.hdf5.stored_chunk import DamagedChunkError, Filters

__all__ = ["RowCopy"]

# Then blocks of rows are not divided further.
_MOST_FAILURES = 20_000


class RowCopy:
    """Copy of the rows of one dataset.

    Parameters
    ----------
    source : Hdf5Rows or RawRows
    target : DatasetID
        Created with the type, shape and properties of the damaged dataset.
    raw : PatchedFile
        The damaged file.
    checked : bool
        True if checksums cover the type, the shape and the places of the rows.
    writes : bool
        False to read and check only.
    """

    def __init__(
        self,
        source: Hdf5Rows | RawRows,
        target: Any,
        raw: PatchedFile,
        findings: Findings,
        name: str,
        *,
        checked: bool,
        writes: bool,
    ) -> None:
        self._source, self._target, self._raw = source, target, raw
        self._findings, self._name = findings, name
        self._checked, self._writes = checked, writes
        self._kind = target.get_type()
        self._stored_bytes = stored_size(self._kind)
        self._space = target.get_space()
        self._shape: tuple[int, ...] = self._space.shape
        self._properties = target.get_create_plist()
        self.lost: list[dict[str, Any]] = []
        self._rows = Rows(self._shape)
        self._failures = 0

    def run(self) -> None:
        """Copy all rows, and report them."""
        if self._space.get_simple_extent_type() == h5py.h5s.NULL:
            return
        layout = self._properties.get_layout()
        elsewhere = has_parts_elsewhere(self._kind)
        if has_references(self._kind) and not isinstance(self._source, References):
            self.lose_all("references to other objects are lost")
        elif 0 in self._shape:
            pass
        elif layout == h5py.h5d.CHUNKED:
            self._chunks(elsewhere)
        elif layout == h5py.h5d.COMPACT and not elsewhere:
            rows = self._source.value(self._kind)
            self._findings.read(rows.nbytes)
            if self._writes:
                self._target.write(h5py.h5s.ALL, h5py.h5s.ALL, rows, self._kind)
        else:
            self._contiguous(elsewhere)
        self._report()

    def lose_all(self, reason: str) -> None:
        """Report all rows as lost."""
        self._lose_rows(reason, 0)

    # -- layouts ---------------------------------------------------------------------------------

    def _contiguous(self, elsewhere: bool) -> None:
        """Copy rows from their address; those after the end of the file are lost."""
        address, item_bytes = self._source.address(), self._stored_bytes
        if address is None and self._properties.get_layout() != h5py.h5d.COMPACT:
            return
        self._checked = False
        for start, count in blocks_of(self._shape, item_bytes, (1,) * len(self._shape)):
            if address is None:  # compact values of variable length
                self._values(start, count, None)
                continue
            offset_bytes = address + item_bytes * _flat(start, self._shape)
            size = item_bytes * int(np.prod(count, dtype=object))
            if offset_bytes == address:
                copies = not elsewhere and self._writes
            elif copies := copies and self._copied(offset_bytes, size, offset_bytes - address):
                self._findings.read(size)
                continue
            data = self._raw.read_at(offset_bytes, size)
            self._findings.read(len(data))
            whole = len(data) // item_bytes
            row_bytes = item_bytes * int(np.prod(count[1:], dtype=object))
            done = len(data) // row_bytes
            if elsewhere and done:
                self._values(start, (done, *count[1:]) if count else (), data[: done * row_bytes])
            elif whole and not elsewhere and self._writes:
                self._write_items(start, count, np.frombuffer(data, f"V{item_bytes}", whole))
            if len(data) < size:
                total = item_bytes * int(np.prod(self._shape, dtype=object))
                end = offset_bytes + len(data)
                place = {"offset_bytes": end, "bytes": address + total - end}
                self._lose_rows("the file ends before them", start[0] + done if start else 0, place)
                return

    def _copied(self, offset_bytes: int, size: int, at: int) -> bool:
        """Copy stored bytes to their place without reading them; return False if that is not possible.

        HDF5 must have written the first block, which allocates all rows, and no block smaller than its sieve
        buffer, which can be written later with the bytes around that block.
        """
        target = self._target.get_offset()
        fd = h5py.h5i.get_file_id(self._target).get_vfd_handle()
        return target is not None and self._raw.copy_to(fd, target + at, offset_bytes, size)

    def _write_items(self, start: tuple[int, ...], count: tuple[int, ...], items: Any) -> None:
        """Write the first elements of a block."""
        if not start:
            self._target.write(h5py.h5s.ALL, h5py.h5s.ALL, items.reshape(()), self._kind)
            return
        row_items = int(np.prod(count[1:], dtype=object))
        rows, more = divmod(len(items), row_items)
        self._write(start, (rows, *count[1:]), items[: rows * row_items])
        if more:
            padded = np.zeros(row_items, items.dtype)
            padded[:more] = items[rows * row_items :]
            first = (start[0] + rows, *start[1:])
            # The rest of the row gets the fill value, as all that was not written.
            for offset, length, flat in _runs(count[1:], more):
                where = (first[0], *(a + b for a, b in zip(first[1:], offset, strict=True)))
                size = int(np.prod(length, dtype=object))
                self._write(where, (1, *length), padded[flat : flat + size])

    def _chunks(self, elsewhere: bool) -> None:
        chunk = tuple(self._properties.get_chunk())
        filters = Filters(self._properties, self._kind)
        for one in self._source.chunks(chunk):
            if one.start is None:
                self.lose_all("the index of its chunks is damaged")
                return
            start = one.start
            count = tuple(min(c, n - s) for c, n, s in zip(chunk, self._shape, start, strict=True))
            if isinstance(one, LostChunks):
                self._lose("the index of chunks is damaged there", start, count, {"chunk": start})
                continue
            limit_time(one.size_bytes + filters.chunk_bytes)
            try:
                if one.obstacle:
                    raise DamagedChunkError(one.obstacle)
                mask, stored = self._source.read(one)
                proved = filters.check(stored, mask)
            except DamagedChunkError as error:
                place = {"chunk": start, "offset_bytes": one.offset_bytes, "bytes": one.size_bytes}
                self._lose(str(error), start, count, place)
            else:
                if elsewhere:
                    decoded = filters.decode(stored, mask)[tuple(slice(0, one) for one in count)]
                    self._values(start, count, decoded.tobytes())
                elif self._writes:
                    self._target.write_direct_chunk(start, stored, mask)
                if not proved or elsewhere or not one.is_checked:
                    self._rows.mark(start, count, "unchecked")
            self._findings.read(one.size_bytes)

    # -- values in global heaps ----------------------------------------------------------------------

    def _values(self, start: tuple[int, ...], count: tuple[int, ...], stored: bytes | None) -> None:
        """Copy values of variable length; a row that cannot be read is lost."""
        self._checked = False
        try:
            values = self._source.values(start, count, stored)
        except Exception as error:  # whatever h5py raises for damaged values
            self._failures += 1
            if count and count[0] > 1 and self._failures < _MOST_FAILURES:
                half = count[0] // 2
                cut = half * self._stored_bytes * int(np.prod(count[1:], dtype=object))
                parts = (None, None) if stored is None else (stored[:cut], stored[cut:])
                self._values(start, (half, *count[1:]), parts[0])
                self._values((start[0] + half, *start[1:]), (count[0] - half, *count[1:]), parts[1])
            else:
                self._lose(f"its values cannot be read ({first_line(error)})", start, count)
            return
        self._findings.read(values.nbytes)
        if self._writes:
            self._write(start, count, values, h5py.h5t.py_create(self._target.dtype))

    def _write(self, start: tuple[int, ...], count: tuple[int, ...], values: Any, memory: Any = None) -> None:
        memory = self._kind if memory is None else memory
        if not count:
            self._target.write(h5py.h5s.ALL, h5py.h5s.ALL, values, memory)
            return
        if 0 in count:
            return
        space = self._target.get_space()
        space.select_hyperslab(start, count)
        values = np.ascontiguousarray(values).reshape(count)
        self._target.write(h5py.h5s.create_simple(count), space, values, memory)

    # -- report --------------------------------------------------------------------------------------

    def _lose(
        self,
        reason: str,
        start: tuple[int, ...],
        count: tuple[int, ...],
        place: dict[str, Any] | None = None,
    ) -> None:
        items = self._rows.mark(start, count, "lost")
        self._findings.add("lost", reason, self._name, items, **(place or {}))
        self.lost.append({"start": list(start), "shape": list(count), "reason": reason})

    def _lose_rows(self, reason: str, first: int, place: dict[str, Any] | None = None) -> None:
        """Lose all rows from the first one on."""
        if 0 not in self._shape:
            start = (first, *(0,) * (len(self._shape) - 1)) if self._shape else ()
            count = (self._shape[0] - first, *self._shape[1:]) if self._shape else ()
            self._lose(reason, start, count, place)

    def _report(self) -> None:
        if not self._checked:
            self._rows.mark((0,) * len(self._shape), self._shape, "unchecked")
        kept, unchecked = self._rows.count()
        if kept:
            self._findings.add("kept", "rows that are whole by their checksums", self._name, kept)
        # Also without such rows: in a row that is lost, elements of other chunks may be unchecked.
        if self._rows.has_unchecked or not self._checked:
            self._findings.add("unchecked", "the file has no checksum of these rows", self._name, unchecked)


class Rows:
    """Rows of a dataset that are lost or unchecked, each counted once; ranges come in the order of rows."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._all = shape[0] if shape else 1
        self._ranges: dict[str, list[tuple[int, int]]] = {"lost": [], "unchecked": []}

    def mark(self, start: tuple[int, ...], count: tuple[int, ...], outcome: str) -> int:
        """Add rows; return how many had not this outcome before."""
        first = start[0] if start else 0
        last = first + (count[0] if count else 1)
        ranges = self._ranges[outcome]
        if not ranges or first > ranges[-1][1]:
            ranges.append((first, last))
            return last - first
        before = ranges[-1]
        ranges[-1] = (before[0], max(last, before[1]))
        return ranges[-1][1] - before[1]

    @property
    def has_unchecked(self) -> bool:
        """True if any row was marked as unchecked, lost ones included."""
        return bool(self._ranges["unchecked"])

    def count(self) -> tuple[int, int]:
        """Return how many rows are kept, and how many are unchecked and not lost."""
        lost = sum(last - first for first, last in self._ranges["lost"])
        either, end = 0, 0
        for first, last in sorted(self._ranges["lost"] + self._ranges["unchecked"]):
            either += max(0, last - max(first, end))
            end = max(end, last)
        return self._all - either, either - lost


def _flat(start: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """Return the number of an element in the order of the file."""
    number = 0
    for at, size in zip(start, shape, strict=True):
        number = number * size + at
    return number


def _runs(shape: tuple[int, ...], items: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], int]]:
    """Yield boxes (start, shape, number of the first element) that cover the first elements of a shape."""
    start = [0] * len(shape)
    flat = 0
    for axis in range(len(shape)):
        inner = int(np.prod(shape[axis + 1 :], dtype=object))
        whole, items = divmod(items, inner)
        if whole:
            yield tuple(start), (*(1,) * axis, whole, *shape[axis + 1 :]), flat
        start[axis] = whole
        flat += whole * inner
