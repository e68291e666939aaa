"""The table ``_checks`` of a merged file: hashes of its contents, and their verification.

The merge verifies a new file before it gets its name, `shardkeep.hdf5.verify` does so later. The table has
one row for each run of rows that has a hash:

=============  =======  ================================================================
dataset        text     name in the result; also of a group ("/" is the root), type or link
file           text     path of the source of a virtual dataset, relative to the folder of the
                        merged file; empty in a copy, of which the rows in this file are meant
first_row      int64    in the dataset of the result; -1 in a virtual file in the order of
                        a key, where rows of one source are not adjacent
rows           int64    number of rows; 0 for a value (written once, or a scalar)
way            text     subject of the hash: ``rows``, ``chunks``, ``value``, ``attributes`` or ``link``
crc32c         uint32   of rows and values: `shardkeep.hdf5.storage.content_hash.content_crc`; of stored
                        chunks: `shardkeep.hdf5.storage.chunk_table.table_crc`; of all attributes of an
                        object, also if it has none: `shardkeep.hdf5.storage.attributes.attributes_crc`; of
                        a link: `shardkeep.hdf5.sources.links.LinkInfo.crc32c`
size_bytes     int64    these four only in a virtual file: the state of the source
mtime_ns       int64    (`shardkeep.hdf5.virtual.checked_sources`); -1 if it is not known
offset_bytes   int64
layout         text
=============  =======  ================================================================

The table has a hash of its rows (`shardkeep.hdf5.sources.tables`).

Hashes of rows are those that were read from the sources, so a copy with a mistake does not match them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

import h5py
import numpy as np

from shardkeep.errors import CorruptDataError, ShardkeepError
from shardkeep.hdf5.read_errors import reading
from shardkeep.hdf5.segments.commit_record import CommitRecord
from shardkeep.hdf5.sources.links import LinkInfo, read_links
from shardkeep.hdf5.sources.raw_file import RawFile
from shardkeep.hdf5.sources.source import blocks, rows_crc, rows_in_block
from shardkeep.hdf5.sources.tables import check_table, create_table, seal_table, text_dtype
from shardkeep.hdf5.storage.attributes import attributes_crc, read_attributes
from shardkeep.hdf5.storage.byte_order import read_value
from shardkeep.hdf5.storage.chunk_table import ChunkTable, read_chunk_table, table_crc
from shardkeep.hdf5.storage.content_hash import content_crc, value_crc
from shardkeep.hdf5.storage.names import decode_name, encode_name, is_own_table
from shardkeep.hdf5.virtual.checked_sources import CHECKS, CheckedSource

__all__ = ["CHECKS", "Check", "changed_chunks", "failed_checks", "read_checks", "write_checks"]

Kind = Literal["rows", "chunks", "value", "attributes", "link"]
_KINDS: dict[bytes, Kind] = {kind.encode(): kind for kind in get_args(Kind)}
_AT_ONCE_BYTES = 64 * 1024 * 1024
_UNKNOWN = CheckedSource(-1, -1, -1, -1, "")


class Check(NamedTuple):
    """One row of the table; `kind` is the column ``way``."""

    dataset: str
    first_row: int
    rows: int
    kind: Kind
    crc32c: int
    file: str = ""
    state: CheckedSource | None = None

    @property
    def counts_rows(self) -> bool:
        """Whether its subject is rows; the checks of a dataset cover all of its rows."""
        return self.kind in ("rows", "chunks")

    @property
    def described(self) -> str:
        """Subject of the check, for messages."""
        if self.kind == "attributes":
            return f"the attributes of {self.dataset!r}"
        if self.kind == "link":
            return f"the name {self.dataset!r}"
        if self.kind == "value":
            return f"the value {self.dataset!r}"
        if not self.rows:
            return f"no rows of {self.dataset!r}"
        return f"rows {self.first_row} to {self.first_row + self.rows - 1} of {self.dataset!r}"


def write_checks(file: h5py.File, checks: Sequence[Check]) -> None:
    """Write the table into a merged file."""
    names = [encode_name(one.dataset) for one in checks]
    files = [encode_name(one.file) for one in checks]
    columns: list[tuple[str, Any, Sequence[object]]] = [
        ("dataset", text_dtype(names), names),
        ("file", text_dtype(files), files),
        ("first_row", "<i8", [one.first_row for one in checks]),
        ("rows", "<i8", [one.rows for one in checks]),
        ("way", h5py.string_dtype("utf-8", max(map(len, _KINDS))), [one.kind for one in checks]),
        ("crc32c", "<u4", [one.crc32c for one in checks]),
    ]
    if any(files):
        states = [one.state or _UNKNOWN for one in checks]
        columns += [
            ("size_bytes", "<i8", [state.size_bytes for state in states]),
            ("mtime_ns", "<i8", [state.mtime_ns for state in states]),
            ("offset_bytes", "<i8", [state.offset_bytes for state in states]),
            ("layout", h5py.string_dtype("utf-8", 32), [state.layout for state in states]),
        ]
    table = np.empty(len(checks), [(name, dtype) for name, dtype, _ in columns])
    for name, _, values in columns:
        table[name] = values
    seal_table(create_table(file, CHECKS, table), content_crc(table))


def read_checks(file: h5py.File, path: str) -> list[Check] | None:
    """Return the table of an open file, None if it has none; raise `CorruptDataError` if it is damaged."""
    if CHECKS not in file or not is_own_table(file.id, CHECKS):
        return None
    check_table(file, CHECKS, path)
    with reading(path, CHECKS, "table"):
        table = file[CHECKS][:]
    try:
        return [
            Check(
                decode_name(bytes(row["dataset"])),
                int(row["first_row"]),
                int(row["rows"]),
                _KINDS[bytes(row["way"])],
                int(row["crc32c"]),
                decode_name(bytes(row["file"])),
            )
            for row in table
        ]
    except (ValueError, TypeError, KeyError) as error:  # a value that no merge writes
        message = f"{CHECKS!r} of {path!r} is damaged ({error}): merge again, or restore the file from a copy"
        raise CorruptDataError(message, path=path) from error


def failed_checks(
    file: h5py.File, raw: RawFile, checks: Iterable[Check]
) -> Iterator[tuple[Check, str | None]]:
    """Verify checks; yield each one with None if it holds, or with the difference.

    Parameters
    ----------
    file : h5py.File
        The merged file; HDF5 reports the addresses of its chunks.
    raw : RawFile
        The same file, from which their bytes are read.
    """
    crcs: dict[int, int] = {}
    name, dataset, table = None, None, None
    links: dict[str, LinkInfo] | None = None
    lost: set[str] = set()  # reported once, and not again for its attributes
    # Dataset by dataset, so that only one is open, and neighbours are read at once.
    order: dict[str, int] = {}
    checks = sorted(checks, key=lambda check: order.setdefault(check.dataset, len(order)))
    for number, check in enumerate(checks):
        if check.kind == "link":
            if links is None:
                links = read_links(file.id)
            there = links.get(check.dataset)
            same = there is not None and there.crc32c == check.crc32c
            yield check, None if same else "is not there" if there is None else "leads elsewhere"
            continue
        if check.dataset != name:
            name, table = check.dataset, None
            # File.get answers None also where the dataset cannot be read.
            is_there = name in file
            dataset = file[name] if is_there else None
        if check.kind == "attributes":
            if dataset is None:
                yield check, None if check.dataset in lost else "is not there"
            else:
                same = attributes_crc(read_attributes(dataset)[0]) == check.crc32c
                yield check, None if same else "has other attributes"
            continue
        if not isinstance(dataset, h5py.Dataset) or (not dataset.shape and check.kind != "value"):
            lost.add(check.dataset)
            yield check, "is not there"
            continue
        if check.kind == "value":
            same = value_crc(read_value(dataset), dataset.dtype) == check.crc32c
            yield check, None if same else "has another value"
            continue
        if check.first_row < 0 or dataset.shape[0] < check.first_row + check.rows:
            yield check, f"has {dataset.shape[0]} rows, {check.first_row + check.rows} were merged"
            continue
        if number not in crcs and check.kind == "rows":
            crcs = _row_crcs(dataset, checks, number)
        elif number not in crcs:
            if table is None:
                table = read_chunk_table(dataset.id)
            crcs = _chunk_crcs(raw, table, checks, number)
        yield check, None if crcs[number] == check.crc32c else "has other " + check.kind


def changed_chunks(file: h5py.File, path: str, record: CommitRecord) -> Iterator[str]:
    """Yield the datasets of a segment whose compressed chunks are not those of its commit.

    A merge copies chunks as they are, and other bytes may decode to the same rows. Chunks that HDF5 cannot
    find are not compared: their rows are unreadable.
    """
    checks = []
    for name, one in record.datasets.items():
        if one.chunks_crc32c is None or not one.rows:
            continue
        item = file.get(name)
        if not isinstance(item, h5py.Dataset) or not item.shape:
            continue
        if item.chunks is None or read_chunk_table(item.id) is not None:
            checks.append(Check(name, 0, one.rows, "chunks", int(one.chunks_crc32c, 16)))
    with open(path, "rb", buffering=0) as opened:
        raw = RawFile(opened.fileno(), path, os.fstat(opened.fileno()).st_size)
        for check, wrong in failed_checks(file, raw, checks):
            if wrong is not None:
                yield check.dataset


def _chunk_crcs(
    raw: RawFile, table: ChunkTable | None, checks: Sequence[Check], number: int
) -> dict[int, int]:
    """Return the hashes of the chunks of a check and of the next ones, by number; 0 without a table.

    Of many checks at once: a call for each takes longer than the hash.
    """
    if table is None:
        return {number: 0}
    name = checks[number].dataset
    parts: list[tuple[int, int]] = []
    size_bytes = 0
    for check in itertools.islice(checks, number, None):
        if check.dataset != name or check.kind != "chunks" or size_bytes >= _AT_ONCE_BYTES:
            break
        part = table.range_of(check.first_row, check.first_row + check.rows)
        if parts and part[0] != parts[-1][1]:
            break
        parts.append(part)
        size_bytes += int(table.sizes[slice(*part)].sum())
    try:
        crcs = raw.crcs(table.part(parts[0][0], parts[-1][1]))
    except (ShardkeepError, OSError):
        # One by one, so that checks before the unreadable chunk are answered.
        del parts[1:]
        crcs = raw.crcs(table.part(*parts[0]))
    found = {}
    of = zip(itertools.islice(checks, number, None), parts, strict=False)
    for i, (check, (first, last)) in enumerate(of, number):
        part_crcs = crcs[first - parts[0][0] : last - parts[0][0]]
        found[i] = table_crc(table.between(check.first_row, check.first_row + check.rows), part_crcs)
    return found


def _row_crcs(dataset: h5py.Dataset, checks: Sequence[Check], number: int) -> dict[int, int]:
    """Return the hashes of the rows of a check and of the next ones, by number.

    Of many checks at once: a read of each takes longer than its hash.
    """
    first = stop = checks[number].first_row
    step = rows_in_block(dataset)
    end = min(len(dataset), (first // step + 1) * step)  # as of one block
    some: list[Check] = []
    for check in itertools.islice(checks, number, None):
        next_stop = stop + check.rows
        is_next = check.dataset == checks[number].dataset and check.kind == "rows"
        if not is_next or check.first_row != stop or (some and next_stop > end):
            break
        some.append(check)
        stop = next_stop
    if len(some) > 1:
        # Where they cannot be read together, checks before the unreadable rows are answered one by one.
        with contextlib.suppress(Exception):
            (rows,) = blocks(dataset, first, stop)
            return {
                i: content_crc(rows[one.first_row - first :][: one.rows])
                for i, one in enumerate(some, number)
            }
    return {number: rows_crc(dataset, first, first + checks[number].rows)}
