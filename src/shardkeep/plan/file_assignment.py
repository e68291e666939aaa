"""Assignment of whole files to ranks, and how many records of each file are read after some steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from heapq import heapify, heapreplace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shardkeep.errors import PlanError
from shardkeep.plan.checks import MAX_BATCH_SIZE, MAX_RECORDS, MAX_WORLD_SIZE, checked_int
from shardkeep.plan.interleave import Interleave
from shardkeep.plan.order import FILES_PURPOSE, stream_of
from shardkeep.plan.permutation import Permutation
from shardkeep.plan.shards import ShardTable

__all__ = ["MAX_CYCLE_LENGTH", "FileAssignment", "FileSet", "HistoryEntry", "balance", "merge_history"]

MAX_CYCLE_LENGTH = 65_536
# An audit and a resumed epoch use the same few histories repeatedly.
_CACHED_HISTORIES = 4

# Where one pass over the ranks assigns fewer files than this, the next files are assigned one by one.
_FEW, _ONE_BY_ONE = 64, 4096

I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True, order=True)
class HistoryEntry:
    """A part of an epoch in which `world_size` ranks made `steps` steps each."""

    world_size: int
    batch_size: int
    cycle_length: int
    steps: int

    def same_assignment(self, other: HistoryEntry) -> bool:
        """Return True if the two differ at most in their number of steps."""
        return (self.world_size, self.batch_size, self.cycle_length) == (
            other.world_size,
            other.batch_size,
            other.cycle_length,
        )


def merge_history(entries: Iterable[HistoryEntry]) -> tuple[HistoryEntry, ...]:
    """Return a history without entries of no step, with adjacent entries of the same assignment merged.

    Examples
    --------
    >>> merge_history([HistoryEntry(2, 8, 16, 3), HistoryEntry(2, 8, 16, 4), HistoryEntry(3, 8, 16, 0)])
    (HistoryEntry(world_size=2, batch_size=8, cycle_length=16, steps=7),)
    """
    merged: list[HistoryEntry] = []
    for entry in entries:
        if merged and merged[-1].same_assignment(entry):
            entry = replace(entry, steps=merged.pop().steps + entry.steps)
        if entry.steps:
            merged.append(entry)
    return tuple(merged)


@dataclass(frozen=True, eq=False)
class FileSet:
    """The files of a data set, and the settings that decide in which order a rank reads its files.

    Parameters
    ----------
    table : ShardTable
        Number of records of each file.
    sizes : array of int, shape (files,)
        Size of each file in bytes, by which the ranks are balanced. A file that was partly read counts in
        proportion.
    shuffled : bool
        True to read the files of a rank in a new order in each epoch; False for the order of the data set.
    seed : int
        Seed of the shuffle, as in `epoch_order`.

    Raises
    ------
    PlanError
        The number of sizes differs from the number of files.
    """

    table: ShardTable
    sizes: ArrayLike
    shuffled: bool = False
    seed: int = 0
    _read: dict[tuple[int, tuple[HistoryEntry, ...]], I64] = field(
        init=False, repr=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        sizes = np.asarray(self.sizes, np.int64)
        if sizes.shape != self.table.counts.shape:
            raise PlanError(
                f"sizes has {sizes.size} entries; expected one for each of {len(self.table)} files"
            )
        object.__setattr__(self, "sizes", sizes)

    def reading_order(self, epoch: int) -> I64:
        """Return the index of each file in the order of an epoch."""
        index: I64 = np.arange(len(self.table))
        if not self.shuffled or not index.size:
            return index
        return Permutation(index.size, self.seed, stream=stream_of(epoch, FILES_PURPOSE)).forward(index)

    def read_after(self, epoch: int, history: tuple[HistoryEntry, ...]) -> I64:
        """Return how many records of each file are delivered after a history of an epoch.

        Raises
        ------
        PlanError
            An entry has a number out of range, or more steps than the epoch.
        """
        known = 0
        read: I64 = np.zeros(len(self.table), np.int64)
        for length in range(len(history), 0, -1):
            if (epoch, history[:length]) in self._read:
                known, read = length, self._read[epoch, history[:length]]
                break
        for length, entry in enumerate(history[known:], start=known + 1):
            world_size = checked_int("world_size", entry.world_size, 1, MAX_WORLD_SIZE)
            batch_size = checked_int("batch_size", entry.batch_size, 1, MAX_BATCH_SIZE)
            steps = checked_int("steps", entry.steps, 0, MAX_RECORDS)
            assignment = FileAssignment(self, epoch, read, world_size, entry.cycle_length)
            possible = -(-int(assignment.held.max()) // batch_size)
            if steps > possible:
                raise PlanError(
                    f"the history claims {steps} steps, but {possible} are possible: was it edited?"
                )
            read = assignment.read_after(np.minimum(assignment.held, steps * batch_size))
            while len(self._read) >= _CACHED_HISTORIES:
                del self._read[next(iter(self._read))]
            self._read[epoch, history[:length]] = read
        return read


@dataclass(frozen=True, eq=False)
class FileAssignment:
    """The unread part of the files, assigned to the ranks of one world.

    Parameters
    ----------
    files : FileSet
    epoch : int
    read : ndarray of int64, shape (files,)
        Number of records of each file that were delivered before.
    world_size, cycle_length : int

    Attributes
    ----------
    held : ndarray of int64, shape (world_size,)
        Number of records that each rank has to deliver.
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
        unread = counts - self.read
        # In floating point, since the product of bytes and records may exceed int64.
        share = np.asarray(self.files.sizes) * (unread / np.maximum(counts, 1))
        sizes = np.where(unread > 0, np.maximum(share.astype(np.int64), 1), 0)
        rank_of = balance(sizes, self.world_size)
        order = np.lexsort((self.files.reading_order(self.epoch), rank_of))
        order = order[int(np.count_nonzero(rank_of < 0)) :]
        bounds = np.searchsorted(rank_of[order], np.arange(self.world_size + 1))
        sums = np.concatenate([[0], np.cumsum(unread[order])])
        object.__setattr__(self, "held", sums[bounds[1:]] - sums[bounds[:-1]])
        object.__setattr__(self, "_order", order)
        object.__setattr__(self, "_bounds", bounds)

    def files_of(self, rank: int) -> I64:
        """Return the files of a rank, in the order in which it opens them."""
        low, high = self._bounds[rank : rank + 2]
        return self._order[low:high]

    def interleave(self, rank: int) -> Interleave:
        """Return the interleaved sequence of the files of a rank."""
        mine = self.files_of(rank)
        return Interleave.of(self.files.table.counts[mine] - self.read[mine], self.cycle_length)

    def read_after(self, rows: I64) -> I64:
        """Return the delivered records of each file once rank r has delivered ``rows[r]`` rows."""
        read = self.read.copy()
        for rank in np.flatnonzero(rows).tolist():
            mine = self.files_of(rank)
            if rows[rank] == self.held[rank]:
                read[mine] = self.files.table.counts[mine]
            else:
                read[mine] += self.interleave(rank).read_after(int(rows[rank]))
        return read


