"""The files of a data set divided among ranks, and how far each is read after so many steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shardkeep.errors import PlanError
from shardkeep.plan.balance import balanced
from shardkeep.plan.checks import MAX_BATCH_SIZE, MAX_RECORDS, MAX_WORLD_SIZE, checked_int
from shardkeep.plan.lanes import Lanes
from shardkeep.plan.order import FILES_PURPOSE, stream_of
from shardkeep.plan.permutation import Permutation
from shardkeep.plan.shards import ShardTable

__all__ = ["MAX_CYCLE_LENGTH", "Division", "FileSet", "Leg", "joined"]

MAX_CYCLE_LENGTH = 65_536
# An audit, a resumed epoch and its length ask for the same few.
_REMEMBERED = 4

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


@dataclass(frozen=True, eq=False)
class FileSet:
    """The files of a data set and what decides in which order a rank reads its own.

    Parameters
    ----------
    table : ShardTable
        Records of each file.
    sizes : array of int, shape (files,)
        Bytes of each file, by which they are balanced; of a file that was read in part, in proportion.
    shuffled : bool
        Whether a rank reads its files in another order in each epoch, in place of the order of the data set.
    seed : int
        As of `epoch_order`.

    Raises
    ------
    PlanError
        Unless there is one size for each file.
    """

    table: ShardTable
    sizes: ArrayLike
    shuffled: bool = False
    seed: int = 0
    _read: dict[tuple[int, tuple[Leg, ...]], I64] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        sizes = np.asarray(self.sizes, np.int64)
        if sizes.shape != self.table.counts.shape:
            raise PlanError(f"there are {len(self.table)} files and {sizes.size} sizes: give one for each")
        object.__setattr__(self, "sizes", sizes)

    def places(self, epoch: int) -> I64:
        """Return the place of each file in the order of an epoch."""
        place: I64 = np.arange(len(self.table))
        if not self.shuffled or not place.size:
            return place
        return Permutation(place.size, self.seed, stream=stream_of(epoch, FILES_PURPOSE)).forward(place)

    def read_after(self, epoch: int, legs: tuple[Leg, ...]) -> I64:
        """Return how many records of each file the legs of an epoch deliver, one after the other.

        Raises
        ------
        PlanError
            For a leg that has a number out of range, or more steps than there are.
        """
        known = 0
        read: I64 = np.zeros(len(self.table), np.int64)
        for length in range(len(legs), 0, -1):
            if (epoch, legs[:length]) in self._read:
                known, read = length, self._read[epoch, legs[:length]]
                break
        for length, leg in enumerate(legs[known:], start=known + 1):
            world_size = checked_int("world_size", leg.world_size, 1, MAX_WORLD_SIZE)
            batch_size = checked_int("batch_size", leg.batch_size, 1, MAX_BATCH_SIZE)
            steps = checked_int("steps", leg.steps, 0, MAX_RECORDS)
            division = Division(self, epoch, read, world_size, leg.cycle_length)
            there_are = -(-int(division.held.max()) // batch_size)
            if steps > there_are:
                raise PlanError(f"the history claims {steps} steps where {there_are} are: was it edited?")
            read = division.read_after(np.minimum(division.held, steps * batch_size))
            while len(self._read) >= _REMEMBERED:
                del self._read[next(iter(self._read))]
            self._read[epoch, legs[:length]] = read
        return read


@dataclass(frozen=True, eq=False)
class Division:
    """What is left of the files, given to the ranks of one world.

    Parameters
    ----------
    files : FileSet
    epoch : int
    read : ndarray of int64, shape (files,)
        Records of each file that were delivered before.
    world_size, cycle_length : int

    Attributes
    ----------
    held : ndarray of int64, shape (world_size,)
        Records that each rank has to deliver.
    """

    files: FileSet
    epoch: int
    read: I64
    world_size: int
    cycle_length: int
    held: I64 = field(init=False, repr=False)
    _order: I64 = field(init=False, repr=False)
    _bounds: I64 = field(init=False, repr=False)

    def __post_init__(self) -> None:
        checked_int("cycle_length", self.cycle_length, 1, MAX_CYCLE_LENGTH)
        counts = self.files.table.counts
        left = counts - self.read
        # In floating point: the product of bytes and records may be too large for int64.
        share = np.asarray(self.files.sizes) * (left / np.maximum(counts, 1))
        sizes = np.where(left > 0, np.maximum(share.astype(np.int64), 1), 0)
        rank_of = balanced(sizes, self.world_size)
        order = np.lexsort((self.files.places(self.epoch), rank_of))
        order = order[int(np.count_nonzero(rank_of < 0)) :]
        bounds = np.searchsorted(rank_of[order], np.arange(self.world_size + 1))
        sums = np.concatenate([[0], np.cumsum(left[order])])
        object.__setattr__(self, "held", sums[bounds[1:]] - sums[bounds[:-1]])
        object.__setattr__(self, "_order", order)
        object.__setattr__(self, "_bounds", bounds)

    def files_of(self, rank: int) -> I64:
        """Return the files that a rank reads, in the order in which it opens them."""
        low, high = self._bounds[rank : rank + 2]
        return self._order[low:high]

    def lanes(self, rank: int) -> Lanes:
        """Return how a rank reads its files."""
        mine = self.files_of(rank)
        return Lanes.of(self.files.table.counts[mine] - self.read[mine], self.cycle_length)

    def read_after(self, rows: I64) -> I64:
        """Return how many records of each file are delivered once each rank has delivered so many rows."""
        read = self.read.copy()
        for rank in np.flatnonzero(rows).tolist():
            mine = self.files_of(rank)
            if rows[rank] == self.held[rank]:
                read[mine] = self.files.table.counts[mine]
            else:
                read[mine] += self.lanes(rank).read_after(int(rows[rank]))
        return read
