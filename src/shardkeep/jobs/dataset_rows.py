"""Rows of an HDF5 dataset, one after the other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import h5py

from shardkeep.errors import SchemaError
from shardkeep.hdf5.locking.damage import refuse_damage
from shardkeep.hdf5.read_errors import reading
from shardkeep.hdf5.sources.source import Source
from shardkeep.hdf5.storage.byte_order import in_stored_order
from shardkeep.hdf5.storage.compression import require_filters
from shardkeep.hdf5.storage.matlab import empty_shape

__all__ = ["pick_dataset", "rows_of"]

_BLOCK_BYTES = 1 << 20


def pick_dataset(source: Source, name: str | None) -> h5py.Dataset:
    """Return the dataset of a name, or the only dataset.

    Raises
    ------
    SchemaError
        The dataset does not exist, or `name` is None and there are several; the message lists them.
    """
    names = source.dataset_names()
    if not names:
        raise SchemaError(f"{source.path}: it has no dataset", path=source.path)
    listed = ", ".join(names)
    if name is None:
        if len(names) != 1:
            raise SchemaError(
                f"{source.path}: pass the name of one of its datasets as dataset=: {listed}", path=source.path
            )
        return source.dataset(names[0])
    if name.lstrip("/") not in names:
        raise SchemaError(f"{source.path}: no dataset {name!r}; it has {listed}", path=source.path)
    return source.dataset(name)


def rows_of(dataset: h5py.Dataset, *, skip: int = 0, limit: int | None = None) -> Iterator[tuple[int, Any]]:
    """Yield the rows of a dataset with their numbers, read in blocks of about a megabyte.

    A dataset without axes has one row, an empty one (null, or an empty array of MATLAB) none. Strings are
    returned as `str`.

    Raises
    ------
    CorruptDataError
        The iteration reached rows that cannot be read.
    MissingExtraError
        The rows are compressed by a filter that is not installed.
    """
    with reading(dataset.file.filename, str(dataset.name).lstrip("/")):
        if empty_shape(dataset.id) is not None:
            return
        shape, itemsize = dataset.shape, dataset.dtype.itemsize
        require_filters(dataset)
    if shape is None:
        return
    if shape == ():
        if skip == 0 and limit != 0:
            yield 0, _read(dataset, ())
        return
    rows = shape[0]
    stop = rows if limit is None else min(rows, skip + limit)
    row_bytes = max(1, itemsize * math.prod(shape[1:]))
    block = max(1, _BLOCK_BYTES // row_bytes)
    for start in range(skip, stop, block):
        values = _read(dataset, slice(start, min(start + block, stop)))
        yield from enumerate(values, start)


def _read(dataset: h5py.Dataset, where: Any) -> Any:
    with reading(dataset.file.filename, str(dataset.name).lstrip("/")):
        if dataset.dtype.hasobject:
            refuse_damage(dataset.file.filename, rows=True)
        if h5py.check_string_dtype(dataset.dtype) is not None:
            return dataset.asstr(errors="backslashreplace")[where]
        return in_stored_order(dataset[where], dataset.dtype)
