"""Which positions of an epoch each rank delivers at each step.

A full step takes ``world_size * batch_size`` positions, of which rank r takes the r-th slice of
`batch_size`. What is left at the end is one shorter step that is shared as evenly as possible
("mask", "short"), or is dropped ("drop"). Every rank makes the same number of steps, whatever the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from shardkeep.errors import PlanError
from shardkeep.plan.checks import MAX_BATCH_SIZE, MAX_RECORDS, MAX_WORLD_SIZE, checked_int

__all__ = ["EpochPlan", "Remainder", "steps_per_epoch"]

Remainder = Literal["mask", "drop", "short"]


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """The steps of one epoch, from the position where this run takes it up.

    Parameters
    ----------
    records : int
        Records, and so positions, of the whole epoch.
    start : int
        Where the run begins: the positions ``[0, start)`` were delivered before, by any world.
    world_size, batch_size : int
        Ranks, and rows that one rank takes in a full step.
    remainder : {"mask", "drop", "short"}
        What happens to the positions that do not fill a step. "mask" and "short" plan alike; they differ
        in how a batch is handed out.

    Raises
    ------
    PlanError
        For a number out of range, ``start > records`` or an unknown `remainder`.

    Examples
    --------
    Ten records, two ranks, batches of three: a full step and a shared rest.

    >>> plan = EpochPlan(10, 0, 2, 3, "mask")
    >>> plan.steps
    2
    >>> [plan.rank_span(step, rank) for step in range(2) for rank in range(2)]
    [(0, 3), (3, 6), (6, 8), (8, 10)]

    Taken up by three ranks after the first step:

    >>> EpochPlan(10, 6, 3, 3, "mask").rank_span(0, 2)
    (8, 10)
    """

    records: int
    start: int
    world_size: int
    batch_size: int
    remainder: Remainder

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
            raise PlanError(f'remainder={self.remainder!r} is unknown: give "mask", "drop" or "short"')

    @property
    def global_batch(self) -> int:
        """Positions that a full step takes over all ranks."""
        return self.world_size * self.batch_size

    @property
    def full_steps(self) -> int:
        """Steps in which every rank has a full batch."""
        return (self.records - self.start) // self.global_batch

    @property
    def rest(self) -> int:
        """Positions after the last full step; less than `global_batch`."""
        return (self.records - self.start) % self.global_batch

    @property
    def steps(self) -> int:
        """Steps that every rank makes; 0 when nothing is left."""
        return self.full_steps + (self.rest > 0 and self.remainder != "drop")

    @property
    def dropped(self) -> tuple[int, int]:
        """The half-open range of positions that no rank delivers; empty unless `remainder` is "drop"."""
        return self.position_after(self.steps), self.records

    def position_after(self, steps: int) -> int:
        """Return the global position once every rank has made `steps` steps: what a state holds.

        Raises
        ------
        PlanError
            Unless ``0 <= steps <= self.steps``.
        """
        steps = checked_int("steps", steps, 0, self.steps)
        return min(self.start + steps * self.global_batch, self.records)

    def span(self, step: int) -> tuple[int, int]:
        """Return the half-open range of positions that one step takes over all ranks.

        Raises
        ------
        PlanError
            Unless ``0 <= step < self.steps``.
        """
        step = checked_int("step", step, 0, self.steps - 1)
        return self.position_after(step), self.position_after(step + 1)

    def rank_span(self, step: int, rank: int) -> tuple[int, int]:
        """Return the half-open range of positions that one rank takes in one step.

        Empty for some ranks of the last step when it has fewer positions than there are ranks.

        Raises
        ------
        PlanError
            Unless ``0 <= step < self.steps`` and ``0 <= rank < world_size``.
        """
        rank = checked_int("rank", rank, 0, self.world_size - 1)
        start, stop = self.span(step)
        if stop - start == self.global_batch:
            return start + rank * self.batch_size, start + (rank + 1) * self.batch_size
        rest = stop - start
        return start + rank * rest // self.world_size, start + (rank + 1) * rest // self.world_size

    def step_spans(self, step: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return `rank_span` of one step for all ranks at once.

        Returns
        -------
        starts, stops : ndarray of int64, shape (world_size,)

        Raises
        ------
        PlanError
            Unless ``0 <= step < self.steps``.
        """
        start, stop = self.span(step)
        share, more = divmod(stop - start, self.world_size)
        rank = np.arange(self.world_size + 1, dtype=np.int64)
        # In two parts: rank times the rest may be too large for int64.
        edges = start + rank * share + rank * more // self.world_size
        return edges[:-1], edges[1:]

    def rank_spans(
        self, first_step: int, last_step: int, rank: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return `rank_span` of the steps ``[first_step, last_step)`` at once.

        Returns
        -------
        starts, stops : ndarray of int64, shape (last_step - first_step,)

        Raises
        ------
        PlanError
            Unless ``0 <= first_step <= last_step <= self.steps`` and ``0 <= rank < world_size``.
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


def steps_per_epoch(
    records: int, *, world_size: int, batch_size: int, remainder: Remainder = "mask", start: int = 0
) -> int:
    """Return how many steps every rank makes from position `start` to the end of the epoch.

    Raises
    ------
    PlanError
        As `EpochPlan` does.

    Examples
    --------
    >>> steps_per_epoch(1_281_167, world_size=8, batch_size=256)
    626
    >>> steps_per_epoch(1_281_167, world_size=8, batch_size=256, remainder="drop")
    625
    """
    return EpochPlan(records, start, world_size, batch_size, remainder).steps
