"""The datasets of a live file that rows are appended to: how rows get into their chunks."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

from shardkeep.errors import CollectorError
from shardkeep.hdf5.collect.live_file import LiveFile
from shardkeep.hdf5.collect.payload import decode_rows
from shardkeep.hdf5.collect.schema import Schema
from shardkeep.hdf5.compression import require_filters
from shardkeep.hdf5.dataset_layout import write_rows
from shardkeep.hdf5.rows import as_bytes

__all__ = ["DirectRows", "FilteredRows", "ObjectRows", "StoredRows", "chunk_address"]

TAILS = "_collector/tails"


class StoredRows:
    """One dataset: rows come as bytes, and are in the next commit after `settle`.

    Parameters
    ----------
    live : LiveFile
    dataset : h5py.Dataset
    schema : Schema

    Attributes
    ----------
    rows : int
        All rows, in a commit or not.
    """

    def __init__(self, live: LiveFile, dataset: h5py.Dataset, schema: Schema) -> None:
        self.live = live
        self.dataset = dataset
        self.schema = schema
        self.rows: int = dataset.shape[0]
        # Asking HDF5 for these costs more than writing a batch.
        self._id = dataset.id
        self._extent = self.rows
        self._row_shape = dataset.shape[1:]

    def append(self, data: memoryview, rows: int) -> None:
        """Take rows.

        Raises
        ------
        CollectorError
            The bytes are not that many rows; nothing was taken.
        DurabilityError
            They could not be written: the file has to be given up.
        """
        raise NotImplementedError

    def settle(self) -> None:
        """Make every row so far a part of the next commit."""
        raise NotImplementedError

    def finish(self) -> None:
        """Do the same before the file is closed for good."""
        self.settle()

    def _extend(self, rows: int) -> None:
        # Only ever longer: HDF5 would fill what is cut off with zeros, through its own buffers.
        if rows > self._extent:
            self._id.set_extent((rows, *self._row_shape))
            self._extent = rows


class DirectRows(StoredRows):
    """Rows of fixed size without filters: each byte is written once, at its place in the file."""

    def __init__(self, live: LiveFile, dataset: h5py.Dataset, schema: Schema) -> None:
        super().__init__(live, dataset, schema)
        self._row_bytes = schema.row_bytes
        self._chunk_rows = schema.chunk_rows
        self._corner = (0,) * len(schema.row_shape)
        self._address = -1
        if self.rows % self._chunk_rows and self._row_bytes:
            self._address = chunk_address(dataset, self.rows)

    def append(self, data: memoryview, rows: int) -> None:
        """Write rows."""
        size = self._row_bytes
        if len(data) != rows * size:
            raise CollectorError(f"{len(data)} bytes are not {rows} rows of {size} bytes each")
        if not size:
            self.rows += rows
            return
        done = 0
        while done < rows:
            inside = self.rows % self._chunk_rows
            if inside == 0:
                self._extend(self.rows + 1)
                place = (self.rows, *self._corner)
                self._address = allocate_chunk_at(self.live, self._id, place, self._chunk_rows * size)
            count = min(rows - done, self._chunk_rows - inside)
            self.live.write_rows(self._address + inside * size, data[done * size : (done + count) * size])
            self.rows += count
            done += count

    def settle(self) -> None:
        """Extend the dataset over the rows."""
        self._extend(self.rows)


class ObjectRows(StoredRows):
    """Text, which HDF5 keeps apart from its chunks: given to it as arrays."""

    def __init__(self, live: LiveFile, dataset: h5py.Dataset, schema: Schema) -> None:
        super().__init__(live, dataset, schema)
        self._waiting: list[np.ndarray[Any, Any]] = []
        self._bytes = 0

    def append(self, data: memoryview, rows: int) -> None:
        """Take rows; many at once go to HDF5."""
        array = decode_rows(data, rows, self.schema.dtype, self.schema.row_shape)
        self._waiting.append(array)
        self._bytes += len(data)
        self.rows += rows
        if self._bytes > 1 << 20:
            self.settle()

    def settle(self) -> None:
        """Give HDF5 what is waiting."""
        if self._waiting:
            array = np.concatenate(self._waiting)
            self._waiting, self._bytes = [], 0
            self._extend(self.rows)
            write_rows(self.dataset, self.rows - len(array), array)


class FilteredRows(StoredRows):
    """Compressed rows: HDF5 gets whole chunks; the rows of an unfinished one are kept beside it.

    The dataset shows whole chunks while the collector runs, and every row once it has ended.
    """

    def __init__(self, live: LiveFile, dataset: h5py.Dataset, schema: Schema) -> None:
        super().__init__(live, dataset, schema)
        require_filters(dataset)
        self._chunk_rows = schema.chunk_rows
        self._buffer = np.empty((self._chunk_rows, *schema.row_shape), schema.dtype)
        self._bytes = as_bytes(self._buffer)
        self._saved = 0
        self._tail = self._open_tail()

    @property
    def _fill(self) -> int:
        return self.rows % self._chunk_rows

    def append(self, data: memoryview, rows: int) -> None:
        """Take rows; a whole chunk goes to HDF5."""
        size = self.schema.row_bytes
        if len(data) != rows * size:
            raise CollectorError(f"{len(data)} bytes are not {rows} rows of {size} bytes each")
        source = np.frombuffer(data, np.uint8)
        done = 0
        while done < rows:
            fill = self._fill
            count = min(rows - done, self._chunk_rows - fill)
            self._bytes[fill * size : (fill + count) * size] = source[done * size : (done + count) * size]
            self.rows += count
            done += count
            if self._fill == 0:
                self._extend(self.rows)
                self.dataset[self.rows - self._chunk_rows : self.rows] = self._buffer
                self._saved = 0

    def settle(self) -> None:
        """Keep the rows of the unfinished chunk, and how many rows there are in all."""
        size = self.schema.row_bytes
        new = self._bytes[self._saved * size : self._fill * size]
        if len(new):
            self.live.change(self._tail + 8 + self._saved * size, new.tobytes())
        self.live.change(self._tail, self.rows.to_bytes(8, "little"))
        self._saved = self._fill

    def finish(self) -> None:
        """Give HDF5 the unfinished chunk as well."""
        fill = self._fill
        if fill and self._extent < self.rows:
            self._extend(self.rows)
            self.dataset[self.rows - fill : self.rows] = self._buffer[:fill]

    def _open_tail(self) -> int:
        file, name = self.dataset.file, f"{TAILS}/{self.schema.name}"
        size = 8 + self._chunk_rows * self.schema.row_bytes
        if name in file:
            address = chunk_address(file[name], 0)
            self.rows = int.from_bytes(self.live.read_at(address, 8), "little")
            self._saved = self._fill
            kept = self._saved * self.schema.row_bytes
            self._bytes[:kept] = np.frombuffer(self.live.read_at(address + 8, kept), np.uint8)
            return address
        if self._fill:  # closed in good order before: the last chunk is in the dataset
            self._buffer[: self._fill] = self.dataset[self.rows - self._fill :]
        tail = file.create_dataset(name, shape=(size,), maxshape=(None,), chunks=(size,), dtype="u1")
        return allocate_chunk(self.live, tail, 0, size)


def allocate_chunk(live: LiveFile, dataset: h5py.Dataset, row: int, size: int) -> int:
    """Have HDF5 make room for the chunk that begins with `row`; return where it is."""
    return allocate_chunk_at(live, dataset.id, (row, *(0 for _ in dataset.shape[1:])), size)


def allocate_chunk_at(live: LiveFile, one: h5py.h5d.DatasetID, place: tuple[int, ...], size: int) -> int:
    """Do the same by identifier and coordinates, which are half of the time to ask for."""
    return live.allocate(lambda data: one.write_direct_chunk(place, data), size)


def chunk_address(dataset: h5py.Dataset, row: int) -> int:
    """Return where the chunk that holds `row` is in the file; -1 if nowhere."""
    start = row - row % dataset.chunks[0]
    info = dataset.id.get_chunk_info_by_coord((start, *(0 for _ in dataset.shape[1:])))
    return -1 if info.byte_offset is None else int(info.byte_offset)
