"""Whole files to ranks, several read at a time: which records each rank delivers at each step.

The files are divided among the ranks by bytes, each to the rank that has least so far, the largest first. A
rank reads `cycle_length` files at a time, one record of each in turn, and where one ends the next takes its
place.

Which record comes when therefore depends on the number of ranks. A run that takes an epoch up in the middle
is told its history as a few numbers for each world before it, from which it computes how far every file was
read; what is left of the files is divided anew. Each rank reads each of its files in order, so all that any
run has delivered is one range of records a file.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shardkeep.errors import PlanError
from shardkeep.plan.checks import MAX_EPOCH, checked_int
from shardkeep.plan.division import Division, FileSet, Leg, joined
from shardkeep.plan.epoch import EpochPlan, Remainder
from shardkeep.plan.lanes import Lanes

__all__ = ["FilePlan"]

I64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class FilePlan:
    """The steps of one epoch in which ranks read whole files, from where this run takes it up.

    Parameters
    ----------
    files : FileSet
    world_size, batch_size : int
        As of `EpochPlan`.
    cycle_length : int
        Files that a rank reads at a time.
    remainder : {"mask", "drop", "short"}
        Ranks run out of records at different steps. "mask" and "short" go on until the last one has, the
        others with padded or empty batches; "drop" stops before the first step that some rank cannot fill.
    epoch : int
    history : tuple of Leg
        What was delivered of this epoch before. Where its last leg is of the same division, this run
        goes on with that one.

    Raises
    ------
    PlanError
        For a number out of range, and for a history that is longer than the epoch.

    Examples
    --------
    >>> from shardkeep.plan import ShardTable
    >>> files = FileSet(ShardTable([4, 3, 2]), [40, 30, 20])
    >>> plan = FilePlan(files, 2, 2, 16, "mask")
    >>> plan.steps
    3
    >>> [plan.records_between(0, plan.steps, rank).tolist() for rank in range(2)]
    [[0, 1, 2, 3], [4, 7, 5, 8, 6]]

    After one step a single rank takes over:

    >>> later = FilePlan(files, 1, 5, 16, "mask", history=(Leg(2, 2, 16, 1),))
    >>> later.records_between(0, 1, 0).tolist()
    [2, 5, 8, 3, 6]
    """

    files: FileSet
    world_size: int
    batch_size: int
    cycle_length: int
    remainder: Remainder
    epoch: int = 0
    history: tuple[Leg, ...] = ()
    _before: int = field(init=False, repr=False)
    _division: Division = field(init=False, repr=False)
    _lanes: dict[int, Lanes] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        EpochPlan(self.records, 0, self.world_size, self.batch_size, self.remainder)
        checked_int("epoch", self.epoch, 0, MAX_EPOCH)
        earlier, before = joined(self.history), 0
        object.__setattr__(self, "history", earlier)
        if earlier and earlier[-1].same_division(Leg(self.world_size, self.batch_size, self.cycle_length, 0)):
            *rest, last = earlier
            earlier, before = tuple(rest), last.steps
        read = self.files.read_after(self.epoch, earlier)
        division = Division(self.files, self.epoch, read, self.world_size, self.cycle_length)
        object.__setattr__(self, "_before", before)
        object.__setattr__(self, "_division", division)
        if not 0 <= before <= self._steps("mask"):
            there_are = self._steps("mask")
            raise PlanError(f"the history claims {before} steps where {there_are} are: was it edited?")

    # -- as EpochPlan ---------------------------------------------------------------------------------------

    @property
    def records(self) -> int:
        """Records of the whole epoch."""
        return self.files.table.total

    @property
    def start(self) -> int:
        """How many records were delivered before this run took the epoch up."""
        return self._delivered(self._before)

    @property
    def steps(self) -> int:
        """Steps that every rank makes from here on; 0 when nothing is left."""
        return max(self._steps(self.remainder) - self._before, 0)

    @property
    def dropped(self) -> tuple[int, int]:
        """As of `EpochPlan`: how many records are delivered in the end, and how many there are."""
        return self.position_after(self.steps), self.records

    def position_after(self, steps: int) -> int:
        """Return how many records of the epoch are delivered once every rank has made `steps` steps.

        Raises
        ------
        PlanError
            Unless ``0 <= steps <= self.steps``.
        """
        return self._delivered(self._before + checked_int("steps", steps, 0, self.steps))

    # -- records ------------------------------------------------------------------------------------------

    def rows(self, step: int, rank: int) -> int:
        """Return how many records `rank` delivers in `step`: the batch size, or less at its end."""
        return self._rows_before(step + 1, rank) - self._rows_before(step, rank)

    def records_between(self, first_step: int, last_step: int, rank: int) -> I64:
        """Return the global record numbers that `rank` delivers in steps ``[first_step, last_step)``."""
        if rank not in self._lanes:
            self._lanes.clear()
            self._lanes[rank] = self._division.lanes(rank)
        start, stop = self._rows_before(first_step, rank), self._rows_before(last_step, rank)
        file, index = self._lanes[rank].between(start, stop)
        where = self._division.files_of(rank)[file]
        return self.files.table.offsets[where] + self._division.read[where] + index

    def some_record(self, rank: int) -> int:
        """Return a record of this epoch, of this rank's files if it has any."""
        mine = self._division.files_of(rank)
        file = mine[0] if mine.size else np.argmax(self.files.table.counts > 0)
        return int(self.files.table.offsets[file])

    def read_after(self, steps: ArrayLike) -> I64:
        """Return how many records of each file are delivered, this run and those before together.

        Parameters
        ----------
        steps : int or array of int, shape (world_size,)
            That each rank has made of this run.

        Returns
        -------
        ndarray of int64, shape (files,)
            Each file is read in order: these are its first records.
        """
        made = np.broadcast_to(np.asarray(steps, np.int64), (self.world_size,)) + self._before
        return self._division.read_after(np.minimum(made * self.batch_size, self._division.held))

    def _rows_before(self, step: int, rank: int) -> int:
        return min((self._before + step) * self.batch_size, int(self._division.held[rank]))

    def _delivered(self, steps: int) -> int:
        rows = np.minimum(self._division.held, steps * self.batch_size)
        return int(self._division.read.sum() + rows.sum())

    def _steps(self, remainder: Remainder) -> int:
        if remainder == "drop":
            return int(self._division.held.min()) // self.batch_size
        return -(-int(self._division.held.max()) // self.batch_size)
