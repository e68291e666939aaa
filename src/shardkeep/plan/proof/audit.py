"""Audit of receipts: proof that every record was delivered exactly once, or the lost and repeated records.

The order of an epoch is a permutation of its positions. If all receipts have the same data set, seed, shuffle
and order version, each record was delivered once if each position was covered once. The audit therefore works
on ranges of positions, in closed form for ranks with equal steps. It converts only the first lost or repeated
positions into names of shards and numbers of records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from shardkeep.errors import PlanError
from shardkeep.plan.checks import MAX_EPOCH, checked_int
from shardkeep.plan.coverage import MOST_RANGES, RangeSet, StridedRanges, measure_coverage
from shardkeep.plan.file_assignment import HistoryEntry
from shardkeep.plan.order import ORDER_VERSION
from shardkeep.plan.proof.contents import Dataset, Segment
from shardkeep.plan.proof.damage import Damage
from shardkeep.plan.proof.evidence import MAX_MESSAGES, ShardNames, comparable, newest_of, read_receipts
from shardkeep.plan.proof.receipt import Receipt
from shardkeep.plan.proof.report import AuditReport, DamagedRecord, EpochAudit, RecordName
from shardkeep.plan.proof.runs import Run, RunKey, join_runs, named_ranks, runs_of

__all__ = ["Evidence", "audit"]

_MAX_NAMES = 5
# A small file may claim a million ranks many times; this limit keeps the memory of an audit below 1 GB.
_MAX_RANKS = 2**26


def audit(
    receipts: Iterable[Receipt | Mapping[str, Any]], *, epochs: Iterable[int] | None = None
) -> AuditReport:
    """Prove from receipts that every record of every epoch was delivered exactly once.

    Parameters
    ----------
    receipts : iterable of Receipt or of dict
        Receipts of all ranks and all runs, in any order. Of several with one id, which belong to one Loader,
        the longest counts. Descriptions of data sets (``loader.describe_data()``) may be among them.
    epochs : iterable of int, optional
        Epochs to prove; by default all from 0 to the newest in any receipt. The audit then fails if that
        epoch is not finished.

    Returns
    -------
    AuditReport
        A report whose `ok` is True only if no record was lost or repeated and no receipts contradict each
        other.

    Raises
    ------
    PlanError
        A receipt is malformed (the message names receipt and key), the receipts claim more than 2**26 ranks
        over all runs, the description of a data set is missing that was read by whole files, or an epoch is
        not an int of at least 0.
    CorruptDataError
        When a receipt does not have the checksum of its content.

    Notes
    -----
    Time and memory depend on the number of segments, and on the number of steps only where ranks of one
    run made different numbers of steps.

    Examples
    --------
    Two ranks, 10 records, batches of 2; the second run takes over at position 4 with one rank.

    >>> from shardkeep.plan import Dataset, Receipt, Segment
    >>> def receipt(id, rank, size, *segments):
    ...     return Receipt(
    ...         id=id * 32, rank=rank, world_size=size, batch_size=2, remainder="mask", shuffle=False, seed=0,
    ...         dataset=Dataset("c0ffee", 10, ("a", "b"), (6, 4)),
    ...         segments=tuple(Segment(*s) for s in segments),
    ...     )
    >>> first = [receipt("a", 0, 2, (0, 0, 1)), receipt("b", 1, 2, (0, 0, 1))]
    >>> print(audit([*first, receipt("c", 0, 1, (0, 4, 3))]))
    epoch 0: ok, 10 of 10 records delivered
    >>> print(audit([*first, receipt("c", 0, 1, (0, 6, 2))]))
    epoch 0: FAILED, 8 of 10 records delivered, 2 lost (first: a record 4)
    """
    for name, value in (("receipts", receipts), ("epochs", () if epochs is None else epochs)):
        if not isinstance(value, Iterable):
            raise PlanError(f"{name} must be a list, not {value!r:.60}")
    wanted = None if epochs is None else {checked_int("epoch", e, 0, MAX_EPOCH) for e in epochs}
    read, described = read_receipts(receipts)
    newest, problems = newest_of(read)
    if not newest:
        return AuditReport(0, (), ("there are no receipts: collect loader.receipt() of every rank",))
    evidence = Evidence(newest, described, wanted)
    found = tuple(evidence.audit(epoch) for epoch in evidence.epochs)
    return AuditReport(len(newest), found, (*problems, *evidence.problems))


class Evidence:
    """The receipts that agree, as the runs of each epoch.

    Parameters
    ----------
    newest : sequence of Receipt
        At least one; one for each id.
    described : mapping
        The result of `read_receipts`.
    wanted : set of int, optional
        Epochs to prove, see `audit`.

    Attributes
    ----------
    epochs : list of int
        Epochs to prove, ascending.
    problems : list of str
        Faults that do not belong to a single epoch.
    runs : dict of int to list of Run
        By epoch. Those that single ranks resumed are joined where this explains them.
    sample : Receipt
        A receipt, for what all have in common: data set and order.
    shards : ShardNames
    """

    def __init__(
        self,
        newest: Sequence[Receipt],
        described: Mapping[str, Callable[[], Dataset]],
        wanted: set[int] | None = None,
    ) -> None:
        kept, self.problems = comparable(newest)
        groups = _runs_of(kept, wanted)
        claimed = sum(key.world_size for key in groups)
        if claimed > _MAX_RANKS:
            raise PlanError(
                f"the receipts claim {claimed} ranks over all runs and epochs, more than {_MAX_RANKS}: audit "
                "fewer epochs at a time, or search for an edited world_size"
            )
        by_epoch: dict[int, list[Run]] = defaultdict(list)
        sample = next((receipt for receipt in kept if receipt.dataset.shards), kept[0])
        self.shards = ShardNames(sample.dataset, described)
        if sample.cycle_length is not None:
            sample = replace(sample, dataset=self.shards.dataset)
        self.sample = sample
        files = sample.files()
        for key in sorted(groups):
            ranks, steps = [r.rank for r, _ in groups[key]], [s.steps for _, s in groups[key]]
            plan_of = partial(Receipt.plan, *groups[key][0], files=files)
            by_epoch[key.epoch] += runs_of(key, plan_of, ranks, steps, [r.remainder for r, _ in groups[key]])
        self._latest = max((s.epoch for receipt in kept for s in receipt.segments), default=0)
        if wanted is None:
            if self._latest and _untouched(by_epoch[self._latest]):
                # A Loader may have begun the next epoch without delivering a batch of it.
                del by_epoch[self._latest]
            self.epochs, gaps = _expected(by_epoch)
            self.problems += gaps
        else:
            self.epochs = sorted(wanted)
        self.runs = {epoch: _explained(by_epoch[epoch]) for epoch in self.epochs}
        self._damage: dict[int, list[Damage]] = defaultdict(list)
        for receipt in kept:
            for one in receipt.damage:
                self._damage[one.epoch].append(one)

    def audit(self, epoch: int, *, most_ranges: int = MOST_RANGES) -> EpochAudit:
        """Return the deliveries and faults of an epoch, with at most `most_ranges` ranges of each kind."""
        runs, sample = self.runs[epoch], self.sample
        records = sample.positions
        dropped = StridedRanges.joined(run.dropped() for run in runs)
        delivered = StridedRanges.joined(run.delivered() for run in runs)
        found = measure_coverage(delivered, records, dropped=dropped, most_ranges=most_ranges)
        # Also without repeated positions, since the repeated step of a rank may have no rows.
        problems = [*(text for run in runs for text in _faults(run, runs)), *_repetitions(runs)]
        if not runs:
            problems.append("no receipt covers this epoch: add the receipts of its runs")
        reached = max((run.stop for run in runs), default=0)
        damage = self._damage[epoch]
        skipped = _damaged([one for one in damage if not one.repaired], sample, self.shards)
        newest = epoch >= self._latest
        return EpochAudit(
            epoch=epoch,
            records=records,
            delivered=max(found.delivered - len(skipped), 0),
            lost=found.lost,
            repeated=found.repeated,
            dropped=found.dropped,
            lost_names=_names(found.lost, sample, self.shards, epoch),
            repeated_names=_names(found.repeated, sample, self.shards, epoch),
            skipped=skipped,
            repaired=_damaged([one for one in damage if one.repaired], sample, self.shards),
            under_way=newest and not problems and found.lost.records == records - reached > 0,
            problems=tuple(_shortened(problems)),
        )


def _runs_of(
    receipts: Sequence[Receipt], wanted: Container[int] | None
) -> dict[RunKey, list[tuple[Receipt, Segment]]]:
    """Return the segments of the wanted epochs, by run."""
    groups: dict[tuple[int, int, int, int, int, int], list[tuple[Receipt, Segment]]] = defaultdict(list)
    # Histories are long, and the ranks of a run often share one object: each object is compared once.
    numbers: dict[tuple[HistoryEntry, ...], int] = {}
    known: dict[int, int] = {}
    for receipt in receipts:
        cycle = receipt.cycle_length or 0
        for s in receipt.segments:
            if wanted is not None and s.epoch not in wanted:
                continue
            number = known.get(id(s.history))
            if number is None:
                number = known[id(s.history)] = numbers.setdefault(s.history, len(numbers))
            key = (s.epoch, s.start, receipt.world_size, receipt.batch_size, cycle, number)
            groups[key].append((receipt, s))
    return {
        RunKey(epoch, start, world_size, batch_size, cycle, parts[0][1].history): parts
        for (epoch, start, world_size, batch_size, cycle, _), parts in groups.items()
    }


def _explained(runs: list[Run]) -> list[Run]:
    """Return the runs, with those joined that single ranks resumed if this explains their faults."""
    if any(_faults(run, runs) for run in runs):
        joined = join_runs(runs)
        if not any(_faults(run, joined) for run in joined):
            return joined
    return runs


def _untouched(runs: Sequence[Run]) -> bool:
    return not any(run.steps.any() or run.finished for run in runs)


def _expected(by_epoch: Mapping[int, object]) -> tuple[list[int], list[str]]:
    """Return the epochs that have runs, and a problem for epochs before them that have none."""
    there = sorted(by_epoch)
    gaps, after = [], 0
    for epoch in there:
        if epoch > after:
            gaps.append(f"{after}" if epoch - after == 1 else f"{after}-{epoch - 1}")
        after = epoch + 1
    if not gaps:
        return there, [] if there else ["no receipt has delivered a batch: nothing is proved"]
    return there, [
        f"no receipt covers epoch {', '.join(gaps[:MAX_MESSAGES])}: add the receipts of the earlier runs, "
        "or pass the epochs to prove as epochs="
    ]


def _faults(run: Run, runs: Sequence[Run]) -> list[str]:
    """Return the faults of one run."""
    faults = []
    if len(run.remainders) > 1:
        kinds = " and ".join(repr(kind) for kind in run.remainders)
        faults.append(f"the ranks from {run.key} have remainder={kinds}: pass the same to every rank")
    if run.overrun.any():
        faults.append(
            f"{named_ranks(run.overrun)} claim more than the {run.plan.steps} possible steps from "
            f"{run.key}: the receipt was edited or belongs to another data set"
        )
    if run.plan.start != run.key.start:
        faults.append(
            f"the history of the run from {run.key} ends at position {run.plan.start}: the receipt was edited"
        )
    if run.again or not (run.steps.any() or run.plan.position_after(run.plan.steps) < run.plan.records):
        return faults
    if not run.present.all():
        others = [
            other.key
            for other in runs
            if other.key != run.key and other.key.start == run.key.start and not other.present.all()
        ]
        hint = f"; other ranks resumed at {others[0]}: load the same state on every rank" if others else ""
        faults.append(
            f"{named_ranks(~run.present)} of {run.key.world_size} have no receipt of the run from {run.key}: "
            f"collect the receipts of all ranks{hint}"
        )
    most = int(run.steps.max())
    slower = run.present & (run.steps < most)
    if slower.any():
        faults.append(
            f"{named_ranks(slower)} made fewer than the {most} steps of the others from {run.key}: take all "
            "receipts at the same step, with the checkpoint; of ranks that are not in step, when all have "
            "finished the epoch"
        )
    return faults


def _repetitions(runs: Sequence[Run]) -> list[str]:
    """Return a problem for each pair of runs that delivered the same positions."""
    said = []
    furthest: Run | None = None
    for run in runs:
        if not run.steps.any():
            continue
        if furthest is not None and furthest.stop > run.key.start:
            stop = min(furthest.stop, run.stop)
            first = "two runs" if furthest.key == run.key else f"the run from {furthest.key} and the run"
            said.append(
                f"{first} from {run.key} both delivered positions {run.key.start} to {stop - 1}: the later "
                "one was resumed from a checkpoint older than the receipts; keep loader.receipt() in the "
                "checkpoint, or roll the receipts back with it (shardkeep.hdf5.rollback), and audit again"
            )
        if furthest is None or run.stop > furthest.stop:
            furthest = run
    return said


def _names(found: RangeSet, sample: Receipt, shards: ShardNames, epoch: int) -> tuple[RecordName, ...]:
    positions = found.leading(_MAX_NAMES)
    if not positions or sample.order_version != ORDER_VERSION:
        return ()
    # If ranks read whole files, coverage counts record numbers.
    by_files = sample.cycle_length is not None
    records = np.array(positions) if by_files else sample.order(epoch).records_at(positions)
    return shards.name(records.tolist())


def _damaged(damage: Sequence[Damage], sample: Receipt, shards: ShardNames) -> tuple[DamagedRecord, ...]:
    # A record that two runs read is one damaged record; a mixture may repeat records on purpose.
    found = sorted(damage, key=lambda one: one.record)
    if sample.mixture is None:
        found = [one for i, one in enumerate(found) if not i or one.record != found[i - 1].record]
    names = shards.name([one.record for one in found])
    return tuple(
        DamagedRecord(name, one.start_bytes, one.stop_bytes) for name, one in zip(names, found, strict=True)
    )


def _shortened(problems: Sequence[str]) -> list[str]:
    if len(problems) <= MAX_MESSAGES:
        return list(problems)
    return [*problems[: MAX_MESSAGES - 1], f"{len(problems) - MAX_MESSAGES + 1} more problems of this kind"]
