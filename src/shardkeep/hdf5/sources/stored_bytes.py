"""Reading of all bytes of datasets and attributes, with their types in the file as the types in memory.

HDF5 then converts nothing. It follows every structure and applies every filter, also for values for which
NumPy or h5py has no type. Values of variable length are read and freed by h5py; only their lengths and
addresses are in the array.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import h5py
import numpy as np

from shardkeep.errors import MissingExtraError
from shardkeep.hdf5.sources.raw_file import RawFile
from shardkeep.hdf5.storage.chunk_table import read_chunk_table
from shardkeep.hdf5.storage.compression import missing_filter
from shardkeep.hdf5.storage.layout import blocks_of

__all__ = ["read_attribute_bytes", "read_chunk_bytes", "read_row_bytes", "unreadable_filter"]


def read_attribute_bytes(attribute: h5py.h5a.AttrID) -> None:
    """Read the value of an attribute; errors are those of HDF5."""
    space = attribute.get_space()
    if space.get_simple_extent_type() != h5py.h5s.NULL:
        kind = attribute.get_type()
        attribute.read(np.empty(space.shape, f"V{kind.get_size()}"), kind)


def read_row_bytes(item: h5py.h5d.DatasetID) -> Iterator[int]:
    """Read a dataset, and yield the number of bytes of each part.

    Of a dataset of which fewer than half of the chunks are stored, only those are read. Errors are those of
    HDF5.
    """
    space = item.get_space()
    if space.get_simple_extent_type() == h5py.h5s.NULL:
        return
    kind = item.get_type()
    size_bytes, shape = kind.get_size(), space.shape
    if not shape:
        item.read(h5py.h5s.ALL, h5py.h5s.ALL, np.empty((), f"V{size_bytes}"), kind)
        yield size_bytes
        return
    if not item.get_storage_size() and not item.get_create_plist().get_external_count():
        return
    for start, count in _parts(item, shape, size_bytes):
        space.select_hyperslab(start, count)
        rows = np.empty(count, f"V{size_bytes}")
        item.read(h5py.h5s.create_simple(count), space, rows, kind)
        yield rows.nbytes


def unreadable_filter(item: h5py.h5d.DatasetID, path: str, name: str) -> MissingExtraError | None:
    """Return the error for a filter of stored chunks that is not installed; None if there is none."""
    properties = item.get_create_plist()
    for position in range(properties.get_nfilters()):
        code, _, _, label = properties.get_filter(position)
        error = missing_filter(code, label.decode(errors="replace"), name, path)
        if error is None:
            continue
        table = read_chunk_table(item)
        # A filter may be omitted for a chunk, which its mask shows.
        if table is None or (table.masks & 1 << position == 0).any():
            return error
    return None


def read_chunk_bytes(item: h5py.h5d.DatasetID, path: str) -> int:
    """Read the chunks of a dataset as they are stored; return their size in bytes.

    Raises
    ------
    CorruptDataError
        A chunk is beyond the end of the file.
    """
    table = read_chunk_table(item)
    if table is None:
        return 0
    with open(path, "rb", buffering=0) as file:
        RawFile(file.fileno(), path, os.fstat(file.fileno()).st_size).crcs(table)
    return int(table.sizes.sum())


def _parts(
    item: h5py.h5d.DatasetID, shape: tuple[int, ...], size_bytes: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    properties = item.get_create_plist()
    chunks: tuple[int, ...] = (1,) * len(shape)
    if properties.get_layout() == h5py.h5d.CHUNKED:
        chunks = tuple(
            min(chunk, size) or 1 for chunk, size in zip(properties.get_chunk(), shape, strict=True)
        )
        grid = np.prod([-(-size // chunk) for size, chunk in zip(shape, chunks, strict=True)], dtype=object)
        table = read_chunk_table(item) if item.get_num_chunks() < grid / 2 else None
        if table is not None:
            for place in table.offsets.tolist():
                ends = zip(place, chunks, shape, strict=True)
                yield tuple(place), tuple(min(size, end - start) for start, size, end in ends)
            return
    yield from blocks_of(shape, size_bytes, chunks)
