"""The rows of a source, block by block, and whether they are those of its commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import h5py
import numpy as np

from shardkeep.errors import CorruptDataError
from shardkeep.hdf5.locking.damage import refuse_damage
from shardkeep.hdf5.read_errors import reading
from shardkeep.hdf5.sources.source import Source
from shardkeep.hdf5.storage.byte_order import in_stored_order
from shardkeep.hdf5.storage.compression import require_filters
from shardkeep.hdf5.storage.content_hash import content_crc

__all__ = ["blocks", "check_content", "not_as_committed"]

_BLOCK_BYTES = 4 * 1024 * 1024


def blocks(
    dataset: h5py.Dataset, start: int, stop: int, read: Callable[[slice], Any] | None = None
) -> Iterator[np.ndarray[Any, Any]]:
    """Give rows ``[start, stop)`` in pieces of about 4 MiB, whole chunks where there are chunks.

    `read` gives them, if not the dataset itself.

    Raises
    ------
    MissingExtraError
        They are compressed by a filter that HDF5 does not have here.
    """
    require_filters(dataset)
    dtype = dataset.dtype
    if dtype.hasobject and read is None:
        refuse_damage(dataset.file.filename, rows=True)
    row_bytes = max(1, dtype.itemsize * int(np.prod(dataset.shape[1:], dtype=np.int64)))
    step = max(1, _BLOCK_BYTES // row_bytes)
    if dataset.chunks is not None:
        step = max(dataset.chunks[0], step // dataset.chunks[0] * dataset.chunks[0])
    while start < stop:
        end = min(stop, (start // step + 1) * step)
        rows = dataset[start:end] if read is None else read(slice(start, end))
        yield in_stored_order(rows, dtype) if dtype.hasobject else rows
        start = end


def check_content(source: Source, name: str, crc32c: str) -> None:
    """Read all rows of a dataset.

    Raises
    ------
    CorruptDataError
        They cannot be read, or do not have that hash.
    """
    dataset = source.dataset(name)
    crc = 0
    with reading(source.path, name):
        for rows in blocks(dataset, 0, dataset.shape[0] if dataset.shape else 0):
            crc = content_crc(rows, crc)
    if f"{crc:08x}" != crc32c:
        raise not_as_committed(source.path, name)


def not_as_committed(path: str, name: str, what: str = "rows of") -> CorruptDataError:
    """Return the error for rows, or the value, that do not have the hash of their commit."""
    are = "are not those" if what == "rows of" else "is not that"
    message = f"{what} {name!r} in {path!r} {are} of its commit"
    return CorruptDataError(f"{message}: the file is damaged, restore it from a copy", path=path)
