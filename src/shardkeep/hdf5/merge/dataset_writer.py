"""Rows and chunks of one dataset, written into the result in their order.

Fixed text of the rows has the bytes that it has in a file of the result's type
(`shardkeep.hdf5.storage.exact_values`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from shardkeep.files.temporary_file import TemporaryFile
from shardkeep.hdf5.merge.plan import DatasetPlan
from shardkeep.hdf5.storage.chunk_table import ChunkTable
from shardkeep.hdf5.storage.content_hash import as_bytes
from shardkeep.hdf5.storage.exact_values import as_read, converts_text, memory_type
from shardkeep.hdf5.storage.layout import Layout, chunk_rows_of, create_dataset, read_layout, write_rows
from shardkeep.hdf5.storage.row_writer import fill_chunk

__all__ = ["DatasetWriter"]


class DatasetWriter:
    """Writer of one dataset; whole chunks, or blocks of 512 KiB, are written as they fill.

    Attributes
    ----------
    row : int
        Number of rows that are written, without those of the chunk that is being filled.
    """

    def __init__(self, file: h5py.File, plan: DatasetPlan, temporary: TemporaryFile) -> None:
        self.plan = plan
        self._temporary = temporary
        self.dataset = create_dataset(file, plan.name, plan.layout, (plan.rows, *plan.row_shape))
        # As HDF5 made it: some filters change their parameters to suit the dataset.
        self._layout = read_layout(self.dataset)
        chunks = plan.layout.chunks
        self.chunk_rows = chunks[0] if chunks is not None else 1
        self._block_rows = self.chunk_rows
        if not plan.layout.filters:
            # Many small chunks at once.
            rows = min(chunk_rows_of(plan.dtype, plan.row_shape), max(1, plan.rows))
            self._block_rows *= max(1, rows // self.chunk_rows)
        kind = self.dataset.id.get_type()
        self._direct = (
            chunks is not None
            and chunks == (self._block_rows, *plan.row_shape)
            and not plan.layout.filters
            and not plan.dtype.hasobject
            and bool(h5py.h5t.py_create(plan.dtype, logical=True).equal(kind))
        )
        # Text of the plan has the bytes that it has in a file of this type.
        self._converts = converts_text(kind)
        exact = self._converts or plan.dtype.subdtype is not None
        self._kind = memory_type(kind, plan.dtype) if exact else None
        self._waiting: np.ndarray[Any, Any] | None = None
        self._fill = 0
        self.row = 0

    def as_read(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return rows of this dataset as h5py reads them."""
        return as_read(rows, self.dataset.id.get_type(), self.plan.dtype) if self._converts else rows

    @property
    def aligned(self) -> bool:
        """Whether the next row begins a chunk."""
        return self._fill == 0 and self.row % self.chunk_rows == 0

    def takes_chunks_of(self, layout: Layout) -> bool:
        """Return whether chunks of this layout can be copied as they are."""
        return bool(self._layout.filters) and self._layout.obstacle_to_chunk_copy(layout) is None

    def add_rows(self, rows: np.ndarray[Any, Any]) -> None:
        """Add rows; the array may be used again afterwards."""
        if self._waiting is None:
            self._waiting = np.empty((self._block_rows, *self.plan.row_shape), self.plan.dtype)
        self._fill = fill_chunk(self._waiting, self._fill, rows, self._write)

    def add_chunk(self, offset: Sequence[int], mask: int, data: Any) -> None:
        """Write a compressed chunk as it is; its offset is relative to `row`."""
        self.dataset.id.write_direct_chunk((self.row + offset[0], *offset[1:]), data, mask)

    def allocate_chunks(self, table: ChunkTable) -> npt.NDArray[np.int64] | None:
        """Have HDF5 allocate chunks without writing their bytes; return their addresses in the result.

        None if these cannot be found: then the chunks must be written by `add_chunk`. Offsets are relative
        to `row`.
        """
        if not len(table):
            return np.empty(0, np.int64)
        room = np.empty(int(table.sizes.max()), np.uint8)
        offsets = (table.offsets + np.array([self.row, *[0] * (table.offsets.shape[1] - 1)])).tolist()
        write = self.dataset.id.write_direct_chunk
        with self._temporary.placing(room) as placed:
            for offset, size, mask in zip(offsets, table.sizes.tolist(), table.masks.tolist(), strict=True):
                write(tuple(offset), room[:size], mask)
        return np.array(placed, np.int64) if len(placed) == len(table) else None

    def finish(self) -> None:
        """Write the rows of the last, incomplete chunk."""
        if self._fill and self._waiting is not None:
            write_rows(self.dataset, self.row, self._waiting[: self._fill], self._kind)
            self.row += self._fill
        self._waiting = None

    def _write(self, rows: np.ndarray[Any, Any]) -> None:
        if self._direct:
            self.dataset.id.write_direct_chunk((self.row, *(0 for _ in self.plan.row_shape)), as_bytes(rows))
        else:
            write_rows(self.dataset, self.row, rows, self._kind)
        self.row += len(rows)
