"""Plan of an epoch in which each rank reads whole files, several of them interleaved.

The files are assigned to the ranks by their size in bytes: the largest first, each to the rank with the least
bytes so far. A rank reads `cycle_length` files at a time, one record of each in turn; where one ends, the
next takes its slot.

The order of the records therefore depends on the number of ranks. A run that resumes an epoch in the middle
gets its history, a few numbers for each world before it, and computes from it how much of every file was
read. The unread parts of the files are then assigned again. Each file is read in order, so the records of a
file that all runs together have delivered are always one range.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shardkeep.errors import PlanError
from shardkeep.plan.checks import MAX_EPOCH, checked_int
from shardkeep.plan.coverage import StridedRanges
from shardkeep.plan.epoch import EpochPlan, Remainder
from shardkeep.plan.file_assignment import FileAssignment, FileSet, HistoryEntry, merge_history
from shardkeep.plan.interleave import Interleave

__all__ = ["FilePlan"]

I64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class FilePlan:
    """The steps of one epoch in which ranks read whole files, from where a run begins or resumes it.

    Parameters
    ----------
    files : FileSet
    world_size, batch_size : int
        Number of ranks and of rows, as in `EpochPlan`.
    cycle_length : int
        Number of files that a rank reads at a time.
    remainder : {"mask", "drop", "short"}
        Treatment of ranks with fewer records than others. With "mask" and "short" they make padded or empty
        batches until the last rank is done; with "drop" all stop before the first step that some rank cannot
        fill.
    epoch : int
    history : tuple of HistoryEntry
        The steps of this epoch that were made before. If the last entry has the same assignment as this run,
        the run continues it.

    Raises
    ------
    PlanError
        A number is out of range, or the history is longer than the epoch.

    Examples
    --------
    >>> from shardkeep.plan import ShardTable
    >>> files = FileSet(ShardTable([4, 3, 2]), [40, 30, 20])
    >>> plan = FilePlan(files, 2, 2, 16, "mask")
    >>> plan.steps
    3
    >>> [plan.reads_between(0, plan.steps, rank)[0].tolist() for rank in range(2)]
    [[0, 1, 2, 3], [4, 7, 5, 8, 6]]

    A single rank resumes after one step:

    >>> later = FilePlan(files, 1, 5, 16, "mask", history=(HistoryEntry(2, 2, 16, 1),))
    >>> later.reads_between(0, 1, 0)[0].tolist()
    [2, 5, 8, 3, 6]
    """

    files: FileSet
    world_size: int
    batch_size: int
    cycle_length: int
    remainder: Remainder
    epoch: int = 0
    history: tuple[HistoryEntry, ...] = ()
    _before: int = field(init=False, repr=False)
    _assignment: FileAssignment = field(init=False, repr=False)
    _interleaves: dict[int, Interleave] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        EpochPlan(self.records, 0, self.world_size, self.batch_size, self.remainder)
        checked_int("epoch", self.epoch, 0, MAX_EPOCH)
        earlier, before = merge_history(self.history), 0
        object.__setattr__(self, "history", earlier)
        mine = HistoryEntry(self.world_size, self.batch_size, self.cycle_length, 0)
        if earlier and earlier[-1].same_assignment(mine):
            *rest, last = earlier
            earlier, before = tuple(rest), last.steps
        assignment = self.files.assignment(self.epoch, earlier, self.world_size, self.cycle_length)
        object.__setattr__(self, "_before", before)
        object.__setattr__(self, "_assignment", assignment)
        if not 0 <= before <= self._steps("mask"):
            most = self._steps("mask")
            raise PlanError(f"the history claims {before} steps, but {most} are possible: was it edited?")

    # -- steps and positions ------------------------------------------------------------------------------

    @property
    def records(self) -> int:
        """Number of records of the whole epoch."""
        return self.files.table.total

    @property
    def start(self) -> int:
        """Number of records that were delivered before this run began or resumed the epoch."""
        return self._delivered(self._before)

    @property
    def steps(self) -> int:
        """Number of steps that every rank makes in this run; 0 if nothing is left."""
        return max(self._steps(self.remainder) - self._before, 0)

    def position_after(self, steps: int) -> int:
        """Return the number of records that are delivered once every rank has made `steps` steps.

        Raises
        ------
        PlanError
            `steps` is not in ``[0, self.steps]``.
        """
        return self._delivered(self._before + checked_int("steps", steps, 0, self.steps))

    def positions_after(self, first_step: int, last_step: int) -> list[int]:
        """Return `position_after` for the ends of steps ``[first_step, last_step)``."""
        return [self.position_after(step) for step in range(first_step + 1, last_step + 1)]

    # -- records ------------------------------------------------------------------------------------------

    def reads_between(self, first_step: int, last_step: int, rank: int) -> tuple[I64, I64]:
        """Return the global record numbers of a rank in steps ``[first_step, last_step)``; see `StepPlan`."""
        if rank not in self._interleaves:
            self._interleaves.clear()
            self._interleaves[rank] = self._assignment.interleave(rank)
        steps = self._before + np.arange(first_step, last_step + 1)
        rows = np.minimum(steps * self.batch_size, self._assignment.held[rank])
        file, index = self._interleaves[rank].between(int(rows[0]), int(rows[-1]))
        files = self._assignment.files_of(rank)[file]
        return self.files.table.offsets[files] + self._assignment.read[files] + index, np.diff(rows)

    def sample_read(self, step: int, rank: int) -> int:
        """Return a record of this epoch, from the rank's files if it has any; see `StepPlan`."""
        mine = self._assignment.files_of(rank)
        file = mine[0] if mine.size else np.argmax(self.files.table.counts > 0)
        return int(self.files.table.offsets[file])

    def read_after(self, steps: ArrayLike) -> I64:
        """Return the number of records of each file that are delivered by this run and those before it.

        Parameters
        ----------
        steps : int or array of int, shape (world_size,)
            Number of steps that each rank has made in this run.

        Returns
        -------
        ndarray of int64, shape (files,)
            Each file is read in order, so its first records are delivered.
        """
        made = np.broadcast_to(np.asarray(steps, np.int64), (self.world_size,)) + self._before
        return self._assignment.read_after(np.minimum(made * self.batch_size, self._assignment.held))

    def delivered_ranges(self, steps: I64) -> StridedRanges:
        """Return the record numbers that this run delivers once rank r has made ``steps[r]`` steps."""
        offsets = self.files.table.offsets[:-1]
        return StridedRanges.intervals(offsets + self.read_after(0), offsets + self.read_after(steps))

    def dropped_ranges(self) -> StridedRanges:
        """Return the record numbers that no rank delivers."""
        offsets = self.files.table.offsets
        return StridedRanges.intervals(offsets[:-1] + self.read_after(self.steps), offsets[1:])

    def ranks_of(self, reads: I64, steps: I64) -> I64:
        """Return the rank that has delivered each record after rank r made ``steps[r]`` steps, or -1."""
        file, index = self.files.table.locate(reads)
        delivered = (index >= self.read_after(0)[file]) & (index < self.read_after(steps)[file])
        return np.where(delivered, self._assignment.ranks()[file], -1)

    def _delivered(self, steps: int) -> int:
        rows = np.minimum(self._assignment.held, steps * self.batch_size)
        return self._assignment.already_read + int(rows.sum())

    def _steps(self, remainder: Remainder) -> int:
        if remainder == "drop":
            return int(self._assignment.held.min()) // self.batch_size
        return -(-int(self._assignment.held.max()) // self.batch_size)
