"""What one rank has delivered, in a few hundred bytes: the evidence that an audit works on.

A receipt holds ranges, never lists of records. It belongs to one Loader object of one rank, and to the
stretch since that Loader was made or since it took over a state: a Loader takes a new `id` whenever a
state is loaded into it. Receipts are cumulative, so of several with one `id` the longest says it all.

As JSON a receipt has the CRC32C of its content (`shardkeep.plan.sealed_json`), since a proof must not rest on
a flipped bit. Those of versions 1 and 2 have none and are read as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast, get_args

from shardkeep.errors import CorruptDataError, PlanError
from shardkeep.plan.checks import (
    MAX_BATCH_SIZE,
    MAX_ENTRIES,
    MAX_EPOCH,
    MAX_RECORDS,
    MAX_SEED,
    MAX_WORLD_SIZE,
    checked_int,
)
from shardkeep.plan.damage import Damage, damage_from_lists, damage_to_lists
from shardkeep.plan.epoch import EpochPlan, Remainder
from shardkeep.plan.fields import Fields, kind_of
from shardkeep.plan.file_assignment import MAX_CYCLE_LENGTH, FileSet, Leg, joined
from shardkeep.plan.file_plan import FilePlan
from shardkeep.plan.mixture import MAX_PERIOD, MixedOrder, Mixture, Part, Stop
from shardkeep.plan.order import BLOCK_RECORDS, ORDER_VERSION, WINDOW_BLOCKS, EpochOrder, Shuffle, epoch_order
from shardkeep.plan.sealed_json import CRC_KEY, check_seal, seal
from shardkeep.plan.shards import ShardTable

__all__ = [
    "RECEIPT_VERSION",
    "Dataset",
    "Receipt",
    "Segment",
    "check_receipt_seal",
    "legs_from_lists",
    "legs_to_lists",
]

RECEIPT_VERSION = 3


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
    sizes : tuple of int
        Bytes of each shard, by which whole shards were divided among ranks; empty otherwise.
    """

    fingerprint: str
    records: int
    shards: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Segment:
    """`steps` batches handed out in `epoch` by a run that began at global position `start`.

    Where ranks read whole files, `history` is what the worlds before that run delivered of the epoch.
    """

    epoch: int
    start: int
    steps: int
    history: tuple[Leg, ...] = ()


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
        In the order of delivery. All but the last are finished. As JSON, those of epochs in a row that
        are otherwise equal are one entry with their number as ``"epochs"``.
    cycle_length : int or None
        Files that a rank reads at a time; None where ranks share the records of all files.
    mixture : Mixture, optional
        Of which data sets; `dataset` then is all of them, one after the other.
    damage : tuple of Damage
        Damaged records among what the segments cover: skipped, or repaired and delivered. As JSON they are
        ``"skipped"`` and ``"repaired"``, lists of [epoch, global record number, first byte of the frame, byte
        behind its last], which are there only if there are any; their order means nothing. A fifth number
        is that of the epochs in a row in which it was met.

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
    cycle_length: int | None = None
    mixture: Mixture | None = None
    damage: tuple[Damage, ...] = ()

    @property
    def positions(self) -> int:
        """Positions of an epoch."""
        return self.dataset.records if self.mixture is None else self.mixture.records

    def order(self, epoch: int) -> EpochOrder | MixedOrder:
        """Return the order of an epoch: what record a position stands for."""
        if self.mixture is not None:
            return self.mixture.order(epoch)
        return epoch_order(
            self.dataset.records,
            shuffle=self.shuffle,
            seed=self.seed,
            epoch=epoch,
            block_records=self.block_records,
            window_blocks=self.window_blocks,
        )

    def files(self) -> FileSet | None:
        """Return the files and their order where ranks read whole ones."""
        if self.cycle_length is None:
            return None
        table = ShardTable(self.dataset.counts)
        return FileSet(table, self.dataset.sizes, shuffled=self.shuffle is not False, seed=self.seed)

    def plan(self, segment: Segment, remainder: Remainder, files: FileSet | None) -> EpochPlan | FilePlan:
        """Return the steps of the run that a segment is a part of; `files` is what `files()` gave."""
        if files is None or self.cycle_length is None:
            return EpochPlan(self.positions, segment.start, self.world_size, self.batch_size, remainder)
        return FilePlan(
            files,
            self.world_size,
            self.batch_size,
            self.cycle_length,
            remainder,
            epoch=segment.epoch,
            history=segment.history,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the receipt as JSON-able types, with a checksum; `from_dict` reads it back."""
        damage = {
            "skipped": damage_to_lists(self.damage, repaired=False),
            "repaired": damage_to_lists(self.damage, repaired=True),
        }
        values = {
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
                **({"sizes": list(self.dataset.sizes)} if self.dataset.sizes else {}),
            },
            "shuffle": self.shuffle,
            "seed": self.seed,
            "block_records": self.block_records,
            "window_blocks": self.window_blocks,
            "order_version": self.order_version,
            **({} if self.cycle_length is None else {"cycle_length": self.cycle_length}),
            **({} if self.mixture is None else {"mixture": _mixture_to_dict(self.mixture)}),
            "segments": _segments_to_dicts(self.segments),
            **{key: lists for key, lists in damage.items() if lists},
        }
        return seal(values)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Receipt:
        """Read what `to_dict` wrote.

        The input may come from anywhere: every key is checked for its presence, type and range.

        Raises
        ------
        PlanError
            Naming the key that is missing, unknown or wrong.
        CorruptDataError
            It does not have the checksum of its content.
        """
        check_receipt_seal(data)
        fields = Fields(data, "")
        if CRC_KEY in fields:
            fields.text(CRC_KEY, ".*", "a text")
        version = fields.integer("receipt_version", 1, 2**31)
        if version > RECEIPT_VERSION:
            raise PlanError(
                f"receipt has receipt_version={version}, wanted {RECEIPT_VERSION} at most: update shardkeep"
            )
        world_size = fields.integer("world_size", 1, MAX_WORLD_SIZE)
        dataset = _dataset(fields.mapping("dataset"))
        mixture = _mixture(fields.mapping("mixture"), dataset) if "mixture" in fields else None
        cycle_length = None
        if "cycle_length" in fields:
            cycle_length = fields.integer("cycle_length", 1, MAX_CYCLE_LENGTH)
            if len(dataset.sizes) != len(dataset.counts) or sum(dataset.counts) != dataset.records:
                raise PlanError(
                    "receipt has a cycle_length, but no dataset.sizes and counts: was the file edited?"
                )
            if mixture is not None:
                raise PlanError("receipt has both a cycle_length and a mixture: was the file edited?")
        most = dataset.records if mixture is None else mixture.records
        segments = _segments(fields.sequence("segments"), most)
        damage = [
            damage_from_lists(key, fields.sequence(key), records=dataset.records)
            for key in ("skipped", "repaired")
            if key in fields
        ]
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
            cycle_length=cycle_length,
            mixture=mixture,
            damage=tuple(one for part in damage for one in part),
        )
        fields.nothing_else()
        return receipt


def check_receipt_seal(data: object, path: str | None = None) -> None:
    """Raise a `CorruptDataError` for a receipt that was damaged or edited; `path` is the file it is from."""
    if not isinstance(data, Mapping):
        return
    # `from_dict` refuses a later version.
    if CRC_KEY not in data and data.get("receipt_version") != RECEIPT_VERSION:
        return
    try:
        check_seal(data)
    except (ValueError, TypeError, RecursionError) as error:
        where = "" if path is None else f" in {path!r}"
        message = f"the receipt{where} is damaged or was edited ({error}): take it from a copy"
        raise CorruptDataError(message, path=path) from error


def _segments_to_dicts(segments: Sequence[Segment]) -> list[dict[str, Any]]:
    """Return segments as JSON has them, equal ones of epochs that follow each other as one with "epochs"."""
    entries: list[dict[str, Any]] = []
    before: Segment | None = None
    for one in segments:
        equal = before is not None and replace(before, epoch=one.epoch) == one and not one.history
        if before is not None and equal and one.epoch == before.epoch + 1:
            entries[-1]["epochs"] = entries[-1].get("epochs", 1) + 1
        else:
            entries.append({"epoch": one.epoch, "start": one.start, "steps": one.steps})
            if one.history:
                entries[-1]["history"] = legs_to_lists(one.history)
        before = one
    return entries


def _segments(entries: Sequence[object], positions: int) -> list[Segment]:
    segments: list[Segment] = []
    for i, entry in enumerate(entries):
        one = Fields(entry, f"segments[{i}].")
        epochs = one.integer("epochs", 1, MAX_ENTRIES - len(segments)) if "epochs" in one else 1
        first = Segment(
            epoch=one.integer("epoch", 0, MAX_EPOCH - epochs + 1),
            start=one.integer("start", 0, positions),
            steps=one.integer("steps", 0, MAX_RECORDS),
            history=_history(one) if "history" in one else (),
        )
        one.nothing_else()
        segments += [replace(first, epoch=first.epoch + number) for number in range(epochs)]
    return segments


def _dataset(fields: Fields) -> Dataset:
    records = fields.integer("records", 0, MAX_RECORDS)
    fingerprint = fields.text("fingerprint", ".{1,1024}", "a text of 1 to 1024 characters")
    shards, counts = fields.sequence("shards"), fields.sequence("counts")
    for i, name in enumerate(shards):
        if not isinstance(name, str):
            raise PlanError(
                f"receipt has dataset.shards[{i}] of {kind_of(name)}, wanted a text: was the file edited?"
            )
    numbers = _whole_numbers(counts, "dataset.counts")
    if len(shards) != len(counts):
        raise PlanError(
            f"receipt has {len(shards)} dataset.shards and {len(counts)} dataset.counts: was the file edited?"
        )
    if counts and sum(numbers) != records:
        raise PlanError(
            f"receipt has dataset.counts that add up to {sum(numbers)}, not to dataset.records={records}: "
            "was the file edited?"
        )
    sizes = _whole_numbers(fields.sequence("sizes"), "dataset.sizes") if "sizes" in fields else []
    fields.nothing_else()
    return Dataset(fingerprint, records, tuple(cast("Sequence[str]", shards)), tuple(numbers), tuple(sizes))


def legs_to_lists(legs: Sequence[Leg]) -> list[list[int]]:
    """Return a history as JSON has it."""
    return [[leg.world_size, leg.batch_size, leg.cycle_length, leg.steps] for leg in legs]


def legs_from_lists(data: object, where: str) -> tuple[Leg, ...]:
    """Read what `legs_to_lists` wrote; what makes no sense for the data set is refused by `FilePlan`."""
    if not isinstance(data, list | tuple):
        raise PlanError(f"{where} is {kind_of(data)}, wanted a list: was it edited?")
    legs = []
    for i, one in enumerate(data):
        if not isinstance(one, list | tuple) or len(one) != 4:
            raise PlanError(f"{where}[{i}]={one!r:.60}, wanted four numbers: was it edited?")
        names = ("world_size", "batch_size", "cycle_length", "steps")
        most = (MAX_WORLD_SIZE, MAX_BATCH_SIZE, MAX_CYCLE_LENGTH, MAX_RECORDS)
        legs.append(
            Leg(
                *(checked_int(f"{where}[{i}] {n}", v, 1, m) for n, v, m in zip(names, one, most, strict=True))
            )
        )
    return joined(legs)


def _history(fields: Fields) -> tuple[Leg, ...]:
    return legs_from_lists(fields.sequence("history"), "history")


def _whole_numbers(values: Sequence[object], where: str) -> list[int]:
    numbers = []
    for i, value in enumerate(values):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_RECORDS:
            raise PlanError(f"receipt has {where}[{i}]={value!r:.60}, wanted a whole number from 0 on")
        numbers.append(value)
    return numbers


def _mixture_to_dict(mixture: Mixture) -> dict[str, Any]:
    return {
        "stop": mixture.stop,
        "parts": [
            {"records": part.records, "weight": part.weight, "shuffle": part.shuffle, "seed": part.seed}
            for part in mixture.parts
        ],
    }


def _mixture(fields: Fields, dataset: Dataset) -> Mixture:
    parts = []
    for i, entry in enumerate(fields.sequence("parts")):
        one = Fields(entry, f"mixture.parts[{i}].")
        parts.append(
            Part(
                records=one.integer("records", 0, MAX_RECORDS),
                weight=one.integer("weight", 1, MAX_PERIOD),
                shuffle=cast(Shuffle, one.choice("shuffle", get_args(Shuffle))),
                seed=one.integer("seed", 0, MAX_SEED),
            )
        )
        one.nothing_else()
    stop = cast(Stop, fields.choice("stop", get_args(Stop)))
    fields.nothing_else()
    if sum(part.records for part in parts) != dataset.records:
        raise PlanError("receipt has mixture.parts that are not the records of dataset: was the file edited?")
    return Mixture(tuple(parts), stop)
