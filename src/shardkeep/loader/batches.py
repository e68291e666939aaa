"""Conversion of the arrays that the engine fills into batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardkeep.plan import ShardTable
from shardkeep.tfrecord.example.ragged import Ragged

__all__ = ["Batch", "blank_like", "record_ids", "with_ragged", "without_rows"]

Batch = dict[str, Any]


def with_ragged(raw: Batch) -> Batch:
    """Replace each pair (values, offsets) of rows of varying length by a `Ragged`."""
    pairs = [name for name, one in raw.items() if type(one) is tuple]
    for name in pairs:
        raw[name] = Ragged(*raw[name])
    return raw


def blank_like(batch: Batch, rows: int) -> Batch:
    """Return a batch of `rows` padded rows with the dtypes and shapes of `batch`."""
    blank: Batch = {}
    for name, one in batch.items():
        if isinstance(one, Ragged):
            blank[name] = Ragged(one.values[:0], np.zeros(rows + 1, np.int64))
        elif one.dtype == object:
            blank[name] = np.full((rows, *one.shape[1:]), b"", object)
        else:
            blank[name] = np.zeros((rows, *one.shape[1:]), one.dtype)
    return blank


def without_rows(batch: Batch, rows: Sequence[int]) -> Batch:
    """Return a batch without the given rows, which must be empty in `Ragged` columns."""
    less: Batch = {}
    for name, one in batch.items():
        if isinstance(one, Ragged):
            less[name] = Ragged(one.values, np.delete(one.offsets, [row + 1 for row in rows]))
        else:
            less[name] = np.delete(one, rows, axis=0)
    return less


def record_ids(table: ShardTable, records: Any, rows: int) -> Batch:
    """Return shard and record number in it for each row; -1 for padded rows."""
    shard = np.full(rows, -1, np.int64)
    index = np.full(rows, -1, np.int64)
    shard[: len(records)], index[: len(records)] = table.locate(records)
    return {"shard": shard, "index": index}
