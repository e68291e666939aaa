"""What one rank has delivered, in a few hundred bytes: the evidence that an audit works on.

A receipt holds ranges, never lists of records. It belongs to one Loader object of one rank, and to the
stretch since that Loader was made or since it took over a state: a Loader takes a new `id` whenever a
state is loaded into it. Receipts are cumulative, so of several with one `id` the longest says it all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

from shardkeep.errors import PlanError
from shardkeep.plan.checks import MAX_BATCH_SIZE, MAX_EPOCH, MAX_RECORDS, MAX_SEED, MAX_WORLD_SIZE
from shardkeep.plan.epoch import Remainder
from shardkeep.plan.order import BLOCK_RECORDS, ORDER_VERSION, WINDOW_BLOCKS, Shuffle

__all__ = ["RECEIPT_VERSION", "Dataset", "Receipt", "Segment"]

RECEIPT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Dataset:
    """Which records the positions stand for.

    Parameters
    ----------
    fingerprint : str
        Equal for two Loaders exactly when they read the same shards in the same order.
    records : int
        Of all shards together.
    shards : tuple of str, counts : tuple of int
        Name and number of records of each shard, in order. Both may be empty: an audit then gives global
        record numbers in place of names.
    """

    fingerprint: str
    records: int
    shards: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Segment:
    """`steps` batches handed out in `epoch` by a run that began at global position `start`."""

    epoch: int
    start: int
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What one Loader of one rank has delivered.

    Parameters
    ----------
    id : str
        32 hexadecimal digits, new for every Loader and for every state that is loaded into one.
    rank, world_size, batch_size, remainder
        As in `EpochPlan`; the same for all segments.
    dataset : Dataset
    shuffle, seed, block_records, window_blocks, order_version
        What decides which record a position stands for (see `epoch_order`).
    segments : tuple of Segment
        In the order of delivery. All but the last are finished.

    Examples
    --------
    >>> receipt = Receipt(
    ...     id="0" * 32, rank=0, world_size=2, batch_size=8, remainder="mask",
    ...     dataset=Dataset("c0ffee", 100, ("a", "b"), (60, 40)), shuffle="global", seed=7,
    ...     segments=(Segment(0, 0, 7), Segment(1, 0, 2)),
    ... )
    >>> Receipt.from_dict(receipt.to_dict()) == receipt
    True
    """

    id: str
    rank: int
    world_size: int
    batch_size: int
    remainder: Remainder
    dataset: Dataset
    shuffle: Shuffle
    seed: int
    segments: tuple[Segment, ...] = ()
    block_records: int = BLOCK_RECORDS
    window_blocks: int = WINDOW_BLOCKS
    order_version: int = ORDER_VERSION

    def to_dict(self) -> dict[str, Any]:
        """Return the receipt as JSON-able types; `from_dict` reads it back."""
        return {
            "receipt_version": RECEIPT_VERSION,
            "id": self.id,
            "rank": self.rank,
            "world_size": self.world_size,
            "batch_size": self.batch_size,
            "remainder": self.remainder,
            "dataset": {
                "fingerprint": self.dataset.fingerprint,
                "records": self.dataset.records,
                "shards": list(self.dataset.shards),
                "counts": list(self.dataset.counts),
            },
            "shuffle": self.shuffle,
            "seed": self.seed,
            "block_records": self.block_records,
            "window_blocks": self.window_blocks,
            "order_version": self.order_version,
            "segments": [{"epoch": s.epoch, "start": s.start, "steps": s.steps} for s in self.segments],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Receipt:
        """Read what `to_dict` wrote.

        The input may come from anywhere: every key is checked for its presence, type and range.

        Raises
        ------
        PlanError
            Naming the key that is missing, unknown or wrong.
        """
        fields = _Fields(data, "")
        version = fields.integer("receipt_version", 1, 2**31)
        if version > RECEIPT_VERSION:
            raise PlanError(
                f"receipt has receipt_version={version}, wanted {RECEIPT_VERSION} at most: update shardkeep"
            )
        world_size = fields.integer("world_size", 1, MAX_WORLD_SIZE)
        dataset = _dataset(fields.mapping("dataset"))
        segments = []
        for i, entry in enumerate(fields.sequence("segments")):
            one = _Fields(entry, f"segments[{i}].")
            segments.append(
                Segment(
                    epoch=one.integer("epoch", 0, MAX_EPOCH),
                    start=one.integer("start", 0, dataset.records),
                    steps=one.integer("steps", 0, MAX_RECORDS),
                )
            )
            one.nothing_else()
        receipt = cls(
            id=fields.text("id", "[0-9a-f]{32}", "32 hexadecimal digits"),
            rank=fields.integer("rank", 0, world_size - 1),
            world_size=world_size,
            batch_size=fields.integer("batch_size", 1, MAX_BATCH_SIZE),
            remainder=cast(Remainder, fields.choice("remainder", get_args(Remainder))),
            dataset=dataset,
            shuffle=cast(Shuffle, fields.choice("shuffle", get_args(Shuffle))),
            seed=fields.integer("seed", 0, MAX_SEED),
            segments=tuple(segments),
            block_records=fields.integer("block_records", 1, 2**31 - 1),
            window_blocks=fields.integer("window_blocks", 1, 2**31 - 1),
            order_version=fields.integer("order_version", 1, 2**31),
        )
        fields.nothing_else()
        return receipt


class _Fields:
    """Takes the keys of an untrusted mapping one by one and says which one is wrong."""

    def __init__(self, data: object, prefix: str) -> None:
        where = prefix.rstrip(".") or "receipt"
        if not isinstance(data, Mapping):
            raise PlanError(f"{where} is {_kind(data)}, not an object: is this a receipt of shardkeep?")
        self._data = data
        self._prefix = prefix
        self._taken: set[str] = set()

    def _take(self, key: str) -> object:
        self._taken.add(key)
        if key not in self._data:
            raise PlanError(
                f"receipt has no {self._prefix}{key}: is the file whole and a receipt of shardkeep?"
            )
        return self._data[key]

    def _wrong(self, key: str, value: object, wanted: str) -> PlanError:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return PlanError(f"receipt has {self._prefix}{key}={shown}, wanted {wanted}: was the file edited?")

    def integer(self, key: str, low: int, high: int) -> int:
        value = self._take(key)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self._wrong(key, value, f"a whole number from {low} to {high}")
        return value

    def text(self, key: str, pattern: str, wanted: str) -> str:
        value = self._take(key)
        if not isinstance(value, str) or re.fullmatch(pattern, value, re.DOTALL) is None:
            raise self._wrong(key, value, wanted)
        return value

    def choice(self, key: str, choices: Sequence[object]) -> object:
        value = self._take(key)
        for choice in choices:
            if type(value) is type(choice) and value == choice:
                return choice
        raise self._wrong(key, value, "one of " + ", ".join(repr(choice) for choice in choices))

    def mapping(self, key: str) -> _Fields:
        return _Fields(self._take(key), f"{self._prefix}{key}.")

    def sequence(self, key: str) -> Sequence[object]:
        value = self._take(key)
        if not isinstance(value, list | tuple):
            raise self._wrong(key, value, "a list")
        return value

    def nothing_else(self) -> None:
        for key in self._data:
            if key not in self._taken:
                raise PlanError(
                    f"receipt has the unknown key {self._prefix}{key!s:.60}: is it from a newer shardkeep?"
                )


def _dataset(fields: _Fields) -> Dataset:
    records = fields.integer("records", 0, MAX_RECORDS)
    fingerprint = fields.text("fingerprint", ".{1,1024}", "a text of 1 to 1024 characters")
    shards, counts = fields.sequence("shards"), fields.sequence("counts")
    for i, name in enumerate(shards):
        if not isinstance(name, str):
            raise PlanError(
                f"receipt has dataset.shards[{i}] of {_kind(name)}, wanted a text: was the file edited?"
            )
    numbers = []
    for i, count in enumerate(counts):
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise PlanError(f"receipt has dataset.counts[{i}]={count!r:.60}, wanted a whole number from 0 on")
        numbers.append(count)
    if len(shards) != len(counts):
        raise PlanError(
            f"receipt has {len(shards)} dataset.shards and {len(counts)} dataset.counts: was the file edited?"
        )
    if counts and sum(numbers) != records:
        raise PlanError(
            f"receipt has dataset.counts that add up to {sum(numbers)}, not to dataset.records={records}: "
            "was the file edited?"
        )
    fields.nothing_else()
    return Dataset(fingerprint, records, tuple(cast("Sequence[str]", shards)), tuple(numbers))


def _kind(value: object) -> str:
    return "null" if value is None else f"a {type(value).__name__}"
