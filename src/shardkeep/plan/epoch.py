"""Plan of an epoch in which the ranks share the records of all shards.

A full step takes ``world_size * batch_size`` positions, of which rank r takes the r-th slice of `batch_size`.
The positions that are left at the end are one shorter step, divided as evenly as possible ("mask", "short"),
or are dropped ("drop"). Every rank makes the same number of steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from shardkeep._summary import summary_html
from shardkeep.errors import PlanError
from shardkeep.plan.checks import MAX_BATCH_SIZE, MAX_RECORDS, MAX_WORLD_SIZE, checked_int
from shardkeep.plan.coverage import StridedRanges, true_ranges

__all__ = ["EpochPlan", "Remainder", "StepPlan", "steps_per_epoch"]

Remainder = Literal["mask", "drop", "short"]
I64 = NDArray[np.int64]


class StepPlan(Protocol):
    """The common interface of `EpochPlan` and `FilePlan`.

    A plan counts what it delivers in *read numbers*: positions of the epoch's order where the ranks share all
    records, global record numbers where each rank reads whole files.
    """

    @property
    def records(self) -> int:
        """Number of records of the whole epoch."""

    @property
    def batch_size(self) -> int:
        """Number of rows that a rank takes in a full step."""

    @property
    def start(self) -> int:
        """Number of records that were delivered before this run resumed the epoch."""

    @property
    def steps(self) -> int:
        """Number of steps that every rank makes; 0 if nothing is left."""

    def position_after(self, steps: int) -> int:
        """Return how many records are delivered once every rank has made `steps` steps."""

    def positions_after(self, first_step: int, last_step: int) -> list[int]:
        """Return `position_after` for the ends of steps ``[first_step, last_step)``."""

    def reads_between(self, first_step: int, last_step: int, rank: int) -> tuple[I64, I64]:
        """Return a rank's read numbers in steps ``[first_step, last_step)``, and how many each step has."""

    def sample_read(self, step: int, rank: int) -> int:
        """Return any read number of the epoch, for the shapes of a batch without rows."""

    def delivered_ranges(self, steps: I64) -> StridedRanges:
        """Return the read numbers that are delivered after rank r has made ``steps[r]`` steps."""

    def dropped_ranges(self) -> StridedRanges:
        """Return the read numbers that no rank delivers."""

    def ranks_of(self, reads: I64, steps: I64) -> I64:
        """Return the rank that has delivered each read number after rank r made ``steps[r]`` steps, or -1."""


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """The steps of one epoch, from the position at which a run begins or resumes it.

    Parameters
    ----------
    records : int
        Number of records, and of positions, of the whole epoch.
    start : int
        Position at which the run begins; ``[0, start)`` was delivered before, by any world.
    world_size, batch_size : int
        Number of ranks, and of rows that one rank takes in a full step.
    remainder : {"mask", "drop", "short"}
        Treatment of the positions that do not fill a step. "mask" and "short" have the same plan and differ
        only in the batches.

    Raises
    ------
    PlanError
        A number is out of range, ``start > records``, or `remainder` is unknown.

    Examples
    --------
    Ten records, two ranks, batches of three: a full step, and a step with the remaining four records.

    >>> plan = EpochPlan(10, 0, 2, 3, "mask")
    >>> plan.steps
    2
    >>> [plan.rank_span(step, rank) for step in range(2) for rank in range(2)]
    [(0, 3), (3, 6), (6, 8), (8, 10)]

    Resumed by three ranks after the first step:

    >>> EpochPlan(10, 6, 3, 3, "mask").rank_span(0, 2)
    (8, 10)
    """

    records: int
    start: int
    world_size: int
    batch_size: int
    remainder: Remainder

    _repr_html_ = summary_html

    def __post_init__(self) -> None:
        records = checked_int("records", self.records, 0, MAX_RECORDS)
        numbers = {
            "records": records,
            "start": checked_int("start", self.start, 0, records),
            "world_size": checked_int("world_size", self.world_size, 1, MAX_WORLD_SIZE),
            "batch_size": checked_int("batch_size", self.batch_size, 1, MAX_BATCH_SIZE),
        }
        for name, value in numbers.items():
            object.__setattr__(self, name, value)
        if self.remainder not in get_args(Remainder):
            raise PlanError(f'remainder must be "mask", "drop" or "short", not {self.remainder!r}')

    @property
    def global_batch(self) -> int:
        """Number of positions that a full step takes over all ranks."""
        return self.world_size * self.batch_size

    @property
    def full_steps(self) -> int:
        """Number of steps in which every rank has a full batch."""
        return (self.records - self.start) // self.global_batch

    @property
    def rest(self) -> int:
        """Number of positions after the last full step; less than `global_batch`."""
        return (self.records - self.start) % self.global_batch

    @property
    def steps(self) -> int:
        """Number of steps that every rank makes; 0 if nothing is left."""
        return self.full_steps + (self.rest > 0 and self.remainder != "drop")

    @property
    def dropped(self) -> tuple[int, int]:
        """The half-open range of positions that no rank delivers; empty unless `remainder` is "drop"."""
        return self.position_after(self.steps), self.records

    def position_after(self, steps: int) -> int:
        """Return the position, as in a state, once every rank has made `steps` steps.

        Parameters
        ----------
        steps : int
            Number of steps of every rank.

        Returns
        -------
        int

        Raises
        ------
        PlanError
            `steps` is not in ``[0, self.steps]``.
        """
        steps = checked_int("steps", steps, 0, self.steps)
        return min(self.start + steps * self.global_batch, self.records)

    def positions_after(self, first_step: int, last_step: int) -> list[int]:
        """Return `position_after` for the ends of steps ``[first_step, last_step)``.

        Parameters
        ----------
        first_step, last_step : int
            Half-open range of steps.

        Returns
        -------
        list of int
            A position for each step.
        """
        ends = self.start + np.arange(first_step + 1, last_step + 1, dtype=np.int64) * self.global_batch
        positions: list[int] = np.minimum(ends, self.records).tolist()
        return positions

    def span(self, step: int) -> tuple[int, int]:
        """Return the half-open range of positions that one step takes over all ranks.

        Parameters
        ----------
        step : int

        Returns
        -------
        start, stop : int

        Raises
        ------
        PlanError
            `step` is not in ``[0, self.steps)``.
        """
        step = checked_int("step", step, 0, self.steps - 1)
        return self.position_after(step), self.position_after(step + 1)

    def rank_span(self, step: int, rank: int) -> tuple[int, int]:
        """Return the half-open range of positions that one rank takes in one step.

        The range is empty for some ranks if the last step has fewer positions than there are ranks.

        Parameters
        ----------
        step, rank : int

        Returns
        -------
        start, stop : int

        Raises
        ------
        PlanError
            `step` is not in ``[0, self.steps)``, or `rank` not in ``[0, world_size)``.
        """
        rank = checked_int("rank", rank, 0, self.world_size - 1)
        start, stop = self.span(step)
        if stop - start == self.global_batch:
            return start + rank * self.batch_size, start + (rank + 1) * self.batch_size
        rest = stop - start
        return start + rank * rest // self.world_size, start + (rank + 1) * rest // self.world_size

    def step_spans(self, step: int) -> tuple[I64, I64]:
        """Return `rank_span` of one step for all ranks.

        Parameters
        ----------
        step : int

        Returns
        -------
        starts, stops : ndarray of int64, shape (world_size,)

        Raises
        ------
        PlanError
            `step` is not in ``[0, self.steps)``.
        """
        start, stop = self.span(step)
        share, more = divmod(stop - start, self.world_size)
        rank = np.arange(self.world_size + 1, dtype=np.int64)
        # In two parts, since the product of rank and rest may exceed int64.
        edges = start + rank * share + rank * more // self.world_size
        return edges[:-1], edges[1:]

    def rank_spans(self, first_step: int, last_step: int, rank: int) -> tuple[I64, I64]:
        """Return `rank_span` of the steps ``[first_step, last_step)``.

        Parameters
        ----------
        first_step, last_step : int
            Half-open range of steps.
        rank : int

        Returns
        -------
        starts, stops : ndarray of int64, shape (last_step - first_step,)

        Raises
        ------
        PlanError
            ``0 <= first_step <= last_step <= self.steps`` does not hold, or `rank` is not in ``[0,
            world_size)``.
        """
        last_step = checked_int("last_step", last_step, 0, self.steps)
        first_step = checked_int("first_step", first_step, 0, last_step)
        rank = checked_int("rank", rank, 0, self.world_size - 1)
        starts = np.arange(first_step, last_step, dtype=np.int64)
        starts *= self.global_batch
        starts += self.start + rank * self.batch_size
        stops = starts + self.batch_size
        if first_step < last_step and last_step > self.full_steps:
            starts[-1], stops[-1] = self.rank_span(last_step - 1, rank)
        return starts, stops

    def reads_between(self, first_step: int, last_step: int, rank: int) -> tuple[I64, I64]:
        """Return the positions of a rank in steps ``[first_step, last_step)``; see `StepPlan`."""
        starts, stops = self.rank_spans(first_step, last_step, rank)
        lengths = stops - starts
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if ends.size else 0
        return np.arange(total, dtype=np.int64) + np.repeat(starts - (ends - lengths), lengths), lengths

    def sample_read(self, step: int, rank: int) -> int:
        """Return the first position of a step; see `StepPlan`."""
        return self.position_after(step)

    def delivered_ranges(self, steps: I64) -> StridedRanges:
        """Return the positions that are delivered after rank r has made ``steps[r]`` steps.

        Parameters
        ----------
        steps : ndarray of int64, shape (world_size,)
            Number of steps that each rank has made.

        Returns
        -------
        StridedRanges
            Steps that all ranks made are one interval. Where ranks differ, each group of neighbours is
            one strided range.
        """
        parts: list[StridedRanges] = []
        below = 0
        for level in np.unique(np.minimum(steps, self.full_steps)).tolist():
            if level > below:
                first, last = true_ranges(steps >= level)
                base = self.start + below * self.global_batch
                if first.size == 1 and last[0] - first[0] == self.world_size:
                    starts = np.array([base], np.int64)
                    parts.append(
                        StridedRanges.intervals(starts, starts + (level - below) * self.global_batch)
                    )
                else:
                    starts = base + first * self.batch_size
                    stride = np.full_like(starts, self.global_batch)
                    count = np.full_like(starts, level - below)
                    parts.append(StridedRanges(starts, stride, count, (last - first) * self.batch_size))
                below = level
        if self.steps > self.full_steps:
            first, last = true_ranges(steps > self.full_steps)
            spans = [
                (self.rank_span(self.full_steps, a)[0], self.rank_span(self.full_steps, b - 1)[1])
                for a, b in zip(first.tolist(), last.tolist(), strict=True)
            ]
            starts, stops = np.array(spans, dtype=np.int64).reshape(-1, 2).T
            parts.append(StridedRanges.intervals(starts, stops))
        return StridedRanges.concatenate(parts)

    def dropped_ranges(self) -> StridedRanges:
        """Return the positions that no rank delivers."""
        start, stop = self.dropped
        return StridedRanges.intervals(np.array([start]), np.array([stop]))

    def ranks_of(self, reads: I64, steps: I64) -> I64:
        """Return the rank that has delivered each position after rank r made ``steps[r]`` steps.

        Parameters
        ----------
        reads : ndarray of int64
            Positions of the epoch.
        steps : ndarray of int64, shape (world_size,)
            Number of steps that each rank has made.

        Returns
        -------
        ndarray of int64
            Ranks in the shape of `reads`; -1 where no rank has.

        Examples
        --------
        >>> EpochPlan(10, 0, 2, 3, "mask").ranks_of(np.arange(10), np.array([2, 1])).tolist()
        [0, 0, 0, 1, 1, 1, 0, 0, -1, -1]
        """
        step, inside = np.divmod(reads - self.start, self.global_batch)
        rank = inside // self.batch_size
        if self.steps > self.full_steps:
            rest = step == self.full_steps
            starts, _ = self.step_spans(self.full_steps)
            rank[rest] = np.searchsorted(starts, reads[rest], side="right") - 1
        delivered = (step >= 0) & (step < steps[rank])
        return np.where(delivered, rank, -1)


def steps_per_epoch(
    records: int, *, world_size: int, batch_size: int, remainder: Remainder = "mask", start: int = 0
) -> int:
    """Return the number of steps that every rank makes from position `start` to the end of the epoch.

    Parameters
    ----------
    records, world_size, batch_size, remainder, start
        As for `EpochPlan`.

    Returns
    -------
    int
        The number of steps.

    Raises
    ------
    PlanError
        An argument is out of range, see `EpochPlan`.

    Examples
    --------
    >>> steps_per_epoch(1_281_167, world_size=8, batch_size=256)
    626
    >>> steps_per_epoch(1_281_167, world_size=8, batch_size=256, remainder="drop")
    625
    """
    return EpochPlan(records, start, world_size, batch_size, remainder).steps
