"""Whether the rows and chunks of a file have the hashes that a merge found."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import h5py

from shardkeep.errors import ShardkeepError
from shardkeep.hdf5.merge.checks.table import Check
from shardkeep.hdf5.sources.links import LinkLook, read_links
from shardkeep.hdf5.sources.raw_file import RawFile
from shardkeep.hdf5.sources.source_rows import blocks
from shardkeep.hdf5.storage.attributes import attributes_crc, read_attributes
from shardkeep.hdf5.storage.byte_order import read_value
from shardkeep.hdf5.storage.chunk_table import ChunkTable, read_chunk_table, table_crc
from shardkeep.hdf5.storage.content_hash import content_crc, value_crc

__all__ = ["failed_checks"]

_AT_ONCE_BYTES = 64 * 1024 * 1024


def failed_checks(
    file: h5py.File, raw: RawFile, checks: Iterable[Check]
) -> Iterator[tuple[Check, str | None]]:
    """Read what each check is about; give it with None if it holds, or with what is wrong.

    Parameters
    ----------
    file : h5py.File
        The merged file; HDF5 tells where its chunks are.
    raw : RawFile
        The same file, from which their bytes are read.
    """
    tables: dict[str, ChunkTable | None] = {}
    hashes = _ChunkHashes(raw)
    datasets: dict[str, object] = {}
    links: dict[str, LinkLook] | None = None
    lost: set[str] = set()  # told once, and not again for its attributes
    checks = list(checks)
    for number, check in enumerate(checks):
        if check.way == "link":
            if links is None:
                links = read_links(file.id)
            there = links.get(check.dataset)
            same = there is not None and there.crc32c == check.crc32c
            yield check, None if same else "is not there" if there is None else "leads elsewhere"
            continue
        if check.dataset not in datasets:
            datasets[check.dataset] = file.get(check.dataset)
        dataset = datasets[check.dataset]
        if check.way == "attributes":
            if dataset is None:
                yield check, None if check.dataset in lost else "is not there"
            else:
                same = attributes_crc(read_attributes(dataset)[0]) == check.crc32c
                yield check, None if same else "has other attributes"
            continue
        if not isinstance(dataset, h5py.Dataset) or (not dataset.shape and check.way != "value"):
            lost.add(check.dataset)
            yield check, "is not there"
            continue
        if check.way == "value":
            same = value_crc(read_value(dataset), dataset.dtype) == check.crc32c
            yield check, None if same else "has another value"
            continue
        if check.first_row < 0 or dataset.shape[0] < check.first_row + check.rows:
            yield check, f"has {dataset.shape[0]} rows, {check.first_row + check.rows} were merged"
            continue
        if check.way == "rows":
            crc = 0
            for rows in blocks(dataset, check.first_row, check.first_row + check.rows):
                crc = content_crc(rows, crc)
        else:
            if check.dataset not in tables:
                tables[check.dataset] = read_chunk_table(dataset.id, dataset.shape, dataset.dtype.itemsize)
            crc = hashes.of(tables[check.dataset], checks, number)
        yield check, None if crc == check.crc32c else "has other " + check.way


class _ChunkHashes:
    """Hashes of chunks, found for many checks at once: to ask for each would take longer than to hash.

    Parameters
    ----------
    raw : RawFile
    """

    def __init__(self, raw: RawFile) -> None:
        self._raw = raw
        self._found: dict[int, int] = {}

    def of(self, table: ChunkTable | None, checks: Sequence[Check], number: int) -> int:
        """Return the hash of the chunks that a check is about; `table` has all of its dataset."""
        if table is None:
            return 0
        if number not in self._found:
            self._found = self._of_next(table, checks, number)
        return self._found[number]

    def _of_next(self, table: ChunkTable, checks: Sequence[Check], number: int) -> dict[int, int]:
        name = checks[number].dataset
        parts: list[tuple[int, int]] = []
        size_bytes = 0
        for check in itertools.islice(checks, number, None):
            if check.dataset != name or check.way != "chunks" or size_bytes >= _AT_ONCE_BYTES:
                break
            part = table.range_of(check.first_row, check.first_row + check.rows)
            if parts and part[0] != parts[-1][1]:
                break
            parts.append(part)
            size_bytes += int(table.sizes[slice(*part)].sum())
        try:
            crcs = self._raw.crcs(table.part(parts[0][0], parts[-1][1]))
        except (ShardkeepError, OSError):
            # One by one, so that the checks before what cannot be read get their answer.
            del parts[1:]
            crcs = self._raw.crcs(table.part(*parts[0]))
        found = {}
        of = zip(itertools.islice(checks, number, None), parts, strict=False)
        for i, (check, (first, last)) in enumerate(of, number):
            part_crcs = crcs[first - parts[0][0] : last - parts[0][0]]
            found[i] = table_crc(table.between(check.first_row, check.first_row + check.rows), part_crcs)
        return found
