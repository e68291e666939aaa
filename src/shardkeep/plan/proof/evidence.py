"""Evidence for an audit: receipts as they were parsed, the newest of each Loader, and those that agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from shardkeep.errors import CorruptDataError, PlanError
from shardkeep.plan.proof.contents import Dataset
from shardkeep.plan.proof.description import DescribedReceipt, is_description, parse_description
from shardkeep.plan.proof.receipt import Receipt, ReceiptParser
from shardkeep.plan.proof.report import RecordName
from shardkeep.plan.shards import ShardTable

__all__ = ["MAX_MESSAGES", "ShardNames", "comparable", "newest_of", "read_receipts"]

MAX_MESSAGES = 8


def read_receipts(
    receipts: Iterable[Receipt | Mapping[str, Any]],
) -> tuple[list[Receipt], dict[str, Callable[[], Dataset]]]:
    """Return the receipts, and for each described data set a function that returns it."""
    read: list[Receipt] = []
    described: dict[str, Callable[[], Dataset]] = {}
    parser = ReceiptParser()
    for i, receipt in enumerate(receipts):
        if isinstance(receipt, Receipt):
            read.append(receipt)
            continue
        try:
            if is_description(receipt):
                dataset = parse_description(receipt)
                described[dataset.fingerprint] = partial(_same, dataset)
                continue
            read.append(parser.parse(receipt))
        except (PlanError, CorruptDataError) as error:
            raise type(error)(f"receipt {i}: {error}") from None
        if isinstance(receipt, DescribedReceipt):
            described.setdefault(read[-1].dataset.fingerprint, receipt.describe)
    return read, described


def _same(dataset: Dataset) -> Dataset:
    return dataset


class ShardNames:
    """Names of the shards, from a receipt or the description of its data set, read when they are needed."""

    def __init__(self, data: Dataset, described: Mapping[str, Callable[[], Dataset]]) -> None:
        self._data = data
        self._described = described

    @cached_property
    def dataset(self) -> Dataset:
        """The data set, with its shards if they are known."""
        data = self._data
        if data.shards or data.fingerprint not in self._described:
            return data
        found = self._described[data.fingerprint]()
        if found.records != data.records:
            raise PlanError(
                f"the description of the data set {data.fingerprint:.60} has {found.records} records, the "
                f"receipts have {data.records}: describe the data of this training"
            )
        return found

    @cached_property
    def _table(self) -> ShardTable:
        return ShardTable(self.dataset.counts)

    def name(self, records: Sequence[int]) -> tuple[RecordName, ...]:
        """Return the names of records by their global numbers."""
        if not records or not self.dataset.counts:
            return tuple(RecordName(record, None, -1) for record in records)
        shard, index = self._table.locate(records)
        return tuple(
            RecordName(record, self.dataset.shards[s], i)
            for record, s, i in zip(records, shard.tolist(), index.tolist(), strict=True)
        )


def newest_of(receipts: Sequence[Receipt]) -> tuple[list[Receipt], list[str]]:
    """Return one receipt for each id, the one that covers the others, and contradictions."""
    best: dict[str, Receipt] = {}
    problems: list[str] = []
    for receipt in receipts:
        known = best.get(receipt.id)
        if known is None or _covers(receipt, known):
            best[receipt.id] = receipt
        elif not _covers(known, receipt):
            problems.append(
                f"two receipts with the id {receipt.id} contradict each other (rank {known.rank} and rank "
                f"{receipt.rank}): one was edited or its Loader copied; take receipts from the Loaders again"
            )
    return list(best.values()), problems[:MAX_MESSAGES]


def _covers(longer: Receipt, shorter: Receipt) -> bool:
    """Return True if `longer` has all of `shorter`, as a later receipt of the same Loader does."""
    if _identity(longer) != _identity(shorter):
        return False
    if not shorter.segments:
        return True
    *finished, current = shorter.segments
    number = len(finished)
    if len(longer.segments) <= number or list(longer.segments[:number]) != finished:
        return False
    grown = longer.segments[number]
    return (
        (grown.epoch, grown.start) == (current.epoch, current.start)
        and grown.steps >= current.steps
        and set(longer.damage) >= set(shorter.damage)
    )


def _identity(receipt: Receipt) -> tuple[object, ...]:
    return (receipt.rank, receipt.world_size, receipt.batch_size, receipt.remainder, *_meaning(receipt))


def _meaning(receipt: Receipt) -> tuple[object, ...]:
    """Return the values that must be equal if positions of two receipts refer to the same records."""
    blocks = (receipt.block_records, receipt.window_blocks) if receipt.shuffle == "blocks" else ()
    data = receipt.dataset
    return (
        data.fingerprint,
        data.records,
        receipt.shuffle,
        receipt.seed,
        blocks,
        receipt.order_version,
        "records" if receipt.cycle_length is None else "files",
        receipt.mixture,
    )


def comparable(receipts: Sequence[Receipt]) -> tuple[list[Receipt], list[str]]:
    """Return the largest group of comparable receipts, and how the others differ."""
    counted = Counter(_meaning(receipt) for receipt in receipts)
    if len(counted) == 1:
        return list(receipts), []
    usual = counted.most_common(1)[0][0]
    names = [
        *("data sets", "record numbers", "shuffles", "seeds", "block sizes", "order versions"),
        *("values of shard_by", "mixtures"),
    ]
    problems = []
    for i, name in enumerate(names):
        values = Counter[object]()
        for meaning, number in counted.items():
            values[meaning[i]] += number
        if len(values) > 1:
            shown = "; ".join(f"{value!r:.80} in {n}" for value, n in values.most_common(4))
            problems.append(
                f"the receipts have different {name} ({shown}): their positions refer to different records; "
                "audit each training separately"
            )
    return [receipt for receipt in receipts if _meaning(receipt) == usual], problems