def balance(sizes: ArrayLike, world_size: int) -> I64:
    """Return the rank of each file: largest first, each to the rank with the least bytes so far.

    The largest rank has at most a third more than in the best possible assignment (Graham, "Bounds on
    Multiprocessing Timing Anomalies", SIAM J. Appl. Math. 17, 1969).

    Parameters
    ----------
    sizes : array of int
        Size of each file, such as its bytes. Files of size 0 are not assigned.
    world_size : int

    Returns
    -------
    ndarray of int64
        Rank of each file, -1 for a file that is not assigned. Equal files are assigned in their order, and
        equal ranks in ascending order.

    Examples
    --------
    >>> balance([5, 9, 0, 4], 2).tolist()
    [1, 0, -1, 1]
    """
    checked = np.asarray(sizes, dtype=np.int64)
    rank_of = np.full(checked.size, -1, np.int64)
    order = np.argsort(-checked, kind="stable")[: int(np.count_nonzero(checked))]
    loads = np.zeros(world_size, np.int64)
    done = 0
    while done < order.size:
        files = order[done : done + world_size]
        ranks = np.argsort(loads, kind="stable")[: files.size]
        after = loads[ranks] + checked[files]
        # Assign one file to each rank, until a rank that got one has less than the next rank.
        ahead = np.minimum.accumulate(after)[:-1] <= loads[ranks][1:]
        assigned = int(np.argmax(ahead)) + 1 if ahead.any() else files.size
        rank_of[files[:assigned]] = ranks[:assigned]
        loads[ranks[:assigned]] = after[:assigned]
        done += assigned
        if assigned < min(_FEW, files.size):
            one_by_one = order[done : done + _ONE_BY_ONE]
            rank_of[one_by_one] = _one_by_one(checked[one_by_one], loads)
            done += one_by_one.size
    return rank_of


def _one_by_one(sizes: I64, loads: I64) -> list[int]:
    """Return the rank of each size, and add the sizes to the loads."""
    # Load and rank in one int, which compares faster than a tuple.
    bits = loads.size.bit_length()
    heap = [load << bits | rank for rank, load in enumerate(loads.tolist())]
    heapify(heap)
    least = []
    for size in sizes.tolist():
        least.append(heap[0])
        heapreplace(heap, heap[0] + (size << bits))
    mask = (1 << bits) - 1
    for entry in heap:
        loads[entry & mask] = entry >> bits
    return [entry & mask for entry in least]
