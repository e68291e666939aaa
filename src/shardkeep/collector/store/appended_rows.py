"""Datasets that rows are appended to, one class for each way of a row into its chunk."""

from __future__ import annotations

import math
from typing import Any

import h5py
import numpy as np

from shardkeep.collector.protocol.payload import TEXT_BYTES, decode_rows, texts_in
from shardkeep.collector.protocol.schema import Schema
from shardkeep.collector.protocol.slots import SLOT_BYTES
from shardkeep.collector.store.datasets import (
    OPEN_BYTES,
    OpenDatasets,
    StoredDataset,
    allocate_chunk,
    chunk_address,
)
from shardkeep.errors import CollectorError
from shardkeep.hdf5.journal.live_file import LiveFile
from shardkeep.hdf5.storage.compression import require_filters
from shardkeep.hdf5.storage.content_hash import as_bytes
from shardkeep.hdf5.storage.layout import write_rows

__all__ = ["TAILS", "AppendedRows", "CompressedRows", "FixedRows", "TextRows"]

TAILS = "_collector/tails"


class AppendedRows(StoredDataset):
    """A dataset that grows by the rows that are appended."""

    def __init__(self, live: LiveFile, dataset: h5py.Dataset, schema: Schema, opened: OpenDatasets) -> None:
        super().__init__(live, dataset, schema, opened)
        # Asking HDF5 for these costs more than writing a batch.
        self._extent = self.rows
        self._row_shape = dataset.shape[1:]

    def append(self, data: memoryview, rows: int) -> None:
        """Append rows.

        Raises
        ------
        CollectorError
            The bytes are not that many rows; nothing was appended.
        DurabilityError
            The rows could not be written, and the file has to be abandoned.
        """
        raise NotImplementedError

    def _extend(self, rows: int) -> None:
        # Only ever longer: HDF5 would fill what is cut off with zeros, through its own buffers.
        if rows > self._extent:
            self.dataset.id.set_extent((rows, *self._row_shape))
            self._extent = rows


class FixedRows(AppendedRows):
    """Uncompressed rows of fixed size: each byte is written once, at its final offset in the file."""

    def __init__(self, live: LiveFile, dataset: h5py.Dataset, schema: Schema, opened: OpenDatasets) -> None:
        super().__init__(live, dataset, schema, opened)
        # Attributes, since a batch of small rows takes as long as reading a few of them from the schema.
        self._row_bytes, self._chunk_rows = schema.row_bytes, schema.chunk_rows
        self._corner = (0,) * len(schema.row_shape)
        self._address = -1
        if self.rows % self._chunk_rows and self._row_bytes:
            self._address = chunk_address(dataset, self.rows)

    def append(self, data: memoryview, rows: int) -> None:
        """Write rows into the last chunk, and into new ones."""
        self._check_size(data, rows)
        size = self._row_bytes
        if not size:
            self.rows += rows
            return
        done = 0
        while done < rows:
            inside = self.rows % self._chunk_rows
            if inside == 0:
                self._address = self._new_chunk()
            count = min(rows - done, self._chunk_rows - inside)
            self.live.write_rows(self._address + inside * size, data[done * size : (done + count) * size])
            self.rows += count
            done += count

    def prepare_commit(self) -> None:
        """Extend the dataset to its rows."""
        self._extend(self.rows)

    def _new_chunk(self) -> int:
        # As `allocate_chunk`, without the shape: to ask HDF5 for it takes half of the time.
        self._extend(self.rows + 1)
        one, place = self.dataset.id, (self.rows, *self._corner)
        size = self._chunk_rows * self._row_bytes
        return self.live.allocate(lambda data: one.write_direct_chunk(place, data), size)


