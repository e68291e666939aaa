"""Arithmetic of the picture of an epoch: shares of the ranks in each part of a data set, and its steps.

The plan of an epoch is a function, so nothing is read. A sample of the records stands for large data sets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from shardkeep.plan.epoch import EpochPlan, Remainder
from shardkeep.plan.file_assignment import FileSet
from shardkeep.plan.file_plan import FilePlan
from shardkeep.plan.order import Shuffle, epoch_order
from shardkeep.plan.shards import ShardTable

__all__ = [
    "EpochPicture",
    "PlannedEpoch",
    "Settings",
    "Span",
    "column_count",
    "columns_of",
    "edges_of",
    "paint",
    "sample_files",
    "sample_of",
    "spans_of",
]

COLUMNS, ROWS = 128, 64
_SAMPLE = 60_000
_CYCLE_LENGTH = 16
_RANKS_OF_FILES = 64
_STEPS_OF_FILES = 24
_BATCH = 256
_LEVELS = _TIMES = 6

I64 = NDArray[np.int64]


@dataclass(frozen=True)
class Settings:
    """Settings of a Loader that decide which rank reads which record."""

    world_size: int
    batch_size: int
    shuffle: Shuffle
    shard_by: Literal["records", "files"]
    remainder: Remainder
    seed: int
    epoch: int


@dataclass(frozen=True)
class EpochPicture:
    """Cells of the picture.

    Attributes
    ----------
    rows : int
        Number of rows, each of one or several neighbouring ranks.
    columns : int
        Number of equal parts of the data set.
    paths : tuple of (int, int, str)
        Time in the epoch and share, from 0 to 5, and the SVG path of the cells that have both.
    largest_share : float
        Share of the darkest cells.
    sampled : int
        Number of records that were used.
    """

    rows: int
    columns: int
    paths: tuple[tuple[int, int, str], ...]
    largest_share: float
    sampled: int


@dataclass(frozen=True)
class Span:
    """Records ``[first, last]`` of a shard."""

    shard: int
    first: int
    last: int


class PlannedEpoch:
    """An epoch of a data set as a Loader with some settings reads it.

    Parameters
    ----------
    settings : Settings
    table : ShardTable
    sizes : ndarray of int64
        Size of each shard.
    """

    def __init__(self, settings: Settings, table: ShardTable, sizes: I64) -> None:
        one = settings
        self._table = table
        self._order = epoch_order(table.total, shuffle=one.shuffle, seed=one.seed, epoch=one.epoch)
        self._plan: EpochPlan | FilePlan
        if one.shard_by == "files":
            files = FileSet(table, sizes, one.shuffle is not False, one.seed)
            self._plan = FilePlan(
                files, one.world_size, one.batch_size, _CYCLE_LENGTH, one.remainder, one.epoch
            )
        else:
            self._plan = EpochPlan(table.total, 0, one.world_size, one.batch_size, one.remainder)

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self._plan.steps

    def picture(self) -> EpochPicture:
        """Return the picture of the epoch."""
        plan = self._plan
        made = np.full(plan.world_size, plan.steps)
        if isinstance(plan, FilePlan):
            ranks, steps, records = sample_files(plan, made)
        else:
            positions = sample_of(plan.position_after(plan.steps))
            ranks, steps = plan.ranks_of(positions, made), positions // plan.global_batch
            records = self._order.records_at(positions)
        return paint(ranks, steps / max(plan.steps, 1), records, plan.world_size, self._table.total)

    def reads(self, step: int) -> list[tuple[int, int, list[Span]]]:
        """Return rank, number of records and ranges of records of the first 64 ranks in a step.

        Of a batch of more than 256 records the first 256 are in the ranges.
        """
        plan, found = self._plan, []
        for rank in range(min(plan.world_size, ROWS)):
            if isinstance(plan, FilePlan):
                records = plan.reads_between(step, step + 1, rank)[0]
                count, records = len(records), records[:_BATCH]
            else:
                start, stop = plan.rank_span(step, rank)
                count = stop - start
                records = self._order.records_at(np.arange(start, min(stop, start + _BATCH)))
            found.append((rank, count, spans_of(np.sort(records), self._table)))
        return found


def paint(ranks: I64, times: NDArray[np.float64], records: I64, world_size: int, total: int) -> EpochPicture:
    """Return the picture of a sample of reads: their ranks, times from 0 to 1, and records of `total`."""
    rows, columns = min(world_size, ROWS), column_count(total)
    cell = ranks * rows // world_size * columns + columns_of(records, total)
    counts = np.bincount(cell, minlength=rows * columns).reshape(rows, columns)
    sums = np.bincount(cell, times, rows * columns).reshape(rows, columns)
    shares = counts / np.maximum(counts.sum(axis=0), 1)
    largest = float(shares.max(initial=0.0))
    level = np.ceil(shares / (largest or 1) * _LEVELS).astype(int) - 1
    time = np.minimum(sums / np.maximum(counts, 1) * _TIMES, _TIMES - 1).astype(int)
    paths = []
    for t in range(_TIMES):
        for v in range(_LEVELS):
            ys, xs = np.nonzero((level == v) & (time == t) & (counts > 0))
            if ys.size:
                path = "".join(f"M{x} {y}h1v1h-1z" for x, y in zip(xs.tolist(), ys.tolist(), strict=True))
                paths.append((t, v, path))
    return EpochPicture(rows, columns, tuple(paths), largest, len(records))


def column_count(total: int) -> int:
    """Return the number of columns of a picture of `total` records."""
    return min(COLUMNS, max(total, 1))


def columns_of(records: I64, total: int) -> I64:
    """Return the column of each of `total` records."""
    columns = column_count(total)
    found = (records.astype(np.float64) * (columns / max(total, 1))).astype(np.int64)
    return np.minimum(found, columns - 1)


def edges_of(table: ShardTable) -> list[float]:
    """Return the column at which each shard but the first begins; none if there are many shards."""
    if len(table) > COLUMNS:
        return []
    edges: list[float] = np.round(
        table.offsets[1:-1] / max(table.total, 1) * column_count(table.total), 2
    ).tolist()
    return edges


def sample_of(total: int, most: int = _SAMPLE) -> I64:
    """Return all numbers below `total`, or one at random of each of `most` equal parts."""
    if total <= most:
        return np.arange(total, dtype=np.int64)
    # At random, since a fixed distance could always meet the same rank.
    edges = (np.arange(most + 1) * (total / most)).astype(np.int64)
    chosen = np.random.default_rng(0).integers(edges[:-1], np.maximum(edges[1:], edges[:-1] + 1))
    return np.minimum(chosen, total - 1)


def sample_files(plan: FilePlan, made: I64) -> tuple[I64, I64, I64]:
    """Return rank, step and record of whole steps, spread evenly over the ``made[r]`` steps of rank r."""
    parts: list[tuple[I64, I64, I64]] = []
    shown = min(plan.world_size, _RANKS_OF_FILES)
    for number in range(shown):
        rank = number * plan.world_size // shown
        steps_of_rank = int(made[rank])
        wanted = min(steps_of_rank, _STEPS_OF_FILES)
        for index in range(wanted):
            step = index * steps_of_rank // wanted
            records = plan.reads_between(step, step + 1, rank)[0][:_BATCH]
            parts.append((np.full(len(records), rank), np.full(len(records), step), records))
    if not parts:
        empty = np.zeros(0, np.int64)
        return empty, empty, empty
    ranks, steps, chosen = zip(*parts, strict=True)
    return np.concatenate(ranks), np.concatenate(steps), np.concatenate(chosen)


def spans_of(records: I64, table: ShardTable) -> list[Span]:
    """Return ascending records as ranges within shards."""
    if not records.size:
        return []
    shard, index = table.locate(records)
    new = np.append(True, (np.diff(records) != 1) | (np.diff(shard) != 0))
    first = np.flatnonzero(new)
    last = np.append(first[1:], records.size) - 1
    columns = (shard[first].tolist(), index[first].tolist(), index[last].tolist())
    return [Span(*one) for one in zip(*columns, strict=True)]
