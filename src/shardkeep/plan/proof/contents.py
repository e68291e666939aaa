"""Contents of a receipt, and their JSON form: the data set, segments, histories and a mixture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast, get_args

from shardkeep._summary import summary
from shardkeep.errors import PlanError
from shardkeep.plan.checks import (
    MAX_BATCH_SIZE,
    MAX_ENTRIES,
    MAX_EPOCH,
    MAX_RECORDS,
    MAX_SEED,
    MAX_WORLD_SIZE,
    checked_int,
)
from shardkeep.plan.file_assignment import MAX_CYCLE_LENGTH, HistoryEntry, merge_history
from shardkeep.plan.mixture import MAX_PERIOD, Mixture, Part, Stop
from shardkeep.plan.order import Shuffle
from shardkeep.plan.proof.fields import Fields, kind_of

__all__ = [
    "Dataset",
    "Segment",
    "history_from_lists",
    "history_to_lists",
    "mixture_to_dict",
    "parse_dataset",
    "parse_mixture",
    "segments_from_dicts",
    "segments_to_dicts",
]


@dataclass(frozen=True, slots=True)
class Dataset:
    """Identity of a data set.

    Parameters
    ----------
    fingerprint : str
        Digest that is equal for two Loaders if and only if they read the same shards in the same order.
    records : int
        Number of records of all shards together.
    shards : tuple of str, counts : tuple of int
        Name and number of records of each shard, in order. Both are empty in a receipt that refers to a
        description of its data set (`shardkeep.plan.proof.description`).
    sizes : tuple of int
        Size of each shard in bytes, by which whole shards are assigned to ranks; empty in a receipt of ranks
        that share the records of all shards.
    """

    fingerprint: str
    records: int
    shards: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()

    __repr__ = summary


@dataclass(frozen=True, slots=True)
class Segment:
    """`steps` batches that were delivered in `epoch` by a run that began at global position `start`.

    If ranks read whole files, `history` has the earlier steps of the epoch.
    """

    epoch: int
    start: int
    steps: int
    history: tuple[HistoryEntry, ...] = ()

    __repr__ = summary


def segments_to_dicts(segments: Sequence[Segment]) -> list[dict[str, Any]]:
    """Return segments in their JSON form, with equal segments of consecutive epochs as one entry."""
    entries: list[dict[str, Any]] = []
    before: Segment | None = None
    for one in segments:
        equal = before is not None and replace(before, epoch=one.epoch) == one and not one.history
        if before is not None and equal and one.epoch == before.epoch + 1:
            entries[-1]["epochs"] = entries[-1].get("epochs", 1) + 1
        else:
            entries.append({"epoch": one.epoch, "start": one.start, "steps": one.steps})
            if one.history:
                entries[-1]["history"] = history_to_lists(one.history)
        before = one
    return entries


def segments_from_dicts(entries: Sequence[object], positions: int) -> list[Segment]:
    """Parse the result of `segments_to_dicts`; an epoch has `positions` positions."""
    segments: list[Segment] = []
    for i, entry in enumerate(entries):
        one = Fields(entry, f"segments[{i}].")
        epochs = one.integer("epochs", 1, MAX_ENTRIES - len(segments)) if "epochs" in one else 1
        first = Segment(
            epoch=one.integer("epoch", 0, MAX_EPOCH - epochs + 1),
            start=one.integer("start", 0, positions),
            steps=one.integer("steps", 0, MAX_RECORDS),
            history=history_from_lists(one.sequence("history"), "history") if "history" in one else (),
        )
        one.nothing_else()
        segments += [replace(first, epoch=first.epoch + number) for number in range(epochs)]
    return segments


def parse_dataset(fields: Fields, *, has_shards: bool = True) -> Dataset:
    """Parse a data set, from a receipt or a description, with or without its shards."""
    what = fields.what
    records = fields.integer("records", 0, MAX_RECORDS)
    fingerprint = fields.text("fingerprint", ".{1,1024}", "a text of 1 to 1024 characters")
    if not has_shards:
        fields.nothing_else()
        return Dataset(fingerprint, records)
    shards, counts = fields.sequence("shards"), fields.sequence("counts")
    for i, name in enumerate(shards):
        if not isinstance(name, str):
            raise PlanError(
                f"{what} has dataset.shards[{i}] of {kind_of(name)}, expected a string: was the file edited?"
            )
    numbers = _whole_numbers(counts, f"{what} has dataset.counts")
    if len(shards) != len(counts):
        raise PlanError(
            f"{what} has {len(shards)} dataset.shards and {len(counts)} dataset.counts: was the file edited?"
        )
    if counts and sum(numbers) != records:
        raise PlanError(
            f"{what} has dataset.counts that add up to {sum(numbers)}, not to dataset.records={records}: "
            "was the file edited?"
        )
    sizes = fields.sequence("sizes") if "sizes" in fields else []
    bytes_ = _whole_numbers(sizes, f"{what} has dataset.sizes")
    if sizes and len(sizes) != len(shards):
        raise PlanError(
            f"{what} has {len(shards)} dataset.shards and {len(sizes)} dataset.sizes: was the file edited?"
        )
    fields.nothing_else()
    return Dataset(fingerprint, records, tuple(cast("Sequence[str]", shards)), tuple(numbers), tuple(bytes_))


def history_to_lists(history: Sequence[HistoryEntry]) -> list[list[int]]:
    """Return a history in its JSON form."""
    return [[entry.world_size, entry.batch_size, entry.cycle_length, entry.steps] for entry in history]


def history_from_lists(data: object, where: str) -> tuple[HistoryEntry, ...]:
    """Parse the result of `history_to_lists`; `FilePlan` refuses a history that does not fit the data set."""
    if not isinstance(data, list | tuple):
        raise PlanError(f"{where} is {kind_of(data)}, expected a list: was it edited?")
    entries = []
    for i, one in enumerate(data):
        if not isinstance(one, list | tuple) or len(one) != 4:
            raise PlanError(f"{where}[{i}]={one!r:.60}, expected four numbers: was it edited?")
        names = ("world_size", "batch_size", "cycle_length", "steps")
        most = (MAX_WORLD_SIZE, MAX_BATCH_SIZE, MAX_CYCLE_LENGTH, MAX_RECORDS)
        entries.append(
            HistoryEntry(
                *(checked_int(f"{where}[{i}] {n}", v, 1, m) for n, v, m in zip(names, one, most, strict=True))
            )
        )
    return merge_history(entries)


def _whole_numbers(values: Sequence[object], where: str) -> list[int]:
    numbers = []
    for i, value in enumerate(values):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_RECORDS:
            raise PlanError(f"{where}[{i}]={value!r:.60}, expected an int of at least 0")
        numbers.append(value)
    return numbers


def mixture_to_dict(mixture: Mixture) -> dict[str, Any]:
    """Return a mixture in its JSON form."""
    return {
        "stop": mixture.stop,
        "parts": [
            {"records": part.records, "weight": part.weight, "shuffle": part.shuffle, "seed": part.seed}
            for part in mixture.parts
        ],
    }


def parse_mixture(fields: Fields, dataset: Dataset) -> Mixture:
    """Parse the result of `mixture_to_dict`; its parts must have the records of `dataset`."""
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
        raise PlanError(
            "receipt has mixture.parts with other numbers of records than dataset: was the file edited?"
        )
    return Mixture(tuple(parts), stop)
