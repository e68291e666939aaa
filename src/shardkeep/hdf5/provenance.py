"""The table ``_provenance`` of a merged file: where each row came from.

One row of the table for each run of rows that came from one source, in the order of the result:

=============  =======  ==========================================================
rank           int32    of the worker; -1 for a file that is not a worker's
step           int64    of the commit; -1 as above
dataset        text     name in the result
file           text     of the source, relative to the attribute ``root``
first_row      int64    in the dataset of the result
rows           int64    how many
source_row     int64    first row in the dataset of the source
=============  =======  ==========================================================
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

if TYPE_CHECKING:
    from shardkeep.hdf5.merge_plan import MergePlan

__all__ = ["PROVENANCE", "write_provenance"]

PROVENANCE = "_provenance"


def write_provenance(file: h5py.File, plan: MergePlan) -> None:
    """Put the table into a merged file."""
    root = os.path.abspath(plan.root)
    files = [os.path.relpath(source.path, root).encode() for source in plan.sources]
    datasets = [one.name.encode() for one in plan.datasets]
    table = np.zeros(
        sum(len(one.parts) for one in plan.datasets),
        dtype=[
            ("rank", "<i4"),
            ("step", "<i8"),
            ("dataset", _text(datasets)),
            ("file", _text(files)),
            ("first_row", "<i8"),
            ("rows", "<i8"),
            ("source_row", "<i8"),
        ],
    )
    row = 0
    for one, name in zip(plan.datasets, datasets, strict=True):
        for part in one.parts:
            source = plan.sources[part.source]
            rank = -1 if source.rank is None else source.rank
            step = -1 if source.step is None else source.step
            table[row] = (rank, step, name, files[part.source], part.first_row, part.rows, 0)
            row += 1
    options: dict[str, Any] = (
        {"chunks": True, "compression": "gzip", "shuffle": True} if len(table) > 100 else {}
    )
    dataset = file.create_dataset(PROVENANCE, data=table, **options)
    dataset.attrs["root"] = root


def _text(values: list[bytes]) -> np.dtype[Any]:
    dtype: np.dtype[Any] = h5py.string_dtype("utf-8", max((len(value) for value in values), default=1) or 1)
    return dtype
