"""Where the rows of a damaged dataset are: as HDF5 reports it, or as its metadata say without HDF5."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import h5py
import numpy as np

from shardkeep.hdf5.read_errors import first_line
from shardkeep.hdf5.storage.chunk_table import ChunkTable, contiguous_offset, read_chunk_table
from shardkeep.jobs.salvage.hdf5.attributes import referring
from shardkeep.jobs.salvage.hdf5.global_heaps import GlobalHeaps
from shardkeep.jobs.salvage.hdf5.patched_file import PatchedFile
from shardkeep.jobs.salvage.hdf5.stored_chunk import DamagedChunkError

__all__ = ["Hdf5Rows", "LostChunks", "RawRows", "References", "StoredChunk"]

# A damaged shape may have more chunks than the file has bytes.
_MOST_CHUNKS = 1 << 22
# H5Fio.c
_OVERFLOW = "addr overflow"
_CHECKED, _CONFLICT, _BEYOND = 0, 3, 4


class StoredChunk(NamedTuple):
    """A chunk that an index names."""

    start: tuple[int, ...]
    offset_bytes: int
    size_bytes: int
    mask: int = 0
    is_checked: bool = True
    obstacle: str = ""


class LostChunks(NamedTuple):
    """Places of chunks whose part of the index is lost; None for all places."""

    start: tuple[int, ...] | None


class Hdf5Rows:
    """Rows of a dataset that HDF5 opened."""

    def __init__(self, item: Any) -> None:
        self._item = item
        self._space = item.get_space()
        self._shape: tuple[int, ...] = self._space.shape

    def address(self) -> int | None:
        """Return the offset in the file of contiguous rows; None if none were written."""
        return contiguous_offset(self._item)

    def value(self, kind: Any) -> Any:
        """Return the rows of a compact dataset."""
        rows = np.empty(self._shape, f"V{kind.get_size()}")
        self._item.read(h5py.h5s.ALL, h5py.h5s.ALL, rows, kind)
        return rows

    def table(self) -> ChunkTable | None:
        """Return the chunks that HDF5 reports; None if the index is damaged, or not reported right."""
        try:
            return read_chunk_table(self._item)
        except (OSError, RuntimeError, ValueError, OverflowError):
            return None

    def chunks(self, chunk: tuple[int, ...]) -> Iterator[StoredChunk | LostChunks]:
        """Yield all chunks that the index names, and the places where it is damaged."""
        table = self.table()
        if table is not None:
            yield from _of_table(table)
            return
        places = grid(self._shape, chunk)
        if places is None:
            yield LostChunks(None)
            return
        for start in places:
            try:
                info = self._item.get_chunk_info_by_coord(start)
            except (OSError, RuntimeError, ValueError, OverflowError):
                yield LostChunks(start)
                continue
            if info.byte_offset is not None:
                yield StoredChunk(start, info.byte_offset, info.size)

    def read(self, chunk: StoredChunk) -> tuple[int, bytes]:
        """Return the filter mask and the bytes of a chunk."""
        try:
            mask, stored = self._item.read_direct_chunk(chunk.start)
        except (OSError, RuntimeError, MemoryError) as error:
            reason = first_line(error)
            if _OVERFLOW in reason:
                raise DamagedChunkError("the file ends before its end") from error
            raise DamagedChunkError(f"HDF5 cannot read it ({reason})") from error
        return mask, stored

    def values(self, start: tuple[int, ...], count: tuple[int, ...], decoded: bytes | None) -> Any:
        """Return values of variable length."""
        del decoded
        dtype = self._item.dtype
        values = np.empty(count, dtype)
        memory = h5py.h5t.py_create(dtype)
        if not count:
            self._item.read(h5py.h5s.ALL, h5py.h5s.ALL, values, memory)
            return values
        space = self._item.get_space()
        space.select_hyperslab(start, count)
        self._item.read(h5py.h5s.create_simple(count), space, values, memory)
        return values


class References(Hdf5Rows):
    """References to objects, as references to the copies of these objects.

    Parameters
    ----------
    item : DatasetID
    refer : callable
        As in `shardkeep.jobs.salvage.hdf5.attributes.copy_attributes`.
    """

    def __init__(self, item: Any, refer: Callable[[Any], Any]) -> None:
        super().__init__(item)
        self._refer = refer

    def values(self, start: tuple[int, ...], count: tuple[int, ...], decoded: bytes | None) -> Any:
        """Return the references of a block; raise if one leads to an object that is lost."""
        return referring(super().values(start, count, decoded), self._refer)


class RawRows:
    """Rows of a dataset that HDF5 does not open, from its messages.

    Parameters
    ----------
    dataset : Hdf5Dataset
        Of `shardkeep._core.hdf5_salvage`.
    kind : TypeID
    raw : PatchedFile
    heaps : GlobalHeaps
    index : Hdf5Rows, optional
        The same rows as HDF5 reads them, if checksums cover the index of chunks: HDF5 has checked it.
    """

    def __init__(
        self, dataset: Any, kind: Any, raw: PatchedFile, heaps: GlobalHeaps, index: Hdf5Rows | None = None
    ) -> None:
        self._dataset, self._kind, self._raw, self._heaps = dataset, kind, raw, heaps
        self._index = index
        self._shape = dataset.shape or ()

    def address(self) -> int | None:
        """Return the offset in the file of contiguous rows; None if none were written."""
        extent = self._dataset.extent
        return None if extent is None else extent[0]

    def value(self, kind: Any) -> Any:
        """Return the rows of a compact dataset."""
        return np.frombuffer(self._dataset.value, f"V{kind.get_size()}").reshape(self._shape)

    def chunks(self, chunk: tuple[int, ...]) -> Iterator[StoredChunk | LostChunks]:
        """Yield all chunks that were found, and the places where the index is lost."""
        table = None if self._index is None else self._index.table()
        if table is not None:
            yield from _of_table(table)
            return
        # From here on without HDF5.
        self._index = None
        starts, offsets, sizes, masks, proofs = (one.tolist() for one in self._dataset.chunks)
        found: dict[tuple[int, ...], StoredChunk] = {}
        for start, offset, size, mask, proof in zip(starts, offsets, sizes, masks, proofs, strict=True):
            obstacle = ""
            if proof == _CONFLICT:
                obstacle = "its index entry contradicts other metadata"
            elif proof == _BEYOND:
                obstacle = "the file ends before its end"
            one = StoredChunk(tuple(start), offset, size, mask, proof == _CHECKED, obstacle)
            if one.start in found:
                one = one._replace(obstacle="the index names it twice")
            found[one.start] = one
        lost = self._dataset.lost_places
        places = grid(self._shape, chunk) if lost else None
        if lost and places is None:
            yield LostChunks(None)
            return
        if places is None:
            yield from (found[start] for start in sorted(found))
            return
        for start in places:
            if start in found:
                yield found[start]
            elif any(
                (first is None or start >= first) and (end is None or start < end) for _, first, end in lost
            ):
                yield LostChunks(start)

    def read(self, chunk: StoredChunk) -> tuple[int, bytes]:
        """Return the filter mask and the bytes of a chunk."""
        if self._index is not None:
            return self._index.read(chunk)
        stored = self._raw.read_at(chunk.offset_bytes, chunk.size_bytes)
        if len(stored) < chunk.size_bytes:
            raise DamagedChunkError("the file ends before its end")
        return chunk.mask, stored

    def values(self, start: tuple[int, ...], count: tuple[int, ...], decoded: bytes | None) -> Any:
        """Return values of variable length, from the stored bytes of their block."""
        if decoded is None:
            decoded = self._dataset.value
        return self._heaps.values(self._kind, decoded, count)


def _of_table(table: ChunkTable) -> Iterator[StoredChunk]:
    columns = (table.offsets, table.addresses, table.sizes)
    for start, address, size in zip(*(one.tolist() for one in columns), strict=True):
        yield StoredChunk(tuple(start), address, size)


def grid(shape: tuple[int, ...], chunk: tuple[int, ...]) -> Iterator[tuple[int, ...]] | None:
    """Return the first elements of all chunks of a dataset; None if they are too many."""
    axes = [range(0, size, one) for size, one in zip(shape, chunk, strict=True)]
    if int(np.prod([len(axis) for axis in axes], dtype=object)) > _MOST_CHUNKS:
        return None
    return itertools.product(*axes)
