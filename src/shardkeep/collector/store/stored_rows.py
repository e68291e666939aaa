"""The datasets of a live file that rows are appended to: how rows get into their chunks."""

from __future__ import annotations

import math
from typing import Any

import h5py
import numpy as np

from shardkeep.collector.protocol.payload import TEXT_BYTES, decode_rows, texts_in
from shardkeep.collector.protocol.schema import Schema
from shardkeep.collector.protocol.slots import SLOT_BYTES
from shardkeep.collector.store.open_datasets import OPEN_BYTES, OpenDatasets
from shardkeep.errors import CollectorError
from shardkeep.hdf5.journal.live_file import LiveFile
from shardkeep.hdf5.storage.compression import require_filters
from shardkeep.hdf5.storage.content_hash import as_bytes
from shardkeep.hdf5.storage.layout import write_rows

__all__ = ["DirectRows", "FilteredRows", "ObjectRows", "StoredRows", "chunk_address"]

TAILS = "_collector/tails"


class StoredRows:
    """One dataset: rows come as bytes, and are in the next commit after `settle`.

    Parameters
    ----------
    live : LiveFile
    dataset : h5py.Dataset
    schema : Schema
    opened : OpenDatasets
        Closes it while other datasets need the memory.

    Attributes
    ----------
    rows : int
        All rows, in a commit or not.
    """

    def __init__(self, live: LiveFile, dataset: h5py.Dataset, schema: Schema, opened: OpenDatasets) -> None:
        self.live = live
        self.schema = schema
        self.rows: int = dataset.shape[0]
        self._file = dataset.file
        self._dataset: h5py.Dataset | None = None
        self._opened = opened
        # Asking HDF5 for these costs more than writing a batch.
        self._extent = self.rows
        self._row_shape = dataset.shape[1:]

    @property
    def dataset(self) -> h5py.Dataset:
        """The dataset, opened if it is not."""
        if self._dataset is None:
            self.keep_open(self._file[self.schema.name])
        return self._dataset

    @property
    def held_bytes(self) -> int:
        """What it keeps in memory while it is open."""
        return OPEN_BYTES

    def keep_open(self, dataset: h5py.Dataset) -> None:
        """Take a dataset that is open already."""
        self._dataset = dataset
        self._opened.use(self, self.held_bytes)

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

    def close(self) -> None:
        """Keep nothing in memory that the file can hold."""
        self.settle()
        self._dataset = None

    def _extend(self, rows: int) -> None:
        # Only ever longer: HDF5 would fill what is cut off with zeros, through its own buffers.
        if rows > self._extent:
            self.dataset.id.set_extent((rows, *self._row_shape))
            self._extent = rows


class DirectRows(StoredRows):
    """Rows of fixed size without filters: each byte is written once, at its place in the file."""

    def __init__(self, live: LiveFile, dataset: h5py.Dataset, schema: Schema, opened: OpenDatasets) -> None:
        super().__init__(live, dataset, schema, opened)
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
                self._address = allocate_chunk_at(self.live, self.dataset.id, place, self._chunk_rows * size)
            count = min(rows - done, self._chunk_rows - inside)
            self.live.write_rows(self._address + inside * size, data[done * size : (done + count) * size])
            self.rows += count
            done += count

    def settle(self) -> None:
        """Extend the dataset over the rows."""
        self._extend(self.rows)


class ObjectRows(StoredRows):
    """Text, which HDF5 keeps apart from its chunks: given to it as arrays."""

    def __init__(self, live: LiveFile, dataset: h5py.Dataset, schema: Schema, opened: OpenDatasets) -> None:
        super().__init__(live, dataset, schema, opened)
        self._waiting: list[np.ndarray[Any, Any]] = []
        self._bytes = 0
        self._text_bytes = TEXT_BYTES * texts_in(schema.dtype) * math.prod(schema.row_shape)

    @property
    def held_bytes(self) -> int:
        """The rows that wait."""
        return OPEN_BYTES + self._bytes

    def append(self, data: memoryview, rows: int) -> None:
        """Take rows; many at once go to HDF5."""
        if rows > 1 and len(data) > SLOT_BYTES:
            raise CollectorError(f"{len(data)} bytes of text in one part: {SLOT_BYTES} are allowed")
        array = decode_rows(data, rows, self.schema.dtype, self.schema.row_shape)
        self._waiting.append(array)
        size = len(data) + rows * self._text_bytes
        self._bytes += size
        self._opened.unsaved_bytes += size
        self.rows += rows
        if self._bytes > 1 << 20:
            self.settle()
        self._opened.use(self, self.held_bytes)

    def settle(self) -> None:
        """Give HDF5 what is waiting."""
        if self._waiting:
            array = np.concatenate(self._waiting)
            self._opened.unsaved_bytes -= self._bytes
            self._waiting, self._bytes = [], 0
            self._extend(self.rows)
            write_rows(self.dataset, self.rows - len(array), array)


