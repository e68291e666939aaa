"""Copies of the rows of a dataset that HDF5 can open: chunk by chunk, or block by block."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from shardkeep.hdf5.read_errors import first_line
from shardkeep.hdf5.storage.chunk_table import read_chunk_table
from shardkeep.jobs.salvage.hdf5.attributes import has_parts_elsewhere, has_references, stored_size
from shardkeep.jobs.salvage.hdf5.findings import Findings
from shardkeep.jobs.salvage.hdf5.patched_file import PatchedFile
from shardkeep.jobs.salvage.hdf5.stored_chunk import DamagedChunkError, Filters

__all__ = ["RowCopy"]

_BLOCK_BYTES = 4 << 20
# A damaged shape may have more chunks than the file has bytes.
_MOST_CHUNKS = 1 << 24
# Then blocks of rows are not divided further.
_MOST_FAILURES = 20_000

Box = tuple[tuple[int, ...], tuple[int, ...]]


class RowCopy:
    """Copy of the rows of one dataset.

    Parameters
    ----------
    source : DatasetID
    target : DatasetID
        Created with the same type, shape and properties.
    raw : PatchedFile
        The damaged file.
    checked : bool
        True if checksums cover the type, the shape and the places of the rows.
    writes : bool
        False to read and check only.
    """

    def __init__(
        self,
        source: Any,
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
        self._kind = source.get_type()
        self._memory = self._kind.copy()
        self._space = source.get_space()
        self._shape: tuple[int, ...] = self._space.shape
        self._properties = source.get_create_plist()
        self.lost: list[dict[str, Any]] = []
        self._rows = Rows(self._shape)
        self._failures = 0
        self._trial_file: tuple[Any, Any] | None = None

    def run(self) -> None:
        """Copy all rows, and report them."""
        if self._space.get_simple_extent_type() == h5py.h5s.NULL:
            return
        layout = self._properties.get_layout()
        elsewhere = has_parts_elsewhere(self._kind)
        if has_references(self._kind):
            self._lose_rows("references to other objects are not copied", 0)
        elif layout == h5py.h5d.CHUNKED:
            self._chunks(elsewhere)
        elif elsewhere:
            self._variable()
        elif layout == h5py.h5d.COMPACT:
            self._compact()
        else:
            self._contiguous()
        self._report()

    # -- layouts ---------------------------------------------------------------------------------

    def _compact(self) -> None:
        if 0 not in self._shape:
            rows = np.empty(self._shape, f"V{self._kind.get_size()}")
            self._source.read(h5py.h5s.ALL, h5py.h5s.ALL, rows, self._memory)
            if self._writes:
                self._target.write(h5py.h5s.ALL, h5py.h5s.ALL, rows, self._memory)
            self._findings.read(rows.nbytes)

    def _contiguous(self) -> None:
        """Copy rows from their address; those after the end of the file are lost."""
        if self._source.get_space_status() != h5py.h5d.SPACE_STATUS_ALLOCATED or 0 in self._shape:
            return
        self._checked = False
        address, item_bytes = self._source.get_offset(), self._kind.get_size()
        if address is None:
            return
        for start, count in _boxes(self._shape, item_bytes):
            offset_bytes = address + item_bytes * _flat(start, self._shape)
            size = item_bytes * int(np.prod(count, dtype=object))
            data = self._raw.read_at(offset_bytes, size)
            self._findings.read(len(data))
            whole = len(data) // item_bytes
            if whole and self._writes:
                self._write_items(start, count, np.frombuffer(data, f"V{item_bytes}", whole))
            if len(data) < size:
                first = start[0] + whole // int(np.prod(count[1:], dtype=object)) if start else 0
                total = item_bytes * int(np.prod(self._shape, dtype=object))
                end = offset_bytes + len(data)
                place = {"offset_bytes": end, "bytes": address + total - end}
                self._lose_rows("the file ends before them", first, place)
                return

    def _write_items(self, start: tuple[int, ...], count: tuple[int, ...], items: Any) -> None:
        """Write the first elements of a block."""
        if not start:
            self._target.write(h5py.h5s.ALL, h5py.h5s.ALL, items.reshape(()), self._memory)
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
        filters = Filters(self._properties, stored_size(self._kind), self._trial)
        for start, size_bytes, offset_bytes in self._stored_chunks(chunk):
            count = tuple(min(c, n - s) for c, n, s in zip(chunk, self._shape, start, strict=True))
            place = {"chunk": start, "offset_bytes": offset_bytes, "bytes": size_bytes}
            try:
                mask, stored = self._source.read_direct_chunk(start)
                proved = filters.check(stored, mask) == "proved"
            except DamagedChunkError as error:
                self._lose(str(error), start, count, place)
            except (OSError, RuntimeError, MemoryError) as error:
                self._lose(f"HDF5 cannot read it ({first_line(error)})", start, count, place)
            else:
                if elsewhere:
                    self._values((start, count))
                elif self._writes:
                    self._target.write_direct_chunk(start, stored, mask)
                if not proved or elsewhere:
                    self._rows.mark(start, count, "unchecked")
                size_bytes = len(stored)
            self._findings.read(size_bytes or 0)

    def _stored_chunks(self, chunk: tuple[int, ...]) -> Iterator[tuple[Any, int | None, int | None]]:
        """Yield first element, size and address of each chunk; those that the index lost are lost."""
        try:
            table = read_chunk_table(self._source, self._shape, self._kind.get_size())
        except (OSError, RuntimeError, ValueError, OverflowError):
            table = None
        if table is not None:
            for start, size, address in zip(
                table.offsets.tolist(), table.sizes.tolist(), table.addresses.tolist(), strict=True
            ):
                yield tuple(start), size, address
            return
        grid = [range(0, size, one) for size, one in zip(self._shape, chunk, strict=True)]
        if int(np.prod([len(axis) for axis in grid], dtype=object)) > _MOST_CHUNKS:
            self._lose_rows("the index of its chunks is damaged", 0)
            return
        for start in itertools.product(*grid):
            try:
                info = self._source.get_chunk_info_by_coord(start)
            except (OSError, RuntimeError, ValueError, OverflowError):
                count = tuple(min(c, n - s) for c, n, s in zip(chunk, self._shape, start, strict=True))
                self._lose("the index of chunks is damaged there", start, count, {"chunk": start})
                continue
            if info.byte_offset is not None:
                yield start, info.size, info.byte_offset

    def _trial(self, stored: bytes, mask: int) -> bool:
        """Return whether HDF5 decodes a chunk, in a file in memory."""
        chunk = self._properties.get_chunk()
        if self._trial_file is None:
            file = h5py.File("trial", "w", driver="core", backing_store=False, rdcc_nbytes=0)
            properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            properties.set_chunk(chunk)
            for position in range(self._properties.get_nfilters()):
                code, flags, values, _ = self._properties.get_filter(position)
                properties.set_filter(code, flags, values)
            space = h5py.h5s.create_simple(chunk)
            self._trial_file = file, h5py.h5d.create(file.id, b"chunk", self._memory, space, properties)
        dataset = self._trial_file[1]
        dataset.write_direct_chunk((0,) * len(chunk), stored, mask)
        rows = np.empty(chunk, f"V{self._kind.get_size()}")
        try:
            dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, rows, self._memory)
        except (OSError, RuntimeError):
            return False
        return True

    # -- values in global heaps ----------------------------------------------------------------------

    def _variable(self) -> None:
        """Copy rows of variable length that are not in chunks."""
        self._checked = False
        allocated = self._source.get_space_status() == h5py.h5d.SPACE_STATUS_ALLOCATED
        if not allocated or 0 in self._shape:
            return
        item_bytes = stored_size(self._kind)
        for start, count in _boxes(self._shape, item_bytes):
            address = self._source.get_offset()
            if address is not None:
                first = address + item_bytes * _flat(start, self._shape)
                if first >= self._raw.size_bytes:
                    self._lose_rows("the file ends before them", start[0] if start else 0)
                    return
            self._values((start, count))

    def _values(self, box: Box) -> None:
        """Copy values of variable length; a row that cannot be read is lost."""
        self._checked = False
        start, count = box
        try:
            values = self._read(start, count)
        except Exception as error:  # whatever h5py raises for damaged values
            self._failures += 1
            if count and count[0] > 1 and self._failures < _MOST_FAILURES:
                half = count[0] // 2
                self._values((start, (half, *count[1:])))
                self._values(((start[0] + half, *start[1:]), (count[0] - half, *count[1:])))
            else:
                self._lose(f"its values cannot be read ({first_line(error)})", start, count)
            return
        self._findings.read(values.nbytes)
        if self._writes:
            self._write(start, count, values, h5py.h5t.py_create(self._source.dtype))

    def _read(self, start: tuple[int, ...], count: tuple[int, ...]) -> Any:
        values = np.empty(count, self._source.dtype)
        memory = h5py.h5t.py_create(self._source.dtype)
        if not count:
            self._source.read(h5py.h5s.ALL, h5py.h5s.ALL, values, memory)
            return values
        space = self._source.get_space()
        space.select_hyperslab(start, count)
        self._source.read(h5py.h5s.create_simple(count), space, values, memory)
        return values

    def _write(self, start: tuple[int, ...], count: tuple[int, ...], values: Any, memory: Any = None) -> None:
        memory = self._memory if memory is None else memory
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
        if unchecked or not self._checked:
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


def _boxes(shape: tuple[int, ...], item_bytes: int) -> Iterator[Box]:
    """Yield blocks of at most about 4 MiB whose elements are adjacent in contiguous rows."""
    if 0 in shape:
        return
    step = [1] * len(shape)
    left = max(1, _BLOCK_BYTES // item_bytes)
    for axis in reversed(range(len(shape))):
        step[axis] = min(shape[axis], left)
        left //= step[axis]
        if step[axis] < shape[axis]:
            break
    for start in itertools.product(*(range(0, size, one) for size, one in zip(shape, step, strict=True))):
        yield start, tuple(min(one, size - at) for at, one, size in zip(start, step, shape, strict=True))


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
