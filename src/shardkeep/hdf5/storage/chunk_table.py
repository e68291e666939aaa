"""Addresses of the chunks of a dataset, and the checks that they pass before they are used.

HDF5 reports the address and the size of every chunk (H5Dchunk_iter) and of contiguous rows
(H5Dget_offset). ``preadv`` from there costs a quarter of a read through HDF5. But HDF5 1.14.6 and 2.0.0
report wrong places for an extensible array whose unlimited axis is not the first (also in
H5Dget_chunk_info and H5Dget_chunk_info_by_coord; reads are right). So every table passes through
`ChunkTable.of_dataset`; rows whose table fails are read through HDF5, by value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from shardkeep._core import crc32c

__all__ = ["ChunkTable", "chunks_crc", "contiguous_offset", "read_chunk_table", "table_crc"]


@dataclass(frozen=True)
class ChunkTable:
    """The chunks of a dataset, sorted by position.

    Attributes
    ----------
    offsets : ndarray of int64, shape (chunks, dimensions)
        The first element of each chunk.
    masks : ndarray of uint32, shape (chunks,)
        Filters that were not applied.
    addresses, sizes : ndarray of int64, shape (chunks,)
        In bytes, in the file.
    """

    offsets: npt.NDArray[np.int64]
    masks: npt.NDArray[np.uint32]
    addresses: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]

    @classmethod
    def of_dataset(
        cls,
        offsets: npt.NDArray[np.int64],
        masks: npt.NDArray[np.uint32],
        addresses: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        *,
        shape: tuple[int, ...],
        chunks: tuple[int, ...],
    ) -> ChunkTable | None:
        """Return the table of chunks that were reported in any order; None if the report cannot be right.

        Each chunk must begin at a multiple of the chunk shape and within the shape; no two may begin at the
        same element or share bytes of the file. A chunk that was never written is missing.
        """
        if not len(sizes):
            return cls(offsets, masks, addresses, sizes)
        if ((offsets < 0) | (offsets >= np.array(shape)) | (offsets % np.array(chunks) != 0)).any():
            return None
        if len(sizes) > 1:
            order = np.lexsort(offsets.T[::-1])
            offsets, masks, addresses, sizes = offsets[order], masks[order], addresses[order], sizes[order]
            if (offsets[1:] == offsets[:-1]).all(axis=1).any():
                return None
        by_address = np.argsort(addresses, kind="stable")
        if addresses[by_address[0]] < 0 or (sizes < 0).any():
            return None
        ends = addresses[by_address] + sizes[by_address]
        if (ends[:-1] > addresses[by_address][1:]).any():
            return None
        return cls(offsets, masks, addresses, sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    def range_of(self, start: int, stop: int) -> tuple[int, int]:
        """Return the range ``[first, last)`` of the chunks that begin in rows ``[start, stop)``."""
        first, last = np.searchsorted(self.offsets[:, 0], [start, stop])
        return int(first), int(last)

    def between(self, start: int, stop: int) -> ChunkTable:
        """Return the chunks that begin in rows ``[start, stop)``, counted from `start`."""
        first, last = self.range_of(start, stop)
        offsets = self.offsets[first:last].copy()
        offsets[:, 0] -= start
        where = slice(first, last)
        return ChunkTable(offsets, self.masks[where], self.addresses[where], self.sizes[where])

    def part(self, first: int, last: int) -> ChunkTable:
        """Return chunks ``[first, last)``."""
        where = slice(first, last)
        return ChunkTable(self.offsets[where], self.masks[where], self.addresses[where], self.sizes[where])

    def rows_in_order(self, rows: int, chunk_rows: int) -> bool:
        """Return whether each chunk has rows of full width and no chunk is missing."""
        # First the number: the shape of a damaged file would make an array of any size.
        if len(self) != -(-rows // chunk_rows):
            return False
        return bool((self.offsets[:, 0] == np.arange(0, rows, chunk_rows)).all())


def read_chunk_table(item: Any) -> ChunkTable | None:
    """Return the table of an open dataset (its low-level id); None if HDF5 does not report a right one."""
    properties = item.get_create_plist()
    shape = item.shape
    if properties.get_layout() != h5py.h5d.CHUNKED or _is_misreported(item, shape):
        return None
    found: list[Any] = []
    item.chunk_iter(found.append)
    try:
        offsets = np.array([info.chunk_offset for info in found], np.int64).reshape(-1, len(shape))
        numbers = np.array([info[1:] for info in found], np.int64).reshape(-1, 3)
    except OverflowError:
        return None  # addresses beyond all files: HDF5 reports the error when it reads there
    if int(numbers[:, 2].sum()) != item.get_storage_size():
        return None
    return ChunkTable.of_dataset(
        offsets,
        numbers[:, 0].astype(np.uint32),
        numbers[:, 1],
        numbers[:, 2],
        shape=shape,
        chunks=tuple(properties.get_chunk()),
    )


def _is_misreported(item: Any, shape: tuple[int, ...]) -> bool:
    """Return whether the index may be an extensible array with swapped axes, which HDF5 reports wrongly.

    Where only some chunks were written, all wrong offsets may lie within the shape, where no check finds
    them.
    """
    if len(shape) < 2:
        return False
    limits = item.get_space().get_simple_extent_dims(maxdims=True)
    unlimited = [axis for axis, limit in enumerate(limits) if limit == h5py.h5s.UNLIMITED]
    return len(unlimited) == 1 and unlimited[0] > 0


def contiguous_offset(item: Any) -> int | None:
    """Return the byte offset of the rows of an open contiguous dataset; None if none were written.

    HDF5 reports an offset of rows that were never written, too, if the file has a user block.
    """
    if item.get_space_status() != h5py.h5d.SPACE_STATUS_ALLOCATED:
        return None
    offset: int | None = item.get_offset()
    return offset


def chunks_crc(dataset: h5py.Dataset) -> int | None:
    """Return the hash of all chunks of an open dataset, as they are stored; None if it has none."""
    dataset.flush()  # each chunk has its place and size only then
    table = read_chunk_table(dataset.id)
    if table is None or not len(table):
        return None
    crcs = [crc32c(dataset.id.read_direct_chunk(tuple(offset))[1]) for offset in table.offsets.tolist()]
    return table_crc(table, crcs)


def table_crc(table: ChunkTable, crcs: list[int]) -> int:
    """Return one hash of chunks: their places, filter masks, sizes and the CRC32C of each."""
    dimensions = table.offsets.shape[1]
    rows = np.empty((len(table), dimensions + 3), "<i8")
    rows[:, :dimensions] = table.offsets
    rows[:, dimensions], rows[:, dimensions + 1], rows[:, dimensions + 2] = table.masks, table.sizes, crcs
    return crc32c(rows.reshape(-1).view(np.uint8))
