"""Buffer of the rows of one dataset, which writes them into an HDF5 file as whole chunks.

The owner of the file decides in which group the dataset is created, and when all rows must be in it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np

from shardkeep.hdf5.storage.chunk_table import chunks_crc
from shardkeep.hdf5.storage.compression import FilterSpec, require_filters
from shardkeep.hdf5.storage.content_hash import as_bytes, content_crc
from shardkeep.hdf5.storage.layout import Layout, chunk_rows_of, create_dataset, write_rows

__all__ = ["RowWriter", "fill_chunk"]

# Most single rows before they are joined: each is a separate bytes object.
_MOST_PARTS = 1024
_NUMBERS = {"f2": "e", "f4": "f", "f8": "d", "i1": "b", "i2": "h", "i4": "i", "i8": "q"}
_NUMBERS |= {"u1": "B", "u2": "H", "u4": "I", "u8": "Q"}


def fill_chunk(
    chunk: np.ndarray[Any, Any],
    fill: int,
    rows: np.ndarray[Any, Any],
    write: Callable[[np.ndarray[Any, Any]], None],
) -> int:
    """Copy rows into a chunk that has `fill` rows; return how many it has then.

    Each full chunk is passed to `write`; rows that make a whole chunk are not copied before.
    """
    size, start = len(chunk), 0
    while start < len(rows):
        if fill == 0 and len(rows) - start >= size:
            write(rows[start : start + size])
            start += size
            continue
        count = min(size - fill, len(rows) - start)
        chunk[fill : fill + count] = rows[start : start + count]
        fill += count
        start += count
        if fill == size:
            fill = 0
            write(chunk)
    return fill


class RowWriter:
    """Writer of one dataset: rows go from a list of bytes to a chunk in memory and then into the file.

    Parameters
    ----------
    name : str
        Name in the group that `add` is called with; parts between "/" are groups.
    dtype : dtype
    row_shape : tuple of int
    chunk_rows : int, optional
        By default 512 KiB of rows.
    filters : tuple of FilterSpec
        Only for values of fixed size.

    Attributes
    ----------
    parts : list of bytes
        Single rows, newest last. A caller with a row of exactly `accepted` and `one_row` may append
        ``row.tobytes()`` without a lock, since that is one atomic step, and calls `settle` once
        there are `most_parts`.
    accepted : dtype or None
        The dtype object that was last found to fit; compared by identity, the cheapest test.
    one_row : tuple of int or None
        Shape of one row with its leading axis; None if single rows cannot be kept as bytes.
    python_type : type or None
        float or int, if `pack` converts one such number to the bytes of a row; only a float may be
        rounded. `pack` raises ``struct.error`` or `OverflowError` for a number that does not fit.
    crc : int
        `content_crc` of the rows in whole chunks; of all rows after `finish`.
    dataset : h5py.Dataset or None
        None before the first whole chunk.

    Notes
    -----
    Not thread-safe, except for `parts`. After an exception in any method the rows since the last
    `finish` are in an unknown state: drop the file.

    Examples
    --------
    >>> import io
    >>> with h5py.File(io.BytesIO(), "w") as file:
    ...     writer = RowWriter("a/x", np.dtype("f4"), (2,), chunk_rows=4)
    ...     writer.add(np.arange(12, dtype="f4").reshape(6, 2), lambda: file)
    ...     _ = writer.finish(lambda: file)
    ...     file["a/x"].shape, file["a/x"].chunks, writer.rows
    ((6, 2), (4, 2), 6)
    """

    __slots__ = (
        "_direct",
        "_last_row",
        "_type_code",
        "accepted",
        "buffer",
        "chunk_rows",
        "crc",
        "dataset",
        "dtype",
        "fill",
        "filters",
        "most_parts",
        "name",
        "one_row",
        "own_storage",
        "pack",
        "parts",
        "python_type",
        "row_shape",
        "written",
    )

    def __init__(
        self,
        name: str,
        dtype: np.dtype[Any],
        row_shape: tuple[int, ...],
        *,
        chunk_rows: int | None = None,
        filters: tuple[FilterSpec, ...] = (),
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.row_shape = row_shape
        empty = 0 in row_shape  # HDF5 has no chunks of such rows
        self.filters = () if empty else filters
        self.own_storage = not empty and (chunk_rows is not None or bool(filters))
        self.chunk_rows = chunk_rows if self.own_storage and chunk_rows else chunk_rows_of(dtype, row_shape)
        self.most_parts = min(self.chunk_rows, _MOST_PARTS)
        fixed = not dtype.hasobject
        self.one_row = (1, *row_shape) if fixed and not empty else None
        code = _NUMBERS.get(dtype.str[1:], "") if h5py.check_enum_dtype(dtype) is None else ""
        self.python_type: type | None = None
        self.pack: Callable[[Any], bytes] | None = None
        if code and row_shape == ():
            self.python_type = float if dtype.kind == "f" else int
            self.pack = struct.Struct((">" if dtype.str[0] == ">" else "<") + code).pack
        self.buffer = np.empty((self.chunk_rows, *row_shape), dtype)
        self.parts: list[bytes] = []
        self.accepted: np.dtype[Any] | None = None
        self.dataset: h5py.Dataset | None = None
        self._direct = fixed and not self.filters
        self._type_code: bytes | None = None
        self.fill = self.written = self.crc = 0

    @property
    def rows(self) -> int:
        """Number of rows since the creation or the last `reset`."""
        return self.written + self.fill + len(self.parts)

    def add(self, rows: np.ndarray[Any, Any], group: Callable[[], h5py.Group]) -> None:
        """Copy or write rows of shape (n, *row_shape) and exactly `dtype`.

        Parameters
        ----------
        rows : ndarray
        group : callable
            Returns the group of the dataset; called before each chunk is written.
        """
        self.settle(group)
        self._copy(rows, group)

    def settle(self, group: Callable[[], h5py.Group]) -> None:
        """Move the single rows of `parts` into the chunk."""
        parts = self.parts
        count = len(parts)
        if count:
            data = b"".join(parts[:count])
            # Another thread may have appended more meanwhile; these stay.
            del parts[:count]
            self._copy(np.frombuffer(data, self.dtype).reshape(count, *self.row_shape), group)

    def flush(self, group: Callable[[], h5py.Group], *, chunked: bool = True) -> int:
        """Write every row so far into the dataset; return their number.

        Rows of a chunk that is not full also stay in memory, and the chunk is written again when it
        is full. `chunked` applies to a dataset that is created now.
        """
        self.settle(group)
        rows = self.written + self.fill
        if self.dataset is None:
            self._create(group(), rows, chunked=chunked)
        assert self.dataset is not None
        if self.dataset.shape[0] != rows:
            # Before the last chunk is written: HDF5 would read it back to clear the rows after the new end.
            self.dataset.resize(rows, 0)
        if self.fill and self._direct and self.dataset.chunks is not None:
            self.buffer[self.fill :] = np.zeros((), self.dtype)
            self._write(self.written, self.buffer)
        elif self.fill:
            write_rows(self.dataset, self.written, self.buffer[: self.fill])
        return rows

    def finish(self, group: Callable[[], h5py.Group]) -> int:
        """Write every row into the dataset for the last time; return their number.

        Rows that fit into one chunk are stored without chunks, unless there are filters or `chunk_rows`.
        """
        rows = self.flush(group, chunked=self.own_storage)
        self.crc = content_crc(self.buffer[: self.fill], self.crc)
        self.written, self.fill = rows, 0
        return rows

    def chunks_crc(self) -> int | None:
        """After `finish`, return the hash of the compressed chunks; None without compression."""
        return chunks_crc(self.dataset) if self.filters and self.dataset is not None else None

    def reset(self) -> None:
        """Start a new dataset, to which rows that are still in `parts` belong."""
        self.dataset = None
        self.fill = self.written = self.crc = 0

    def drop(self) -> None:
        """Forget every row, and accept no more rows through `parts`."""
        self.accepted = self.python_type = None
        self.parts = []
        self.reset()

    def _copy(self, rows: np.ndarray[Any, Any], group: Callable[[], h5py.Group]) -> None:
        self.fill = fill_chunk(self.buffer, self.fill, rows, lambda chunk: self._write_chunk(chunk, group()))

    def _write_chunk(self, rows: np.ndarray[Any, Any], group: h5py.Group) -> None:
        start, stop = self.written, self.written + self.chunk_rows
        if self.dataset is None:
            self._create(group, stop, chunked=True)
        assert self.dataset is not None
        if self.dataset.shape[0] < stop:
            self.dataset.resize(max(2 * start, stop), 0)
        self._write(start, rows)
        self.crc = content_crc(rows, self.crc)
        self.written = stop

    def _write(self, start: int, rows: np.ndarray[Any, Any]) -> None:
        assert self.dataset is not None
        if self._direct:
            self.dataset.id.write_direct_chunk((start, *(0 for _ in self.row_shape)), as_bytes(rows))
        else:
            write_rows(self.dataset, start, rows)

    def _create(self, group: h5py.Group, rows: int, *, chunked: bool) -> None:
        if self._type_code is None:
            self._type_code = h5py.h5t.py_create(self.dtype, logical=True).encode()
        chunks = (self.chunk_rows, *self.row_shape) if chunked else None
        layout = Layout(self._type_code, chunks, self.filters, b"", not self.dtype.hasobject)
        self.dataset = create_dataset(group, self.name, layout, (rows, *self.row_shape))
        if self.filters:
            require_filters(self.dataset)
