"""How a declared dataset is made, and whether its filters work."""

from __future__ import annotations

import functools

import h5py
import numpy as np

from shardkeep.collector.protocol.schema import FilterSpec, Schema
from shardkeep.errors import SchemaError
from shardkeep.hdf5.locking.guard_exemption import exempt
from shardkeep.hdf5.storage.compression import require_filter
from shardkeep.hdf5.storage.layout import Layout, create_dataset

__all__ = ["chunk_shape", "create", "try_filters"]

_TRIAL_BYTES = 1 << 20
# Those of `compression_filters`, and the checksum of HDF5 itself.
_KNOWN = {
    h5py.h5z.FILTER_DEFLATE,
    h5py.h5z.FILTER_SHUFFLE,
    h5py.h5z.FILTER_FLETCHER32,
    h5py.h5z.FILTER_LZF,
    32015,  # zstd
    32026,  # blosc2
}
_MOST_PARAMETERS = 16


def chunk_shape(wanted: Schema) -> tuple[int, ...]:
    """Return the shape of the chunks that a dataset is made with."""
    if wanted.rows is None and 0 in wanted.row_shape:
        return 1024, *(max(size, 1) for size in wanted.row_shape)
    chunk_rows = wanted.chunk_rows if wanted.rows is None else max(min(wanted.chunk_rows, wanted.rows), 1)
    return chunk_rows, *wanted.row_shape


def create(file: h5py.File, wanted: Schema) -> h5py.Dataset:
    """Create a dataset as it was declared; whatever HDF5 and h5py raise."""
    code = h5py.h5t.py_create(wanted.dtype, logical=True).encode()
    if wanted.rows is None and 0 in wanted.row_shape:
        shape = (0, *wanted.row_shape)
        limits = (None,) * len(shape)
        return file.create_dataset(
            wanted.name, shape=shape, maxshape=limits, chunks=chunk_shape(wanted), dtype=wanted.dtype
        )
    layout = Layout(code, chunk_shape(wanted), wanted.filters, b"", not wanted.dtype.hasobject)
    return create_dataset(file, wanted.name, layout, (wanted.rows or 0, *wanted.row_shape), wanted.dtype)


def try_filters(wanted: Schema) -> None:
    """Write a chunk in memory through the filters: parameters that make no sense show there and not before.

    Raises
    ------
    MissingExtraError
        HDF5 does not have one of them here; it would leave it out without a word.
    SchemaError
        It is none of those that Shardkeep compresses with: parameters of others may crash the process.
    OSError, RuntimeError, ValueError
        As HDF5 says it.
    """
    for code, _, values in wanted.filters:
        if code not in _KNOWN:
            raise SchemaError(f"dataset {wanted.name!r}: filter {code} is not used here: choose another")
        if len(values) > _MOST_PARAMETERS or max(values, default=0) >= 1 << 32:
            raise SchemaError(f"dataset {wanted.name!r}: filter {code} has no such parameters")
        require_filter(wanted.name, code)
    if wanted.filters and wanted.row_bytes:
        rows = max(min(wanted.chunk_rows, _TRIAL_BYTES // wanted.row_bytes), 1)
        _try(
            wanted.filters, h5py.h5t.py_create(wanted.dtype, logical=True).encode(), (rows, *wanted.row_shape)
        )


@functools.lru_cache(maxsize=64)
def _try(filters: tuple[FilterSpec, ...], type_code: bytes, chunk: tuple[int, ...]) -> None:
    dtype = h5py.h5t.decode(type_code).dtype
    with exempt(), h5py.File("trial", "w", driver="core", backing_store=False, rdcc_nbytes=0) as file:
        dataset = create_dataset(file, "x", Layout(type_code, chunk, filters, b"", True), chunk, dtype)
        dataset[...] = np.zeros(chunk, dtype)
        file.flush()
