"""Data of the charts: which steps were executed in which order, and which records each rank read in them.

The horizontal axis of both charts has one slot for each executed step. A step that was lost and repeated has
two slots. Rows that count come from the merged file; rows that were lost come from the parent's memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkeep.demo.data import Packed
from shardkeep.demo.proof import Results, times_used
from shardkeep.demo.report import Death, DemoReport
from shardkeep.demo.train import Training

__all__ = ["EpochCounts", "ReadPoints", "Restart", "Timeline", "TimelineStep", "build_timeline"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TimelineStep:
    """One executed step of all ranks.

    Attributes
    ----------
    step, epoch, world_size : int
    lost : bool
        True if the step was executed after the checkpoint that the run was resumed from.
    loss : float
        Mean loss; NaN where no rank reported one.
    rows : dict
        Number of records that each rank read, by rank.
    """

    step: int
    epoch: int
    world_size: int
    lost: bool
    loss: float
    rows: dict[int, int]


@dataclass(frozen=True)
class Restart:
    """A kill and the restart after it.

    Attributes
    ----------
    slot : int
        Slot of the first step after the restart; the kill happened in the slot before it.
    death : Death
    """

    slot: int
    death: Death


@dataclass(frozen=True)
class ReadPoints:
    """Records that one rank read.

    Attributes
    ----------
    rank : int
    lost : bool
    slots, records : ndarray of int64, shape (points,)
        Slot of the step that used each record, and the global number of the record.
    """

    rank: int
    lost: bool
    slots: Ints
    records: Ints


@dataclass(frozen=True)
class EpochCounts:
    """How often each record was read in one epoch.

    Attributes
    ----------
    kept, lost : ndarray of int64, shape (records,)
        Number of rows of each record in the merged file; number of reads in steps that were lost.
    """

    kept: Ints
    lost: Ints


@dataclass(frozen=True)
class Timeline:
    """All executed steps, restarts and reads of one run, and the reads of each epoch by record."""

    steps: tuple[TimelineStep, ...]
    restarts: tuple[Restart, ...]
    reads: tuple[ReadPoints, ...]
    shard_records: tuple[int, ...]
    epochs: tuple[EpochCounts, ...] = ()

    @property
    def ranks(self) -> int:
        """The largest world size of the run."""
        return max(step.world_size for step in self.steps)


def build_timeline(training: Training, results: Results, packed: Packed, report: DemoReport) -> Timeline:
    """Combine the parent's list of executed steps with the tables of the merged file."""
    starts = np.concatenate([[0], np.cumsum(packed.counts)]).astype(np.int64)
    losses = _mean_losses(results.losses)
    steps = []
    reads: list[ReadPoints] = []
    for slot, done in enumerate(training.executions):
        rows = {rank: part.rows for rank, part in done.parts.items()}
        loss = done.loss if done.lost else losses.get(done.step, math.nan)
        steps.append(TimelineStep(done.step, done.epoch, done.world_size, done.lost, loss, rows))
        if done.lost:
            for rank, part in done.parts.items():
                records = starts[part.shard] + part.index
                reads.append(ReadPoints(rank, True, np.full(len(records), slot, np.int64), records))
    reads.extend(_merged_reads(training, results.predictions, starts))
    return Timeline(
        tuple(steps),
        _restarts(training, report),
        tuple(reads),
        packed.counts,
        _epoch_counts(steps, reads, results, packed, report.epochs),
    )


def _epoch_counts(
    steps: list[TimelineStep], reads: list[ReadPoints], results: Results, packed: Packed, epochs: int
) -> tuple[EpochCounts, ...]:
    epoch_of_slot = np.array([step.epoch for step in steps], np.int64)
    lost = [points for points in reads if points.lost]
    found = []
    for epoch in range(epochs):
        kept, _ = times_used(results.predictions[results.predictions["epoch"] == epoch], packed.counts)
        again = np.zeros(len(kept), np.int64)
        for points in lost:
            np.add.at(again, points.records[epoch_of_slot[points.slots] == epoch], 1)
        found.append(EpochCounts(kept, again))
    return tuple(found)


def _mean_losses(losses: npt.NDArray[Any]) -> dict[int, float]:
    means = {}
    for step in np.unique(losses["step"]):
        of_step = losses[losses["step"] == step]
        rows = int(of_step["rows"].sum())
        if rows:
            means[int(step)] = float((of_step["loss"] * of_step["rows"]).sum() / rows)
    return means


def _merged_reads(training: Training, predictions: npt.NDArray[Any], starts: Ints) -> list[ReadPoints]:
    last_step = max(done.step for done in training.executions)
    slot_of_step = np.full(last_step + 1, -1, np.int64)
    for slot, done in enumerate(training.executions):
        if not done.lost:
            slot_of_step[done.step] = slot
    inside = (predictions["step"] >= 0) & (predictions["step"] <= last_step)
    inside &= (predictions["shard"] >= 0) & (predictions["shard"] < len(starts) - 1)
    drawable = predictions[inside]
    slots = slot_of_step[drawable["step"]]
    records = starts[drawable["shard"]] + drawable["index"]
    return [
        ReadPoints(int(rank), False, slots[chosen], records[chosen])
        for rank in np.unique(drawable["rank"])
        if len(chosen := np.flatnonzero((drawable["rank"] == rank) & (slots >= 0)))
    ]


def _restarts(training: Training, report: DemoReport) -> tuple[Restart, ...]:
    restarts: list[Restart] = []
    slot = 0
    for death in report.deaths:
        # The step of a kill is the first lost execution of that step after the previous kill.
        while slot < len(training.executions):
            done = training.executions[slot]
            slot += 1
            if done.step == death.step and done.lost:
                break
        restarts.append(Restart(slot, death))
    return tuple(restarts)
