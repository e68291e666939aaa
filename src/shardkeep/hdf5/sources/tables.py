"""Tables that Shardkeep adds to a merged file, each with the CRC32C of its rows.

The attribute ``crc32c`` of a table is `shardkeep.hdf5.storage.content_hash.content_crc` of all rows. Tables
of older files have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import h5py
import numpy as np

from shardkeep.errors import CorruptDataError
from shardkeep.hdf5.read_errors import reading
from shardkeep.hdf5.sources.source import rows_crc

__all__ = ["check_table", "create_table", "seal_table", "text_dtype"]

_CRC = "crc32c"


def create_table(file: h5py.File, name: str, table: np.ndarray[Any, Any]) -> h5py.Dataset:
    """Create a dataset of a table, compressed if it is not small."""
    options: dict[str, Any] = {}
    if len(table) > 100:
        options = {"chunks": (min(len(table), 4096),), "maxshape": (None,)}
        options |= {"compression": "gzip", "compression_opts": 1, "shuffle": True}
    return file.create_dataset(name, data=table, **options)


def text_dtype(values: Sequence[bytes]) -> np.dtype[Any]:
    """Return a type of fixed-length UTF-8 text that holds all values."""
    dtype: np.dtype[Any] = h5py.string_dtype("utf-8", max((len(value) for value in values), default=1) or 1)
    return dtype


def seal_table(dataset: h5py.Dataset, rows_crc: int) -> None:
    """Store the checksum of its rows in a table."""
    dataset.attrs[_CRC] = np.uint32(rows_crc)


def check_table(file: h5py.File, name: str, path: str) -> None:
    """Raise a `CorruptDataError` if a table of an open file does not have its stored checksum."""
    with reading(path, name, "table"):
        dataset = file.get(name)
        if not isinstance(dataset, h5py.Dataset) or _CRC not in dataset.attrs:
            return
        crc = rows_crc(dataset, 0, dataset.shape[0] if dataset.shape else 0)
        stored = dataset.attrs[_CRC]
    if not np.array_equal(stored, crc):
        message = f"{name!r} of {path!r} is damaged (its checksum differs)"
        raise CorruptDataError(f"{message}: merge again, or restore the file from a copy", path=path)
