"""The CRC32C of a table of a merged file, in its attribute ``crc32c``.

It is `shardkeep.hdf5.storage.rows.content_crc` of all rows. Tables of older files have none.
"""

from __future__ import annotations

import h5py
import numpy as np

from shardkeep.errors import CorruptDataError
from shardkeep.hdf5.read_errors import first_line
from shardkeep.hdf5.sources.source_rows import blocks
from shardkeep.hdf5.storage.content_hash import content_crc

__all__ = ["CRC", "check_table", "seal_table"]

CRC = "crc32c"


def seal_table(dataset: h5py.Dataset, rows_crc: int) -> None:
    """Put the checksum of its rows into a table."""
    dataset.attrs[CRC] = np.uint32(rows_crc)


def check_table(file: h5py.File, name: str, path: str) -> None:
    """Raise a `CorruptDataError` if a table of an open file does not have the checksum that it carries."""
    try:
        dataset = file.get(name)
        if not isinstance(dataset, h5py.Dataset) or CRC not in dataset.attrs:
            return
        crc = 0
        for rows in blocks(dataset, 0, dataset.shape[0]):
            crc = content_crc(rows, crc)
        reason = None if dataset.attrs[CRC] == crc else "its checksum differs"
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OSError, RuntimeError) as error:
        if hasattr(error, "exit_code"):
            raise
        reason = first_line(error)
    if reason is not None:
        message = f"{name!r} of {path!r} is damaged ({reason}): merge again, or restore the file from a copy"
        raise CorruptDataError(message, path=path)
