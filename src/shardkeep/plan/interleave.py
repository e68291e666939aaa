"""Interleaved reading of several files, one record of each in turn, in closed form.

A reader has a fixed number of *slots*. A file takes the slot that becomes free first and keeps it to its end,
so a slot is busy from the first round to its last one, without a gap. One round reads a record from each busy
slot. The record at any index of the interleaved sequence, and the number of records read of each file,
therefore follow from the rounds in which the slots end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardkeep._core import interleave_slots
from shardkeep.errors import PlanError

__all__ = ["Interleave"]

I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Interleave:
    """The interleaved sequence of the records of one reader's files.

    Attributes
    ----------
    counts : ndarray of int64, shape (files,)
        Number of records of each file, at least 1; files in the order in which they are opened.
    slot, begin : ndarray of int64, shape (files,)
        The slot of each file, and the round that reads its first record.
    ends : ndarray of int64, shape (slots,)
        The round after the last one of each slot.
    order, keys : ndarray of int64, shape (files,)
        The files sorted by slot and begin, and an ascending key for each.

    Examples
    --------
    >>> interleave = Interleave.of(np.array([3, 1, 2]), 2)
    >>> file, index = interleave.between(0, 6)
    >>> list(zip(file.tolist(), index.tolist()))
    [(0, 0), (1, 0), (0, 1), (2, 0), (0, 2), (2, 1)]
    """

    counts: I64
    slot: I64
    begin: I64
    ends: I64
    order: I64
    keys: I64

    @classmethod
    def of(cls, counts: I64, cycle_length: int) -> Interleave:
        """Distribute the files over at most `cycle_length` slots."""
        slot, begin, ends = interleave_slots(np.ascontiguousarray(counts), cycle_length)
        order = np.lexsort((begin, slot))
        # 65,536 slots of 2**47 rounds are more than any disk holds.
        stride = int(ends.max(initial=0)) + 1
        if ends.size * stride >= 2**63:
            raise PlanError(
                f"one rank would read {stride} records in each of {ends.size} slots: pass a lower"
                " cycle_length"
            )
        return cls(counts, slot, begin, ends, order, slot[order] * stride + begin[order])

    def between(self, start: int, stop: int) -> tuple[I64, I64]:
        """Return file and record number in it for the indices ``[start, stop)`` of the sequence."""
        slots, rounds = [], []
        low = base = 0
        for high in np.unique(self.ends).tolist():
            busy = np.flatnonzero(self.ends >= high)
            after = base + (high - low) * busy.size
            if after > start and base < stop:
                offset = np.arange(max(start, base), min(stop, after), dtype=np.int64) - base
                turn = offset // busy.size
                slots.append(busy[offset - turn * busy.size])
                rounds.append(low + turn)
            low, base = high, after
            if base >= stop:
                break
        if not slots:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        slot, round_ = np.concatenate(slots), np.concatenate(rounds)
        stride = int(self.ends.max()) + 1
        file = self.order[np.searchsorted(self.keys, slot * stride + round_, side="right") - 1]
        return file, round_ - self.begin[file]
