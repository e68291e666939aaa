"""Deliveries of one epoch according to receipts: which rank delivered each record, and the faults.

The audit and its runs say what was delivered (`shardkeep.plan.proof.audit`), in ranges of read numbers. Only
those that are shown become records.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardkeep.errors import PlanError
from shardkeep.plan import ShardTable
from shardkeep.plan.coverage import RangeSet
from shardkeep.plan.file_plan import FilePlan
from shardkeep.plan.mixture import MixedOrder
from shardkeep.plan.order import ORDER_VERSION
from shardkeep.plan.proof.audit import Evidence
from shardkeep.plan.proof.runs import named_ranks
from shardkeep.viewer.data.epoch_picture import (
    EpochPicture,
    Span,
    columns_of,
    paint,
    sample_files,
    sample_of,
    spans_of,
)

__all__ = ["Band", "Deliveries", "Row"]

_MOST_RANGES = 100_000
_MOST_MARKS = 200_000
_SHOWN = 256

I64 = NDArray[np.int64]


@dataclass(frozen=True)
class Band:
    """The places of one kind of fault in the picture.

    Attributes
    ----------
    kind : {"lost", "repeated", "waiting", "dropped"}
    records, ranges : int
        Their number; `records` counts deliveries for a mixture.
    marks : tuple of (int, int)
        Columns that have such records, and the first of them in each.
    """

    kind: str
    records: int
    ranges: int
    marks: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Row:
    """Records with the same fate.

    Attributes
    ----------
    kind : str
        That of a `Band`, or "once".
    count : int
    spans : list of Span
        The first records, by shard.
    ranks : str
        The ranks that delivered them; of lost records those whose turn it was.
    """

    kind: str
    count: int
    spans: list[Span]
    ranks: str


class Deliveries:
    """Deliveries of one epoch.

    Parameters
    ----------
    evidence : Evidence
    epoch : int
    is_written : bool
        True while a process writes the run: ranks do not commit at the same moment, so what the slowest rank
        has not reached is not lost yet.

    Attributes
    ----------
    audit : EpochAudit
    runs : list of Run
    table : ShardTable
        The shards, or one shard if they are not known.
    shards : tuple of str
        Their names; empty if they are not known.
    world_size : int
        Most ranks of any run of the epoch.
    picture : EpochPicture
    bands : dict of str to Band
        Those that have records.

    Raises
    ------
    PlanError
        Another version of Shardkeep computed the order of the records.
    """

    def __init__(self, evidence: Evidence, epoch: int, *, is_written: bool) -> None:
        sample = evidence.sample
        if sample.order_version != ORDER_VERSION:
            raise PlanError(f"the receipts have order version {sample.order_version}, not {ORDER_VERSION}")
        self.runs = evidence.runs[epoch]
        self.audit = evidence.audit(epoch, most_ranges=_MOST_RANGES)
        data = evidence.shards.dataset
        self.shards = data.shards
        self.table = ShardTable(data.counts or (data.records,))
        self._order = None if sample.cycle_length is not None else sample.order(epoch)
        later = self._later(is_newest=epoch == evidence.epochs[-1], is_written=is_written)
        lost, waiting = _divide(_arrays(self.audit.lost), later)
        self._ranges = {
            "lost": lost,
            "repeated": _arrays(self.audit.repeated),
            "waiting": waiting,
            "dropped": _arrays(self.audit.dropped),
        }
        self.world_size = max((run.key.world_size for run in self.runs), default=1)
        self.picture = self._picture()
        self.bands = {kind: self._band(kind) for kind, (starts, _) in self._ranges.items() if starts.size}

    def count(self, kind: str) -> int:
        """Return the number of ranges of one kind that `rows` has."""
        return int(self._ranges[kind][0].size)

    def rows(self, kind: str, first: int, count: int) -> list[Row]:
        """Return some ranges of one kind."""
        starts, stops = (one[first : first + count] for one in self._ranges[kind])
        found = []
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            reads = np.arange(start, min(stop, start + _SHOWN))
            spans = spans_of(np.sort(self._records_of(reads)), self.table)
            found.append(Row(kind, stop - start, spans, self._ranks(kind, reads)))
        return found

    def at(self, place: float, most_rows: int) -> list[Row]:
        """Return the fate of up to 256 neighbouring records at a place from 0 to 1 in the data set.

        Of a mixture they are neighbours in the order of the epoch, since it may repeat records.
        """
        total = self.audit.records
        first = min(int(place * total), max(total - _SHOWN, 0))
        numbers = np.arange(first, min(first + _SHOWN, total))
        reads, records = numbers, numbers
        if isinstance(self._order, MixedOrder):
            records = self._order.records_at(numbers)
        elif self._order is not None:
            reads = self._order.positions_of(numbers)
        owners = np.array([run.plan.ranks_of(reads, run.steps) for run in self.runs]).reshape(-1, reads.size)
        kinds = self._kinds_of(reads)
        shard, _ = self.table.locate(records)
        fates = np.vstack([owners, kinds, shard, records - np.arange(records.size)])
        begins = np.flatnonzero(np.append(True, (fates[:, 1:] != fates[:, :-1]).any(axis=0)))[: reads.size]
        ends = np.append(begins[1:], reads.size)
        names = ["once", *self._ranges]
        found = []
        for begin, end in zip(begins[:most_rows].tolist(), ends[:most_rows].tolist(), strict=True):
            kind = names[int(kinds[begin])]
            spans = spans_of(records[begin:end], self.table)
            found.append(Row(kind, end - begin, spans, self._ranks(kind, reads[begin:end])))
        return found

    def _later(self, *, is_newest: bool, is_written: bool) -> tuple[I64, I64]:
        """Return the read numbers that the newest run has not reached."""
        records = self.audit.records
        if not (is_newest and self.runs):
            return _intervals(records, records)
        if self.audit.under_way:
            return _intervals(0, records)
        run = self.runs[-1]
        steps = int(run.steps.min() if is_written else run.steps.max())
        if isinstance(run.plan, FilePlan):
            offsets = self.table.offsets
            return offsets[:-1] + run.plan.read_after(steps), offsets[1:]
        reached = run.plan.position_after(steps)
        return _intervals(reached if is_written else max(one.stop for one in self.runs), records)

    def _records_of(self, reads: I64) -> I64:
        return reads if self._order is None else self._order.records_at(reads)

    def _picture(self) -> EpochPicture:
        total = max(self.audit.records, 1)
        reads = sample_of(self.audit.records)
        ranks, records = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        times = [np.zeros(0)]
        for run in self.runs:
            if isinstance(run.plan, FilePlan):
                mine, steps, read = sample_files(run.plan, run.steps)
                at = run.plan.start + steps * ((total - run.plan.start) / max(run.plan.steps, 1))
                times.append(at / total)
            else:
                found = run.plan.ranks_of(reads, run.steps)
                positions = reads[found >= 0]
                mine, read = found[found >= 0], self._records_of(positions)
                times.append(positions / total)
            ranks.append(mine)
            records.append(read)
        return paint(
            np.concatenate(ranks),
            np.concatenate(times),
            np.concatenate(records),
            self.world_size,
            self.table.total,
        )

    def _band(self, kind: str) -> Band:
        starts, stops = self._ranges[kind]
        before: I64 = np.cumsum(stops - starts)
        chosen = sample_of(int(before[-1]), _MOST_MARKS)
        which = np.searchsorted(before, chosen, side="right")
        records = np.sort(self._records_of(stops[which] - (before[which] - chosen)))
        columns, first = np.unique(columns_of(records, self.table.total), return_index=True)
        marks = tuple(zip(columns.tolist(), records[first].tolist(), strict=True))
        found = {"lost": self.audit.lost, "repeated": self.audit.repeated, "dropped": self.audit.dropped}
        whole = found.get(kind, self.audit.lost)
        if kind in ("lost", "waiting") and self._ranges["waiting"][0].size:
            waiting = int(np.subtract(*self._ranges["waiting"][::-1]).sum())
            number = waiting if kind == "waiting" else whole.records - waiting
            return Band(kind, number, starts.size, marks)
        return Band(kind, whole.records, whole.ranges, marks)

    def _kinds_of(self, reads: I64) -> I64:
        """Return 0 for what was delivered once, else 1 plus the number of the kind in `_ranges`."""
        kinds = np.zeros(reads.size, np.int64)
        for number, ranges in enumerate(self._ranges.values(), 1):
            kinds[_are_in(reads, ranges)] = number
        return kinds

    def _ranks(self, kind: str, reads: I64) -> str:
        """Return the ranks that delivered reads of one kind, or those whose turn it was."""
        was_delivered, found = kind in ("once", "repeated"), []
        for run in self.runs:
            steps = run.steps if was_delivered else np.full(run.key.world_size, run.plan.steps)
            ranks = run.plan.ranks_of(reads, steps)
            mask = np.zeros(run.key.world_size, np.bool_)
            mask[ranks[ranks >= 0]] = True
            if mask.any():
                found.append(named_ranks(mask))
        return ", then ".join(found) if was_delivered else "".join(found[-1:])


def _arrays(found: RangeSet) -> tuple[I64, I64]:
    starts, stops = np.array(found.first, np.int64).reshape(-1, 2).T
    return starts, stops


def _intervals(start: int, stop: int) -> tuple[I64, I64]:
    return np.array([start]), np.array([stop])


def _divide(ranges: tuple[I64, I64], others: tuple[I64, I64]) -> tuple[tuple[I64, I64], tuple[I64, I64]]:
    """Return the parts of ranges that are outside other ranges, and those inside."""
    edges = np.unique(np.concatenate([*ranges, *others]))
    starts, stops = edges[:-1], edges[1:]
    mine, inside = _are_in(starts, ranges), _are_in(starts, others)
    outside = mine & ~inside
    inside &= mine
    return (starts[outside], stops[outside]), (starts[inside], stops[inside])


def _are_in(reads: I64, ranges: tuple[I64, I64]) -> NDArray[np.bool_]:
    """Return which read numbers are in one of some disjoint ranges."""
    starts, stops = ranges
    if not starts.size:
        return np.zeros(reads.shape, np.bool_)
    at = np.maximum(np.searchsorted(starts, reads, side="right") - 1, 0)
    found: NDArray[np.bool_] = (starts[at] <= reads) & (reads < stops[at])
    return found
