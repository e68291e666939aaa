"""Assignment of whole files to ranks, and how many records of each file are read after some steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shardkeep._core import assign_files, interleave_reads
from shardkeep.errors import PlanError
from shardkeep.plan.checks import MAX_BATCH_SIZE, MAX_RECORDS, MAX_WORLD_SIZE, checked_int
from shardkeep.plan.interleave import Interleave
from shardkeep.plan.order import FILES_PURPOSE, stream_of
from shardkeep.plan.permutation import Permutation
from shardkeep.plan.shards import ShardTable

__all__ = ["MAX_CYCLE_LENGTH", "FileAssignment", "FileSet", "HistoryEntry", "balance", "merge_history"]

MAX_CYCLE_LENGTH = 65_536
# An audit and a resumed epoch use the same few histories and assignments repeatedly.
_CACHED = 4

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
    _orders: dict[int, I64] = field(init=False, repr=False, default_factory=dict)
    _read: dict[tuple[int, tuple[HistoryEntry, ...]], I64] = field(
        init=False, repr=False, default_factory=dict
    )
    _assigned: dict[tuple[object, ...], FileAssignment] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        sizes = np.asarray(self.sizes, np.int64)
        if sizes.shape != self.table.counts.shape:
            raise PlanError(
                f"sizes has {sizes.size} entries; expected one for each of {len(self.table)} files"
            )
        object.__setattr__(self, "sizes", sizes)

    def in_order(self, epoch: int) -> I64:
        """Return the files in the order of an epoch."""
        order: I64 | None = self._orders.get(epoch)
        if order is None:
            order = np.arange(len(self.table))
            if self.shuffled and order.size:
                stream = stream_of(epoch, FILES_PURPOSE)
                order = Permutation(order.size, self.seed, stream=stream).inverse(order)
            _keep(self._orders, epoch, order)
        return order

    def assignment(
        self, epoch: int, history: tuple[HistoryEntry, ...], world_size: int, cycle_length: int
    ) -> FileAssignment:
        """Return the assignment of what a history of an epoch left unread; errors as `read_after`."""
        key = (epoch, history, world_size, cycle_length)
        known = self._assigned.get(key)
        if known is None:
            read = self.read_after(epoch, history)
            known = FileAssignment(self, epoch, read, world_size, cycle_length)
            _keep(self._assigned, key, known)
        return known

    def read_after(self, epoch: int, history: tuple[HistoryEntry, ...]) -> I64:
        """Return how many records of each file are delivered after a history of an epoch.

        Raises
        ------
        PlanError
            An entry has a number out of range, or more steps than the epoch.
        """
        known = len(history)
        while known and (epoch, history[:known]) not in self._read:
            known -= 1
        read = self._read[epoch, history[:known]] if known else np.zeros(len(self.table), np.int64)
        for length in range(known, len(history)):
            entry = history[length]
            world_size = checked_int("world_size", entry.world_size, 1, MAX_WORLD_SIZE)
            batch_size = checked_int("batch_size", entry.batch_size, 1, MAX_BATCH_SIZE)
            steps = checked_int("steps", entry.steps, 0, MAX_RECORDS)
            assignment = self.assignment(epoch, history[:length], world_size, entry.cycle_length)
            possible = -(-int(assignment.held.max()) // batch_size)
            if steps > possible:
                raise PlanError(
                    f"the history claims {steps} steps, but {possible} are possible: was it edited?"
                )
            read = assignment.read_after(np.minimum(assignment.held, steps * batch_size))
            _keep(self._read, (epoch, history[: length + 1]), read)
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
    already_read : int
        Number of records that were delivered before.
    """

    files: FileSet
    epoch: int
    read: I64
    world_size: int
    cycle_length: int
    held: I64 = field(init=False, repr=False)
    already_read: int = field(init=False, repr=False)
    _order: I64 = field(init=False, repr=False)
    _bounds: I64 = field(init=False, repr=False)
    _read_after: dict[bytes, I64] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        checked_int("cycle_length", self.cycle_length, 1, MAX_CYCLE_LENGTH)
        counts = self.files.table.counts
        unread = counts - self.read
        # In floating point, since the product of bytes and records may exceed int64.
        share = np.asarray(self.files.sizes) * (unread / np.maximum(counts, 1))
        sizes = np.where(unread > 0, np.maximum(share.astype(np.int64), 1), 0)
        in_order = self.files.in_order(self.epoch)
        # From 1, after the files that are not assigned; NumPy sorts two bytes by radix.
        dtype = np.uint16 if self.world_size < 2**16 else np.uint32
        rank_of = (balance(sizes, self.world_size) + 1).astype(dtype)[in_order]
        bounds = np.cumsum(np.bincount(rank_of, minlength=self.world_size + 1))
        order = in_order[np.argsort(rank_of, kind="stable")[bounds[0] :]]
        bounds -= bounds[0]
        sums = np.concatenate([[0], np.cumsum(unread[order])])
        object.__setattr__(self, "held", sums[bounds[1:]] - sums[bounds[:-1]])
        object.__setattr__(self, "already_read", int(self.read.sum()))
        object.__setattr__(self, "_order", order)
        object.__setattr__(self, "_bounds", bounds)

    def files_of(self, rank: int) -> I64:
        """Return the files of a rank, in the order in which it opens them."""
        low, high = self._bounds[rank : rank + 2]
        return self._order[low:high]

    def ranks(self) -> I64:
        """Return the rank of each file, -1 for a file that was read before."""
        ranks = np.full(len(self.files.table), -1, np.int64)
        ranks[self._order] = np.repeat(np.arange(self.world_size), np.diff(self._bounds))
        return ranks

    def interleave(self, rank: int) -> Interleave:
        """Return the interleaved sequence of the files of a rank."""
        mine = self.files_of(rank)
        return Interleave.of(self.files.table.counts[mine] - self.read[mine], self.cycle_length)

    def read_after(self, rows: I64) -> I64:
        """Return the delivered records of each file once rank r has delivered ``rows[r]`` rows."""
        key = rows.tobytes()
        read = self._read_after.get(key)
        if read is None:
            order, read = self._order, self.read
            if rows.any():
                before = read[order]
                unread = self.files.table.counts[order] - before
                read = read.copy()
                read[order] = before + interleave_reads(unread, self._bounds, self.cycle_length, rows)
                read.flags.writeable = False
            _keep(self._read_after, key, read)
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
    return assign_files(np.ascontiguousarray(sizes, np.int64), world_size)


def _keep(cache: dict[Any, Any], key: object, value: object) -> None:
    while len(cache) >= _CACHED:
        del cache[next(iter(cache))]
    cache[key] = value