class TextRows(AppendedRows):
    """Rows with text, which HDF5 stores outside of the chunks: collected, and written by HDF5."""

    def __init__(self, live: LiveFile, dataset: h5py.Dataset, schema: Schema, opened: OpenDatasets) -> None:
        super().__init__(live, dataset, schema, opened)
        self._buffer: list[np.ndarray[Any, Any]] = []
        self._bytes = 0
        self._text_bytes = TEXT_BYTES * texts_in(schema.dtype) * math.prod(schema.row_shape)

    @property
    def held_bytes(self) -> int:
        """Memory of the buffered rows, and of the open dataset."""
        return OPEN_BYTES + self._bytes

    def append(self, data: memoryview, rows: int) -> None:
        """Buffer rows; HDF5 writes them a megabyte at a time."""
        if rows > 1 and len(data) > SLOT_BYTES:
            raise CollectorError(f"{len(data)} bytes of text in one part: {SLOT_BYTES} are allowed")
        self._buffer.append(decode_rows(data, rows, self.schema.dtype, self.schema.row_shape))
        size = len(data) + rows * self._text_bytes
        self._bytes += size
        self._opened.unsaved_bytes += size
        self.rows += rows
        if self._bytes > 1 << 20:
            self.prepare_commit()
        self._opened.use(self, self.held_bytes)

    def prepare_commit(self) -> None:
        """Write the buffered rows with HDF5."""
        if self._buffer:
            array = np.concatenate(self._buffer)
            self._opened.unsaved_bytes -= self._bytes
            self._buffer, self._bytes = [], 0
            self._extend(self.rows)
            write_rows(self.dataset, self.rows - len(array), array)


class CompressedRows(AppendedRows):
    """Compressed rows: HDF5 writes complete chunks; the rows of an unfinished chunk are kept in a tail.

    The dataset shows complete chunks while the collector runs, and every row after it has ended. The tail is
    a dataset of bytes, created with the first rows: the number of all rows (u64), and the rows of the
    unfinished chunk. Only the tail has these rows while the dataset is closed.
    """

    def __init__(self, live: LiveFile, dataset: h5py.Dataset, schema: Schema, opened: OpenDatasets) -> None:
        super().__init__(live, dataset, schema, opened)
        require_filters(dataset)
        self._chunk_rows = schema.chunk_rows
        self._chunk: np.ndarray[Any, Any] | None = None
        self._saved = 0
        self._tail = -1
        self._tail_name = f"{TAILS}/{schema.name}"
        if self._tail_name in self._file:
            self._tail = chunk_address(self._file[self._tail_name], 0)
            self.rows = int.from_bytes(live.read_at(self._tail, 8), "little")
            self._saved = self._fill

    @property
    def held_bytes(self) -> int:
        """Memory of the unfinished chunk, and of the open dataset."""
        return OPEN_BYTES + (0 if self._chunk is None else self._chunk.nbytes)

    @property
    def _fill(self) -> int:
        return self.rows % self._chunk_rows

    def append(self, data: memoryview, rows: int) -> None:
        """Copy rows into the unfinished chunk; HDF5 writes it when it is full."""
        self._check_size(data, rows)
        if not rows:
            return
        size = self.schema.row_bytes
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

    def prepare_commit(self) -> None:
        """Save the new rows of the unfinished chunk, and the number of all rows, in the tail."""
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
        """Write the unfinished chunk with HDF5 as well."""
        fill = self._fill
        if fill and self._extent < self.rows:
            chunk = self._load()
            self._extend(self.rows)
            self.dataset[self.rows - fill : self.rows] = chunk[:fill]
            self._opened.remove(self)
            self.close()

    def close(self) -> None:
        """Release the memory; the unfinished chunk is in the tail."""
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
                if fill:  # the file was closed properly before: the last chunk is in the dataset
                    chunk[:fill] = self.dataset[self.rows - fill :]
                    self._opened.unsaved_bytes += fill * size
                self._tail = self._create_tail(8 + chunk.nbytes)
            self._opened.use(self, self.held_bytes)
        return self._chunk

    def _create_tail(self, size: int) -> int:
        tail = self._file.create_dataset(
            self._tail_name, shape=(size,), maxshape=(None,), chunks=(size,), dtype="u1"
        )
        return allocate_chunk(self.live, tail, 0, size)
