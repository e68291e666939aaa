"""From what the engine fills to what a training loop takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardkeep.errors import SchemaError
from shardkeep.plan import ShardTable
from shardkeep.tfrecord.features import Feature
from shardkeep.tfrecord.ragged import Ragged

__all__ = ["Batch", "added_names", "blank_like", "check_names", "ids", "without_rows", "wrapped"]

Batch = dict[str, Any]


def added_names(*, masked: bool, with_ids: bool) -> list[str]:
    """Return the names that a batch has beside the features."""
    return (["valid"] if masked else []) + (["shard", "index"] if with_ids else [])


def check_names(features: Mapping[str, Feature] | None, *, masked: bool, with_ids: bool) -> None:
    """Refuse features that would hide what a batch says about its rows."""
    for name in added_names(masked=masked, with_ids=with_ids):
        if features is not None and name in features:
            way_out = 'use remainder="short" or "drop"' if name == "valid" else "leave out with_ids=True"
            raise SchemaError(f"feature {name!r}: a batch has a key of this name of its own; {way_out}")


def wrapped(raw: Batch) -> Batch:
    """Make `Ragged` of the pairs (values, offsets) that the engine gives for rows of different lengths."""
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
    """Return a batch without rows that are empty where rows have different lengths."""
    less: Batch = {}
    for name, one in batch.items():
        if isinstance(one, Ragged):
            less[name] = Ragged(one.values, np.delete(one.offsets, [row + 1 for row in rows]))
        else:
            less[name] = np.delete(one, rows, axis=0)
    return less


def ids(table: ShardTable, records: Any, rows: int) -> Batch:
    """Return the shard and the record number in it of each row; -1 for padded rows."""
    shard = np.full(rows, -1, np.int64)
    index = np.full(rows, -1, np.int64)
    shard[: len(records)], index[: len(records)] = table.locate(records)
    return {"shard": shard, "index": index}
