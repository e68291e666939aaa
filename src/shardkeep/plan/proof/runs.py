"""Runs of an epoch, reconstructed from receipts.

A *run* is all ranks that began or resumed an epoch at one position with one world and batch size. Receipts do
not name their run, so it is identified by the values that its ranks share. Where a rank occurs twice, two
runs did the same, and the k-th longest segment of each rank belongs to the k-th run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shardkeep.plan.coverage import StridedRanges, true_ranges
from shardkeep.plan.epoch import Remainder, StepPlan
from shardkeep.plan.file_assignment import HistoryEntry, merge_history

__all__ = ["Run", "RunKey", "join_runs", "named_ranks", "runs_of"]


@dataclass(frozen=True, slots=True, order=True)
class RunKey:
    """Values that the ranks of one run share; ordered by epoch, then by position."""

    epoch: int
    start: int
    world_size: int
    batch_size: int
    cycle_length: int = 0
    history: tuple[HistoryEntry, ...] = ()

    def __str__(self) -> str:
        return f"position {self.start} (world size {self.world_size}, batch size {self.batch_size})"


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One run through one epoch.

    Attributes
    ----------
    key : RunKey
    plan : StepPlan
    steps : ndarray of int64, shape (world_size,)
        Number of steps that each rank delivered, at most those of the plan.
    present : ndarray of bool, shape (world_size,)
        True for each rank that has a receipt of this run.
    overrun : ndarray of bool, shape (world_size,)
        True for each rank whose receipt claims more steps than the plan has.
    remainders : tuple of str
        The values of `remainder` in the receipts, sorted; more than one is a fault.
    again : bool
        True if another run with the same key did the same before.
    """

    key: RunKey
    plan: StepPlan
    steps: NDArray[np.int64]
    present: NDArray[np.bool_]
    overrun: NDArray[np.bool_]
    remainders: tuple[Remainder, ...]
    again: bool

    @property
    def stop(self) -> int:
        """The position that the rank with most steps reached."""
        return self.plan.position_after(int(self.steps.max()))

    @property
    def finished(self) -> bool:
        """True if every rank made every step of the plan."""
        return bool(self.present.all()) and int(self.steps.min()) == self.plan.steps

    def delivered(self) -> StridedRanges:
        """Return the read numbers that the ranks delivered; see `StepPlan`."""
        return self.plan.delivered_ranges(self.steps)

    def dropped(self) -> StridedRanges:
        """Return the read numbers that a finished run dropped on purpose."""
        return self.plan.dropped_ranges() if self.finished else StridedRanges.concatenate([])


def runs_of(
    key: RunKey,
    plan_of: Callable[[Remainder], StepPlan],
    ranks: Sequence[int],
    steps: Sequence[int],
    remainders: Sequence[Remainder],
) -> list[Run]:
    """Group the segments that share `key` into runs, longest first; `plan_of` plans for a remainder."""
    rank = np.array(ranks, dtype=np.int64)
    made = np.array(steps, dtype=np.int64)
    order = np.lexsort((-made, rank))
    rank, made = rank[order], made[order]
    begins = np.flatnonzero(np.append(True, rank[1:] != rank[:-1]))
    layer = np.arange(rank.size) - np.repeat(begins, np.diff(np.append(begins, rank.size)))
    kinds = tuple(sorted(set(remainders)))
    # A rank that drops the remainder makes no step for it, so where ranks differ the longer plan covers both.
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


def join_runs(runs: Sequence[Run]) -> list[Run]:
    """Join the runs of an epoch that single ranks resumed, each at its own step; `runs` are in order.

    Asynchronous workers resume so. Where a rank left one run after the steps at which a later one begins, its
    steps there continue those of the first.
    """
    joined: list[Run] = []
    for run in runs:
        present, steps = run.present.copy(), run.steps.copy()
        for i, earlier in enumerate(joined):
            left = _steps_before(earlier, run)
            if not left or run.present.all() or run.again or earlier.again:
                continue
            mine = present & earlier.present & (earlier.steps == left)
            if mine.any():
                joined[i] = replace(
                    earlier,
                    steps=earlier.steps + np.where(mine, steps, 0),
                    overrun=earlier.overrun | (mine & run.overrun),
                    remainders=tuple(sorted({*earlier.remainders, *run.remainders})),
                )
                present, steps = present & ~mine, np.where(mine, 0, steps)
        if present.any():
            joined.append(replace(run, present=present, steps=steps))
    return joined


def _steps_before(earlier: Run, run: Run) -> int:
    """Return after how many steps of a run another one with the same assignment begins, 0 if it does not."""
    first, key = earlier.key, run.key
    if (first.world_size, first.batch_size, first.cycle_length) != (
        key.world_size,
        key.batch_size,
        key.cycle_length,
    ):
        return 0
    if not key.cycle_length:
        steps, rest = divmod(key.start - first.start, key.world_size * key.batch_size)
        return 0 if rest else steps
    steps = sum(one.steps for one in key.history) - sum(one.steps for one in first.history)
    made = HistoryEntry(key.world_size, key.batch_size, key.cycle_length, max(steps, 0))
    return steps if merge_history([*first.history, made]) == key.history else 0


def named_ranks(chosen: NDArray[np.bool_]) -> str:
    """Return ranks as text, such as ``rank 3`` or ``ranks 0-2, 7``, with at most five ranges.

    Examples
    --------
    >>> named_ranks(np.array([True, True, False, True]))
    'ranks 0-1, 3'
    """
    first, last = true_ranges(chosen)
    shown = [f"{a}" if b - a == 1 else f"{a}-{b - 1}" for a, b in zip(first[:5], last[:5], strict=True)]
    rest = int(chosen.sum()) - int((last[:5] - first[:5]).sum())
    more = f" and {rest} more" if rest else ""
    return ("rank " if chosen.sum() == 1 else "ranks ") + ", ".join(shown) + more
