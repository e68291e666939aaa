"""Whole files to ranks, several read at a time: which records each rank delivers at each step.

The files are divided among the ranks by bytes, each to the rank that has least so far, the largest first
(Graham, "Bounds on Multiprocessing Timing Anomalies", SIAM J. Appl. Math. 17, 1969). A rank reads
`cycle_length` files at a time, one record of each in turn, and where one ends the next takes its place.

Which record comes when therefore depends on the number of ranks. A run that takes an epoch up in the middle
is told its history as a few numbers for each world before it, from which it computes how far every file was
read; what is left of the files is divided anew. Each rank reads each of its files in order, so all that any
run has delivered is one range of records a file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heapify, heapreplace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shardkeep.errors import PlanError
from shardkeep.plan.checks import MAX_BATCH_SIZE, MAX_EPOCH, MAX_RECORDS, MAX_WORLD_SIZE, checked_int
from shardkeep.plan.epoch import EpochPlan, Remainder
from shardkeep.plan.lanes import Lanes
from shardkeep.plan.order import FILES_PURPOSE, stream_of
from shardkeep.plan.permutation import Permutation
from shardkeep.plan.shards import ShardTable

__all__ = ["MAX_CYCLE_LENGTH", "FilePlan", "Leg", "balanced", "joined"]

MAX_CYCLE_LENGTH = 65_536

I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True, order=True)
class Leg:
    """A stretch of an epoch in which `world_size` ranks made `steps` steps each."""

    world_size: int
    batch_size: int
    cycle_length: int
    steps: int

    def same_division(self, other: Leg) -> bool:
        """Tell whether the two differ in their steps at most."""
        return (self.world_size, self.batch_size, self.cycle_length) == (
            other.world_size,
            other.batch_size,
            other.cycle_length,
        )


def joined(legs: Iterable[Leg]) -> tuple[Leg, ...]:
    """Return the legs without those of no step, neighbours of the same division made one.

    Examples
    --------
    >>> joined([Leg(2, 8, 16, 3), Leg(2, 8, 16, 4), Leg(3, 8, 16, 0)])
    (Leg(world_size=2, batch_size=8, cycle_length=16, steps=7),)
    """
    result: list[Leg] = []
    for leg in legs:
        if result and result[-1].same_division(leg):
            leg = Leg(leg.world_size, leg.batch_size, leg.cycle_length, result.pop().steps + leg.steps)
        if leg.steps:
            result.append(leg)
    return tuple(result)


def balanced(sizes: ArrayLike, world_size: int) -> I64:
    """Return the rank of each file: each goes to the rank with the least so far, the largest first.

    Parameters
    ----------
    sizes : array of int
        What is to be balanced, such as bytes. Files of size 0 go to no rank.
    world_size : int

    Returns
    -------
    ndarray of int64
        Rank of each file, -1 for no rank. Of equal files the first, of equal ranks the lowest comes first.

    Examples
    --------
    >>> balanced([5, 9, 0, 4], 2).tolist()
    [1, 0, -1, 1]
    """
    given = np.asarray(sizes, dtype=np.int64)
    rank_of = np.full(given.size, -1, np.int64)
    order = np.argsort(-given, kind="stable")
    order = order[: int(np.count_nonzero(given))]
    # Until every rank has a file, the next one goes to the next rank.
    first = order[:world_size]
    rank_of[first] = np.arange(first.size)
    if order.size > world_size:
        loads = [(load, rank) for rank, load in enumerate(given[first].tolist())]
        heapify(loads)
        ranks = []
        for size in given[order[world_size:]].tolist():
            load, rank = loads[0]
            ranks.append(rank)
            heapreplace(loads, (load + size, rank))
        rank_of[order[world_size:]] = ranks
    return rank_of


@dataclass(frozen=True, eq=False)
class FilePlan:
    """The steps of one epoch in which ranks read whole files, from where this run takes it up.

    Parameters
    ----------
    table : ShardTable
        Records of each file.
    sizes : array of int, shape (files,)
        Bytes of each file, by which they are balanced; of a file that was read in part, in proportion.
    world_size, batch_size : int
        As of `EpochPlan`.
    cycle_length : int
        Files that a rank reads at a time.
    remainder : {"mask", "drop", "short"}
        Ranks run out of records at different steps. "mask" and "short" go on until the last one has, the
        others with padded or empty batches; "drop" stops before the first step that some rank cannot fill.
    shuffled : bool
        Whether a rank reads its files in another order in each epoch, in place of the order of the data set.
    seed, epoch : int
        As of `epoch_order`.
    history : tuple of Leg
        What was delivered of this epoch before. Where its last leg is of the same division, this run
        goes on with that one.

    Raises
    ------
    PlanError
        For a number out of range, and for a history that is longer than the epoch.

    Examples
    --------
    >>> plan = FilePlan(ShardTable([4, 3, 2]), [40, 30, 20], 2, 2, 16, "mask")
    >>> plan.steps
    3
    >>> [plan.records_between(0, plan.steps, rank).tolist() for rank in range(2)]
    [[0, 1, 2, 3], [4, 7, 5, 8, 6]]

    After one step a single rank takes over:

    >>> FilePlan(ShardTable([4, 3, 2]), [40, 30, 20], 1, 5, 16, "mask", history=(Leg(2, 2, 16, 1),)
    ...     ).records_between(0, 1, 0).tolist()
    [2, 5, 8, 3, 6]
    """

    table: ShardTable
    sizes: ArrayLike
    world_size: int
    batch_size: int
    cycle_length: int
    remainder: Remainder
    shuffled: bool = False
    seed: int = 0
    epoch: int = 0
    history: tuple[Leg, ...] = ()
    _before: int = field(init=False, repr=False)
    _read: I64 = field(init=False, repr=False)
    _order: I64 = field(init=False, repr=False)
    _bounds: I64 = field(init=False, repr=False)
    _held: I64 = field(init=False, repr=False)
    _last_lanes: tuple[int, I64, Lanes] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        EpochPlan(self.table.total, 0, self.world_size, self.batch_size, self.remainder)
        checked_int("cycle_length", self.cycle_length, 1, MAX_CYCLE_LENGTH)
        checked_int("epoch", self.epoch, 0, MAX_EPOCH)
        object.__setattr__(self, "history", joined(self.history))
        mine = Leg(self.world_size, self.batch_size, self.cycle_length, 0)
        earlier = self.history
        before = 0
        if earlier and earlier[-1].same_division(mine):
            *rest, last = earlier
            earlier, before = tuple(rest), last.steps
        object.__setattr__(self, "_before", before)
        object.__setattr__(self, "_read", self._read_in(earlier))
        self._divide()
        if not 0 <= before <= self._steps("mask"):
            raise PlanError(
                f"the history claims {before} steps where {self._steps('mask')} are: was it edited?"
            )

    def _read_in(self, earlier: tuple[Leg, ...]) -> I64:
        if not earlier:
            return np.zeros(len(self.table), np.int64)
        *rest, last = earlier
        whole = FilePlan(
            self.table,
            self.sizes,
            checked_int("world_size", last.world_size, 1, MAX_WORLD_SIZE),
            checked_int("batch_size", last.batch_size, 1, MAX_BATCH_SIZE),
            last.cycle_length,
            "mask",
            self.shuffled,
            self.seed,
            self.epoch,
            tuple(rest),
        )
        steps = checked_int("steps", last.steps, 0, MAX_RECORDS)
        if steps > whole.steps:
            raise PlanError(f"the history claims {steps} steps where {whole.steps} are: was it edited?")
        return whole.read_after(steps)

    def _divide(self) -> None:
        """Give what is left of the files to the ranks."""
        left = self.table.counts - self._read
        sizes = np.asarray(self.sizes, np.int64)
        if sizes.shape != left.shape:
            raise PlanError(f"there are {left.size} files and {sizes.size} sizes: give one for each")
        if self._read.any():
            # In floating point: the product of bytes and records may be too large for int64.
            share = sizes * (left / np.maximum(self.table.counts, 1))
            sizes = share.astype(np.int64)
        rank_of = balanced(np.where(left > 0, np.maximum(sizes, 1), 0), self.world_size)
        place: I64 = np.arange(left.size)
        if self.shuffled and left.size:
            stream = stream_of(self.epoch, FILES_PURPOSE)
            place = Permutation(left.size, self.seed, stream=stream).forward(place)
        order = np.lexsort((place, rank_of))
        order = order[int(np.count_nonzero(rank_of < 0)) :]
        bounds = np.searchsorted(rank_of[order], np.arange(self.world_size + 1))
        sums = np.concatenate([[0], np.cumsum(left[order])])
        held = sums[bounds[1:]] - sums[bounds[:-1]]
        object.__setattr__(self, "_order", order)
        object.__setattr__(self, "_bounds", bounds)
        object.__setattr__(self, "_held", held)
        object.__setattr__(self, "_last_lanes", (0, *self._lanes(0)))

    # -- as EpochPlan ---------------------------------------------------------------------------------------

    @property
    def records(self) -> int:
        """Records of the whole epoch."""
        return self.table.total

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

    @property
    def reader_of(self) -> I64:
        """The rank that reads each file from here on; -1 when nothing of it was left. Shape (files,)."""
        rank_of = np.full(len(self.table), -1, np.int64)
        rank_of[self._order] = np.repeat(np.arange(self.world_size), np.diff(self._bounds))
        return rank_of

    def rows(self, step: int, rank: int) -> int:
        """Return how many records `rank` delivers in `step`: the batch size, or less at its end."""
        return self._rows_before(step + 1, rank) - self._rows_before(step, rank)

    def records_between(self, first_step: int, last_step: int, rank: int) -> I64:
        """Return the global record numbers that `rank` delivers in steps ``[first_step, last_step)``."""
        if self._last_lanes[0] != rank:
            object.__setattr__(self, "_last_lanes", (rank, *self._lanes(rank)))
        _, files, lanes = self._last_lanes
        file, index = lanes.between(self._rows_before(first_step, rank), self._rows_before(last_step, rank))
        where = files[file]
        return self.table.offsets[where] + self._read[where] + index

    def some_record(self, rank: int) -> int:
        """Return a record of this epoch, of this rank's files if it has any."""
        low, high = self._bounds[rank : rank + 2]
        file = self._order[low] if low < high else int(np.argmax(self.table.counts > 0))
        return int(self.table.offsets[file])

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
        reached = np.minimum(made * self.batch_size, self._held)
        read = self._read.copy()
        for rank in np.flatnonzero(reached).tolist():
            low, high = self._bounds[rank : rank + 2]
            files = self._order[low:high]
            if reached[rank] == self._held[rank]:
                read[files] = self.table.counts[files]
            else:
                read[files] += self._lanes(rank)[1].read_after(int(reached[rank]))
        return read

    def _lanes(self, rank: int) -> tuple[I64, Lanes]:
        low, high = self._bounds[rank : rank + 2]
        files = self._order[low:high]
        return files, Lanes.of(self.table.counts[files] - self._read[files], self.cycle_length)

    def _rows_before(self, step: int, rank: int) -> int:
        return min((self._before + step) * self.batch_size, int(self._held[rank]))

    def _delivered(self, steps: int) -> int:
        return int(self._read.sum() + np.minimum(self._held, steps * self.batch_size).sum())

    def _steps(self, remainder: Remainder) -> int:
        if remainder == "drop":
            return int(self._held.min()) // self.batch_size
        return -(-int(self._held.max()) // self.batch_size)
