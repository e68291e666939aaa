"""Whether the rows and chunks of a file have the hashes that a merge found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import h5py

from shardkeep.hdf5.attributes import attributes_crc, read_attributes
from shardkeep.hdf5.byte_order import read_value
from shardkeep.hdf5.chunk_table import ChunkTable, read_chunk_table, table_crc
from shardkeep.hdf5.merge_checks import Check
from shardkeep.hdf5.raw_file import RawFile
from shardkeep.hdf5.rows import content_crc, value_crc
from shardkeep.hdf5.source_links import LinkLook, read_links
from shardkeep.hdf5.source_rows import blocks

__all__ = ["failed_checks"]


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
    datasets: dict[str, object] = {}
    links: dict[str, LinkLook] | None = None
    lost: set[str] = set()  # told once, and not again for its attributes
    for check in checks:
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
            crc = _crc_of_chunks(tables[check.dataset], raw, check)
        yield check, None if crc == check.crc32c else "has other " + check.way


def _crc_of_chunks(table: ChunkTable | None, raw: RawFile, check: Check) -> int:
    if table is None:
        return 0
    part = table.between(check.first_row, check.first_row + check.rows)
    return table_crc(part, raw.crcs(part))
