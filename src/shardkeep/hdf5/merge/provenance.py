"""The table ``_provenance`` of a merged file: rank, file and offset from which each row came.

One row of the table for each run of rows that are adjacent in one source, dataset by dataset, in the
order of the result:

=============  =======  ==========================================================
rank           int32    of the worker; -1 for a plain file
step           int64    of the commit; -1 as above
dataset        text     name in the result
file           text     of the source, relative to the attribute ``root``
first_row      int64    in the dataset of the result
rows           int64    number of rows
source_row     int64    first row in the dataset of the source
=============  =======  ==========================================================

The runs of a dataset cover its rows without a gap. Attributes of the table: ``root``, the folder
that the sources have in common (or its URL), and ``order_by``, the argument of `shardkeep.hdf5.merge`. In
the order of a key neighbours often come from different ranks, and the table has up to one row for each row.
The table has a hash of its rows (`shardkeep.hdf5.sources.tables`).

The attribute ``findings``, an array of text, has what was missing or there twice when the file was merged,
with ranks and steps; a file of a complete run, or of an earlier version, has no such attribute.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from shardkeep._paths_in_messages import shown
from shardkeep.hdf5.merge.plan import DatasetPlan, MergePlan
from shardkeep.hdf5.sources.tables import create_table, seal_table, text_dtype
from shardkeep.hdf5.storage.content_hash import content_crc
from shardkeep.hdf5.storage.names import encode_name, is_own_table

__all__ = ["PROVENANCE", "read_findings", "write_provenance"]

PROVENANCE = "_provenance"
_FINDINGS = "findings"


def write_provenance(file: h5py.File, plan: MergePlan) -> None:
    """Write the table into a merged file."""
    root = os.path.abspath(plan.root)
    files = [encode_name(os.path.relpath(source.path, root)) for source in plan.sources]
    names = [encode_name(one.name) for one in plan.datasets]
    dtype = np.dtype(
        [
            ("rank", "<i4"),
            ("step", "<i8"),
            ("dataset", text_dtype(names)),
            ("file", text_dtype(files)),
            ("first_row", "<i8"),
            ("rows", "<i8"),
            ("source_row", "<i8"),
        ]
    )
    of_source = np.zeros(len(files), dtype)
    of_source["file"] = files
    of_source["rank"] = [-1 if one.rank is None else one.rank for one in plan.sources]
    of_source["step"] = [-1 if one.step is None else one.step for one in plan.sources]
    dataset: h5py.Dataset | None = None
    crc = 0
    for block in _blocks(plan, names, of_source):
        if dataset is None:
            dataset = create_table(file, PROVENANCE, block)
        else:
            # Only a large table has a second block, and a large one has chunks.
            dataset.resize(len(dataset) + len(block), 0)
            dataset[-len(block) :] = block
        crc = content_crc(block, crc)
    if dataset is None:
        dataset = create_table(file, PROVENANCE, np.zeros(0, dtype))
    # Bytes: the name of a folder need not be valid UTF-8.
    dataset.attrs.create("root", encode_name(shown(root)), dtype=h5py.string_dtype())
    dataset.attrs["order_by"] = plan.order_by
    findings = [*plan.findings, *plan.earlier_findings]
    if findings:
        dataset.attrs.create(_FINDINGS, findings, dtype=h5py.string_dtype())
    seal_table(dataset, crc)


def read_findings(file: h5py.File) -> tuple[str, ...]:
    """Return what was missing or there twice when an open file was merged, one sentence for each finding.

    Empty for a complete run, a file of an earlier version, and a file that no merge wrote.
    """
    if PROVENANCE not in file or not is_own_table(file.id, PROVENANCE):
        return ()
    found = file[PROVENANCE].attrs.get(_FINDINGS, ())
    return tuple(map(str, np.ravel(found).tolist()))


def _blocks(plan: MergePlan, names: list[bytes], of_source: np.ndarray[Any, Any]) -> Iterator[Any]:
    """Yield the table in blocks of about 65,536 rows."""
    waiting = []
    for one, name in zip(plan.datasets, names, strict=True):
        for first, rows, source, source_row in _runs(one, plan):
            block = of_source[source]
            block["dataset"] = name
            block["first_row"], block["rows"], block["source_row"] = first, rows, source_row
            waiting.append(block)
            if sum(map(len, waiting)) >= _BLOCK_ROWS:
                yield np.concatenate(waiting)
                waiting = []
    if waiting:
        yield np.concatenate(waiting)


_BLOCK_ROWS = 1 << 16


def _runs(one: DatasetPlan, plan: MergePlan) -> Iterator[tuple[Any, Any, Any, Any]]:
    if one.keyed and plan.key is not None:
        yield from plan.key.runs(_BLOCK_ROWS)
    elif one.parts:
        numbers = np.array([(part.first_row, part.rows, part.source) for part in one.parts], np.int64)
        yield numbers[:, 0], numbers[:, 1], numbers[:, 2], np.zeros(len(numbers), np.int64)