class FilteredRows(StoredRows):
    """Compressed rows: HDF5 gets whole chunks; the rows of an unfinished one are kept in its tail.

    The dataset shows whole chunks while the collector runs, and every row once it has ended. The tail is a
    dataset of bytes: the number of all rows, and the rows of the unfinished chunk. It is made with the first
    rows. While the dataset is closed the tail alone has them.
    """

    def __init__(self, live: LiveFile, dataset: h5py.Dataset, schema: Schema, opened: OpenDatasets) -> None:
        super().__init__(live, dataset, schema, opened)
        require_filters(dataset)
        self._chunk_rows = schema.chunk_rows
        self._chunk: np.ndarray[Any, Any] | None = None
        self._saved = 0
        self._tail = -1
        name = f"{TAILS}/{schema.name}"
        if name in self._file:
            self._tail = chunk_address(self._file[name], 0)
            self.rows = int.from_bytes(live.read_at(self._tail, 8), "little")
            self._saved = self._fill

    @property
    def held_bytes(self) -> int:
        """The unfinished chunk."""
        return OPEN_BYTES + (0 if self._chunk is None else self._chunk.nbytes)

    @property
    def _fill(self) -> int:
        return self.rows % self._chunk_rows

    def append(self, data: memoryview, rows: int) -> None:
        """Take rows; a whole chunk goes to HDF5."""
        size = self.schema.row_bytes
        if len(data) != rows * size:
            raise CollectorError(f"{len(data)} bytes are not {rows} rows of {size} bytes each")
        if not rows:
            return
        chunk = self._load()
        target = as_bytes(chunk)
        source = np.frombuffer(data, np.uint8)
        done = 0
        while done < rows:
            fill = self._fill
            count = min(rows - done, self._chunk_rows - fill)
            target[fill * size : (fill + count) * size] = source[done * size : (done + count) * size]
            self._opened.unsaved_bytes += count * size
            self.rows += count
            done += count
            if self._fill == 0:
                self._opened.unsaved_bytes -= (self._chunk_rows - self._saved) * size
                self._saved = 0
                self._extend(self.rows)
                self.dataset[self.rows - self._chunk_rows : self.rows] = chunk
        self._opened.use(self, self.held_bytes)

    def settle(self) -> None:
        """Keep the rows of the unfinished chunk, and how many rows there are in all."""
        if self._tail < 0:
            return
        size, fill = self.schema.row_bytes, self._fill
        if self._saved < fill:
            assert self._chunk is not None
            new = as_bytes(self._chunk)[self._saved * size : fill * size]
            self.live.change(self._tail + 8 + self._saved * size, new.tobytes())
            self._opened.unsaved_bytes -= (fill - self._saved) * size
            self._saved = fill
        self.live.change(self._tail, self.rows.to_bytes(8, "little"))

    def finish(self) -> None:
        """Give HDF5 the unfinished chunk as well."""
        fill = self._fill
        if fill and self._extent < self.rows:
            chunk = self._load()
            self._extend(self.rows)
            self.dataset[self.rows - fill : self.rows] = chunk[:fill]
            self._opened.leave(self)
            self.close()

    def close(self) -> None:
        """Leave the unfinished chunk to the tail."""
        super().close()
        self._chunk = None

    def _load(self) -> np.ndarray[Any, Any]:
        """Return the unfinished chunk."""
        if self._chunk is None:
            fill, size = self._fill, self.schema.row_bytes
            self._chunk = chunk = np.empty((self._chunk_rows, *self.schema.row_shape), self.schema.dtype)
            if self._tail >= 0:
                self.live.read_into(self._tail + 8, as_bytes(chunk)[: fill * size])
            else:
                if fill:  # closed in good order before: the last chunk is in the dataset
                    chunk[:fill] = self.dataset[self.rows - fill :]
                    self._opened.unsaved_bytes += fill * size
                self._tail = self._make_tail(8 + chunk.nbytes)
            self._opened.use(self, self.held_bytes)
        return self._chunk

    def _make_tail(self, size: int) -> int:
        name = f"{TAILS}/{self.schema.name}"
        tail = self._file.create_dataset(name, shape=(size,), maxshape=(None,), chunks=(size,), dtype="u1")
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
