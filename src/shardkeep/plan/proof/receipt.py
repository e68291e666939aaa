"""Receipts: what one rank has delivered, in a few hundred bytes, as evidence for an audit.

A receipt has ranges, not lists of records. It belongs to one Loader of one rank, from its creation or from
the last loaded state on: a Loader gets a new `id` with each loaded state. Receipts are cumulative, so of
several with one `id` the longest is complete.

As JSON a receipt has the CRC32C of its content (`sealed_json`), so that a flipped bit cannot change a proof.
Receipts of versions 1 and 2 have no checksum and are read without it. A receipt of up to version 3 has the
shards of its data set; one of version 4 refers to their description by the fingerprint (`description`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast, get_args

from shardkeep._summary import summary
from shardkeep.errors import CorruptDataError, PlanError
from shardkeep.plan.checks import MAX_BATCH_SIZE, MAX_SEED, MAX_WORLD_SIZE
from shardkeep.plan.epoch import EpochPlan, Remainder
from shardkeep.plan.file_assignment import MAX_CYCLE_LENGTH, FileSet
from shardkeep.plan.file_plan import FilePlan
from shardkeep.plan.mixture import MixedOrder, Mixture
from shardkeep.plan.order import BLOCK_RECORDS, ORDER_VERSION, WINDOW_BLOCKS, EpochOrder, Shuffle, epoch_order
from shardkeep.plan.proof.contents import (
    Dataset,
    Segment,
    mixture_to_dict,
    parse_dataset,
    parse_mixture,
    segments_from_dicts,
    segments_to_dicts,
)
from shardkeep.plan.proof.damage import Damage, damage_from_lists, damage_to_lists
from shardkeep.plan.proof.fields import Fields
from shardkeep.plan.proof.sealed_json import CRC_KEY, check_seal, seal
from shardkeep.plan.shards import ShardTable

__all__ = ["RECEIPT_VERSION", "Receipt", "ReceiptParser", "check_receipt_seal"]

RECEIPT_VERSION = 4
# The receipts of a rank in all runs come one after another, then those of the next rank.
_MOST_KNOWN = 1024
_FIRST_WITH_CHECKSUM = _LAST_WITH_SHARDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """Deliveries of one Loader of one rank.

    Parameters
    ----------
    id : str
        32 hexadecimal digits, new for every Loader and for every state that it loads.
    rank, world_size, batch_size, remainder
        Settings as in `EpochPlan`, the same for all segments.
    dataset : Dataset
        The data set, with or without its shards.
    shuffle, seed, block_records, window_blocks, order_version
        Settings that determine the record at each position (see `epoch_order`).
    segments : tuple of Segment
        Segments in the order of delivery; all but the last are finished. As JSON, equal segments of
        consecutive epochs are one entry with their number as ``"epochs"``.
    cycle_length : int or None
        Number of files that a rank reads at a time; None if ranks share the records of all files.
    mixture : Mixture, optional
        The mixture; `dataset` then has the shards of all its data sets, concatenated.
    damage : tuple of Damage
        Damaged records in the segments: skipped, or repaired and delivered. As JSON they are ``"skipped"``
        and ``"repaired"``, lists of [epoch, global record number, first byte of the frame, byte after its
        last] in any order; both are absent without damage. A fifth number is the number of consecutive epochs
        in which the record was read.

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

    __repr__ = summary

    @property
    def positions(self) -> int:
        """Number of positions of an epoch."""
        return self.dataset.records if self.mixture is None else self.mixture.records

    def order(self, epoch: int) -> EpochOrder | MixedOrder:
        """Return the order of an epoch.

        Parameters
        ----------
        epoch : int

        Returns
        -------
        EpochOrder or MixedOrder
        """
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
        """Return the files and their order, or None unless ranks read whole files.

        Returns
        -------
        FileSet or None

        Raises
        ------
        PlanError
            The receipt does not have the shards of its data set.
        """
        if self.cycle_length is None:
            return None
        if self.dataset.records and not self.dataset.sizes:
            raise PlanError(
                f"the receipts refer to the data set {self.dataset.fingerprint:.60}, and its description is "
                "missing, without which epochs of whole files cannot be proved: pass loader.describe_data() "
                "with the receipts, or the shards to shardkeep audit as --data"
            )
        table = ShardTable(self.dataset.counts)
        return FileSet(table, self.dataset.sizes, shuffled=self.shuffle is not False, seed=self.seed)

    def plan(self, segment: Segment, remainder: Remainder, files: FileSet | None) -> EpochPlan | FilePlan:
        """Return the plan of the run of a segment.

        Parameters
        ----------
        segment : Segment
        remainder : {"mask", "drop", "short"}
        files : FileSet or None
            The result of `files`.

        Returns
        -------
        EpochPlan or FilePlan
        """
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
        """Return the receipt with a checksum, as types that JSON supports; `from_dict` parses it.

        Returns
        -------
        dict
        """
        damage = {
            "skipped": damage_to_lists(self.damage, repaired=False),
            "repaired": damage_to_lists(self.damage, repaired=True),
        }
        values = {
            "receipt_version": _LAST_WITH_SHARDS if self.dataset.shards else RECEIPT_VERSION,
            "id": self.id,
            "rank": self.rank,
            "world_size": self.world_size,
            "batch_size": self.batch_size,
            "remainder": self.remainder,
            "dataset": {
                "fingerprint": self.dataset.fingerprint,
                "records": self.dataset.records,
                **{
                    key: list(values)
                    for key in ("shards", "counts", "sizes")
                    if (values := getattr(self.dataset, key))
                },
            },
            "shuffle": self.shuffle,
            "seed": self.seed,
            "block_records": self.block_records,
            "window_blocks": self.window_blocks,
            "order_version": self.order_version,
            **({} if self.cycle_length is None else {"cycle_length": self.cycle_length}),
            **({} if self.mixture is None else {"mixture": mixture_to_dict(self.mixture)}),
            "segments": segments_to_dicts(self.segments),
            **{key: lists for key, lists in damage.items() if lists},
        }
        return seal(values)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Receipt:
        """Parse the result of `to_dict`.

        The input may be of unknown origin: presence, type and range of every key are checked.

        Parameters
        ----------
        data : mapping
            A parsed JSON object.

        Returns
        -------
        Receipt

        Raises
        ------
        PlanError
            A key is missing, unknown or wrong; the message names it.
        CorruptDataError
            The checksum does not match the content.
        """
        check_receipt_seal(data)
        return cls._of_fields(Fields(data, ""))

    @classmethod
    def _of_fields(cls, fields: Fields) -> Receipt:
        if CRC_KEY in fields:
            fields.text(CRC_KEY, ".*", "a text")
        version = fields.integer("receipt_version", 1, 2**31)
        if version > RECEIPT_VERSION:
            raise PlanError(
                f"receipt has receipt_version={version}, expected at most {RECEIPT_VERSION}: update shardkeep"
            )
        world_size = fields.integer("world_size", 1, MAX_WORLD_SIZE)
        dataset = parse_dataset(fields.mapping("dataset"), has_shards=version <= _LAST_WITH_SHARDS)
        mixture = parse_mixture(fields.mapping("mixture"), dataset) if "mixture" in fields else None
        cycle_length = None
        if "cycle_length" in fields:
            cycle_length = fields.integer("cycle_length", 1, MAX_CYCLE_LENGTH)
            unequal = len(dataset.sizes) != len(dataset.counts) or sum(dataset.counts) != dataset.records
            if version <= _LAST_WITH_SHARDS and unequal:
                raise PlanError(
                    "receipt has a cycle_length, but no dataset.sizes and counts: was the file edited?"
                )
            if mixture is not None:
                raise PlanError("receipt has both a cycle_length and a mixture: was the file edited?")
        most = dataset.records if mixture is None else mixture.records
        segments = segments_from_dicts(fields.sequence("segments"), most)
        damage = [
            damage_from_lists(key, fields.sequence(key), records=dataset.records)
            for key in ("skipped", "repaired")
            if key in fields
        ]
        receipt = cls(
            id=_id_in(fields),
            rank=_rank_in(fields, world_size),
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


class ReceiptParser:
    """Parser of many receipts: those of one run differ in `id` and `rank`, and the rest is parsed once."""

    def __init__(self) -> None:
        self._known: dict[bytes, Receipt] = {}

    def parse(self, data: Mapping[str, Any]) -> Receipt:
        """Return ``Receipt.from_dict(data)``, with its errors."""
        text = check_receipt_seal(data)
        fields = Fields(data, "")
        if text is None or "id" not in fields or "rank" not in fields:
            return Receipt._of_fields(fields)
        # In JSON no string contains these quotes, so each pattern is a key with its value.
        for key in ("id", "rank"):
            part = json.dumps({key: data[key]}, separators=(",", ":"))[1:-1]
            text = text.replace(part.encode(), b"", 1)
        known = self._known.get(text)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[text] = Receipt._of_fields(fields)
            return known
        return replace(known, id=_id_in(fields), rank=_rank_in(fields, known.world_size))


def _id_in(fields: Fields) -> str:
    return fields.text("id", "[0-9a-f]{32}", "32 hexadecimal digits")


def _rank_in(fields: Fields, world_size: int) -> int:
    return fields.integer("rank", 0, world_size - 1)


def check_receipt_seal(data: object, path: str | None = None) -> bytes | None:
    """Return the canonical text of a receipt with a checksum; None for an older one, or another object.

    Raises
    ------
    CorruptDataError
        The receipt was damaged or edited; `path` is its file.
    """
    if not isinstance(data, Mapping):
        return None
    # `from_dict` refuses a later version.
    versions = range(_FIRST_WITH_CHECKSUM, RECEIPT_VERSION + 1)
    if CRC_KEY not in data and data.get("receipt_version") not in versions:
        return None
    try:
        return check_seal(data)
    except (ValueError, TypeError, RecursionError) as error:
        where = "" if path is None else f" in {path!r}"
        message = f"the receipt{where} is damaged or was edited ({error}): take it from a copy"
        raise CorruptDataError(message, path=path) from error
