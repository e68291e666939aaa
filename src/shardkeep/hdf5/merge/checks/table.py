"""The table ``_checks`` of a merged file: hashes with which it can be checked later.

One row of the table for each run of rows that has a hash:

=============  =======  ================================================================
dataset        text     name in the result; also of a group ("/" is the root), type or link
file           text     of the source, for a virtual file, relative to the folder of the
                        merged file; empty in a copy, whose own rows are meant
first_row      int64    in the dataset of the result; -1 in a virtual file in the order of
                        a key, where rows of one source are not together
rows           int64    how many
way            text     ``rows``, ``chunks``, ``value``, ``attributes`` or ``link``: what the hash is
                        of; a value has no rows: what was written once, or a scalar
crc32c         uint32   of rows and values: `shardkeep.hdf5.storage.rows.content_crc`; of compressed chunks as
                        they are: `shardkeep.hdf5.storage.chunk_table.table_crc`; of all attributes of an
                        object, also if it has none: `shardkeep.hdf5.storage.attributes.attributes_crc`; of
                        a link: `shardkeep.hdf5.sources.links.LinkLook.crc32c`
size_bytes     int64    these four only in a virtual file: in which state the source was
mtime_ns       int64    (`shardkeep.hdf5.virtual.checked_sources`); -1 where that is not known
offset_bytes   int64
layout         text
=============  =======  ================================================================

The table carries its own hash (`shardkeep.hdf5.sources.sealed_table`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import h5py
import numpy as np

from shardkeep.errors import CorruptDataError
from shardkeep.hdf5.sources.sealed_table import check_table, seal_table
from shardkeep.hdf5.storage.content_hash import content_crc
from shardkeep.hdf5.storage.names import is_own_table
from shardkeep.hdf5.virtual.checked_sources import CHECKS, CheckedSource

__all__ = ["CHECKS", "Check", "read_checks", "write_checks"]

Way = Literal["rows", "chunks", "value", "attributes", "link"]
_WAYS: dict[bytes, Way] = {way.encode(): way for way in get_args(Way)}


@dataclass(frozen=True)
class Check:
    """One row of the table."""

    dataset: str
    first_row: int
    rows: int
    way: Way
    crc32c: int
    file: str = ""
    state: CheckedSource | None = None

    @property
    def counts_rows(self) -> bool:
        """Whether it is about rows, of which the checks of a dataset together have all."""
        return self.way in ("rows", "chunks")

    @property
    def described(self) -> str:
        """What it is about, as people say it."""
        if self.way == "attributes":
            return f"the attributes of {self.dataset!r}"
        if self.way == "link":
            return f"the name {self.dataset!r}"
        if self.way == "value":
            return f"the value {self.dataset!r}"
        if not self.rows:
            return f"no rows of {self.dataset!r}"
        return f"rows {self.first_row} to {self.first_row + self.rows - 1} of {self.dataset!r}"


def write_checks(file: h5py.File, checks: Sequence[Check]) -> None:
    """Put the table into a merged file."""
    names = [one.dataset.encode("utf-8", "surrogateescape") for one in checks]
    files = [one.file.encode("utf-8", "surrogateescape") for one in checks]
    dtype: list[tuple[str, Any]] = [
        ("dataset", text_dtype(names)),
        ("file", text_dtype(files)),
        ("first_row", "<i8"),
        ("rows", "<i8"),
        ("way", h5py.string_dtype("utf-8", max(map(len, _WAYS)))),
        ("crc32c", "<u4"),
    ]
    rows: list[Any] = [
        (name, path, one.first_row, one.rows, one.way, one.crc32c)
        for one, name, path in zip(checks, names, files, strict=True)
    ]
    virtual = any(files)
    if virtual:
        dtype += [(name, "<i8") for name in ("size_bytes", "mtime_ns", "offset_bytes")]
        dtype += [("layout", h5py.string_dtype("utf-8", 32))]
        states = (one.state or _UNKNOWN for one in checks)
        rows = [
            (*row, state.size_bytes, state.mtime_ns, state.offset_bytes, state.layout)
            for row, state in zip(rows, states, strict=True)
        ]
    table = np.array(rows, dtype)
    seal_table(create_table(file, CHECKS, table), content_crc(table))


_UNKNOWN = CheckedSource(-1, -1, -1, -1, "")


def read_checks(file: h5py.File, path: str) -> list[Check] | None:
    """Return the table of an open file; None if it has none.

    Raises
    ------
    CorruptDataError
        It is damaged.
    """
    if CHECKS not in file or not is_own_table(file.id, CHECKS):
        return None
    check_table(file, CHECKS, path)
    try:
        return [
            Check(
                bytes(row["dataset"]).decode("utf-8", "surrogateescape"),
                int(row["first_row"]),
                int(row["rows"]),
                _WAYS[bytes(row["way"])],
                int(row["crc32c"]),
                bytes(row["file"]).decode("utf-8", "surrogateescape"),
            )
            for row in file[CHECKS][:]
        ]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OSError, RuntimeError) as error:
        message = f"{CHECKS!r} of {path!r} is damaged ({error}): merge again, or restore the file from a copy"
        raise CorruptDataError(message, path=path) from error


def create_table(file: h5py.File, name: str, table: np.ndarray[Any, Any]) -> h5py.Dataset:
    """Create a dataset of a table, compressed if it is not small."""
    options: dict[str, Any] = {}
    if len(table) > 100:
        options = {"chunks": (min(len(table), 4096),), "maxshape": (None,)}
        options |= {"compression": "gzip", "compression_opts": 1, "shuffle": True}
    return file.create_dataset(name, data=table, **options)


def text_dtype(values: Sequence[bytes]) -> np.dtype[Any]:
    """Return fixed UTF-8 text that holds all values."""
    dtype: np.dtype[Any] = h5py.string_dtype("utf-8", max((len(value) for value in values), default=1) or 1)
    return dtype
