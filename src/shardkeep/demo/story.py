"""The run as points to draw: what happened at which tick.

The horizontal axis of every picture counts *ticks*: steps in the order they happened, so that a step
that was lost and done again has two. What stands is taken from the merged file; what was lost is
in no file any more and comes from the parent's memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkeep.demo.data import Packed
from shardkeep.demo.proof import Results
from shardkeep.demo.report import DemoReport
from shardkeep.demo.train import Training

__all__ = ["Dots", "Mark", "Story", "Turn", "tell"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Mark:
    """One tick: a step of all ranks of the world of that time.

    `rows` has the number of records that each rank read, by rank; `loss` is not a number where no
    rank told one.
    """

    step: int
    epoch: int
    world_size: int
    lost: bool
    loss: float
    rows: dict[int, int]


@dataclass(frozen=True)
class Turn:
    """A kill: it happened in the tick before `tick`; the new world begins with `tick`."""

    tick: int
    rank: int
    step: int
    resumed_step: int
    workers_before: int
    workers_after: int


@dataclass(frozen=True)
class Dots:
    """Records that one rank read: at which tick (from 0) and which (numbered over all shards)."""

    rank: int
    lost: bool
    ticks: Ints
    records: Ints


@dataclass(frozen=True)
class Story:
    """All there is to draw."""

    marks: tuple[Mark, ...]
    turns: tuple[Turn, ...]
    dots: tuple[Dots, ...]
    shard_records: tuple[int, ...]

    @property
    def ranks(self) -> int:
        """The largest world of the run."""
        return max((mark.world_size for mark in self.marks), default=1)


def tell(training: Training, results: Results, packed: Packed, report: DemoReport) -> Story:
    """Bring the parent's memory of ticks and the tables of the merged file together."""
    starts = np.concatenate([[0], np.cumsum(packed.counts)]).astype(np.int64)
    losses = _mean_losses(results.losses)
    marks = []
    dots: list[Dots] = []
    for number, tick in enumerate(training.ticks):
        rows = {rank: part.rows for rank, part in tick.parts.items()}
        loss = tick.loss if tick.lost else losses.get(tick.step, math.nan)
        marks.append(Mark(tick.step, tick.epoch, tick.world_size, tick.lost, loss, rows))
        if tick.lost:
            for rank, part in tick.parts.items():
                records = starts[part.shard] + part.index
                dots.append(Dots(rank, True, np.full(len(records), number, np.int64), records))
    dots.extend(_standing_dots(training, results.predictions, starts))
    return Story(tuple(marks), _turns(training, report), tuple(dots), packed.counts)


def _mean_losses(losses: npt.NDArray[Any]) -> dict[int, float]:
    found = {}
    for step in np.unique(losses["step"]):
        of_step = losses[losses["step"] == step]
        rows = int(of_step["rows"].sum())
        if rows:
            found[int(step)] = float((of_step["loss"] * of_step["rows"]).sum() / rows)
    return found


def _standing_dots(training: Training, predictions: npt.NDArray[Any], starts: Ints) -> list[Dots]:
    last_step = max((tick.step for tick in training.ticks), default=0)
    tick_of_step = np.full(last_step + 1, -1, np.int64)
    for number, tick in enumerate(training.ticks):
        if not tick.lost:
            tick_of_step[tick.step] = number
    inside = (predictions["step"] >= 0) & (predictions["step"] <= last_step)
    inside &= (predictions["shard"] >= 0) & (predictions["shard"] < len(starts) - 1)
    drawable = predictions[inside]
    ticks = tick_of_step[drawable["step"]]
    records = starts[drawable["shard"]] + drawable["index"]
    return [
        Dots(int(rank), False, ticks[chosen], records[chosen])
        for rank in np.unique(drawable["rank"])
        if len(chosen := np.flatnonzero((drawable["rank"] == rank) & (ticks >= 0)))
    ]


def _turns(training: Training, report: DemoReport) -> tuple[Turn, ...]:
    turns: list[Turn] = []
    position = 0
    for death in report.deaths:
        # Its last tick is the first one of that step that is lost and not yet behind us.
        while position < len(training.ticks):
            tick = training.ticks[position]
            position += 1
            if tick.step == death.step and tick.lost:
                break
        turns.append(
            Turn(
                position,
                death.rank,
                death.step,
                death.resumed_step,
                death.workers_before,
                death.workers_after,
            )
        )
    return tuple(turns)
