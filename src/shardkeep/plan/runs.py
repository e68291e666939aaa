"""Which ranks went through an epoch together, put back together from their receipts.

A *run* is all ranks that took up an epoch at one position with one world and batch size. Receipts do not
name their run, so it is found by what its ranks must share; where one rank shows up twice, two runs did the
same, and the k-th longest segment of each rank is taken for the k-th run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardkeep.plan.by_files import FilePlan
from shardkeep.plan.coverage import Combs
from shardkeep.plan.division import Leg
from shardkeep.plan.epoch import EpochPlan, Remainder

__all__ = ["Run", "RunKey", "named_ranks", "runs_of"]


@dataclass(frozen=True, slots=True, order=True)
class RunKey:
    """What the ranks of one run share; ordered by epoch, then by position."""

    epoch: int
    start: int
    world_size: int
    batch_size: int
    cycle_length: int = 0
    history: tuple[Leg, ...] = ()

    def __str__(self) -> str:
        return f"position {self.start} (world size {self.world_size}, batch size {self.batch_size})"


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One run through one epoch.

    Attributes
    ----------
    plan : EpochPlan or FilePlan
    steps : ndarray of int64, shape (world_size,)
        Steps that each rank delivered, cut to what the plan has.
    present : ndarray of bool, shape (world_size,)
        Whether there is a receipt of that rank for this run at all.
    overrun : ndarray of bool, shape (world_size,)
        Whether a receipt claims more steps than the plan has.
    remainders : tuple of str
        What the receipts say, sorted; more than one is a fault.
    again : bool
        Whether this is a second run that did what another one with the same key had done.
    """

    key: RunKey
    plan: EpochPlan | FilePlan
    steps: NDArray[np.int64]
    present: NDArray[np.bool_]
    overrun: NDArray[np.bool_]
    remainders: tuple[Remainder, ...]
    again: bool

    @property
    def stop(self) -> int:
        """The position that the rank which got furthest had reached."""
        return self.plan.position_after(int(self.steps.max()))

    @property
    def finished(self) -> bool:
        """Whether every rank made every step of the plan."""
        return bool(self.present.all()) and int(self.steps.min()) == self.plan.steps

    def combs(self) -> Combs:
        """Return what the ranks delivered: positions of the epoch, or record numbers where they read files.

        Files are read in order, so what was delivered of each is one range. Otherwise, steps that all ranks
        made are one interval. Where ranks differ, each stretch of neighbouring ranks is one comb.
        """
        plan = self.plan
        if isinstance(plan, FilePlan):
            offsets = plan.files.table.offsets[:-1]
            return Combs.ranges(offsets + plan.read_after(0), offsets + plan.read_after(self.steps))
        columns: list[tuple[NDArray[np.int64], int, int, NDArray[np.int64]]] = []
        levels = np.unique(np.minimum(self.steps, plan.full_steps)).tolist()
        below = 0
        for level in levels:
            if level > below:
                first, last = _stretches(self.steps >= level)
                base = plan.start + below * plan.global_batch
                if first.size == 1 and last[0] - first[0] == plan.world_size:
                    length = np.array([(level - below) * plan.global_batch], dtype=np.int64)
                    columns.append((np.array([base], dtype=np.int64), plan.global_batch, 1, length))
                else:
                    starts = base + first * plan.batch_size
                    columns.append(
                        (starts, plan.global_batch, level - below, (last - first) * plan.batch_size)
                    )
                below = level
        if plan.steps > plan.full_steps:
            first, last = _stretches(self.steps > plan.full_steps)
            step = plan.full_steps
            spans = [
                (plan.rank_span(step, a)[0], plan.rank_span(step, b - 1)[1])
                for a, b in zip(first.tolist(), last.tolist(), strict=True)
            ]
            starts, stops = np.array(spans, dtype=np.int64).reshape(-1, 2).T
            columns.append((starts, 1, 1, stops - starts))
        return Combs.joined(
            [
                Combs(starts, np.full_like(starts, stride), np.full_like(starts, count), length)
                for starts, stride, count, length in columns
            ]
        )

    def dropped(self) -> Combs:
        """Return what a finished run left out on purpose, in the terms of `combs`."""
        plan = self.plan
        if not self.finished:
            return Combs.joined([])
        if isinstance(plan, FilePlan):
            offsets = plan.files.table.offsets
            return Combs.ranges(offsets[:-1] + plan.read_after(self.steps), offsets[1:])
        start, stop = plan.dropped
        return Combs.ranges(np.array([start]), np.array([stop]))


def _stretches(chosen: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return first and last (exclusive) of each stretch of True."""
    edges = np.diff(np.concatenate([[0], chosen.astype(np.int8), [0]]))
    return np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)


def runs_of(
    key: RunKey,
    plan_of: Callable[[Remainder], EpochPlan | FilePlan],
    ranks: Sequence[int],
    steps: Sequence[int],
    remainders: Sequence[Remainder],
) -> list[Run]:
    """Sort the segments that share `key` into runs, the longest first; `plan_of` plans for a remainder."""
    rank = np.array(ranks, dtype=np.int64)
    made = np.array(steps, dtype=np.int64)
    order = np.lexsort((-made, rank))
    rank, made = rank[order], made[order]
    begins = np.flatnonzero(np.append(True, rank[1:] != rank[:-1]))
    layer = np.arange(rank.size) - np.repeat(begins, np.diff(np.append(begins, rank.size)))
    kinds = tuple(sorted(set(remainders)))
    # A rank that drops the rest makes no step for it, so where ranks disagree the longer plan holds both.
    plan = plan_of("drop" if kinds == ("drop",) else "mask")
    runs = []
    for number in range(int(layer.max()) + 1):
        mine = layer == number
        if number and not made[mine].any():
            break
        claimed = np.zeros(key.world_size, dtype=np.int64)
        present = np.zeros(key.world_size, dtype=np.bool_)
        claimed[rank[mine]] = made[mine]
        present[rank[mine]] = True
        cut = np.minimum(claimed, plan.steps)
        runs.append(Run(key, plan, cut, present, claimed > cut, kinds, number > 0))
    return runs


def named_ranks(chosen: NDArray[np.bool_]) -> str:
    """Return ranks as a person writes them: ``rank 3``, ``ranks 0-2, 7``, at most five stretches.

    Examples
    --------
    >>> named_ranks(np.array([True, True, False, True]))
    'ranks 0-1, 3'
    """
    first, last = _stretches(chosen)
    shown = [f"{a}" if b - a == 1 else f"{a}-{b - 1}" for a, b in zip(first[:5], last[:5], strict=True)]
    rest = int(chosen.sum()) - int((last[:5] - first[:5]).sum())
    more = f" and {rest} more" if rest else ""
    return ("rank " if chosen.sum() == 1 else "ranks ") + ", ".join(shown) + more
