"""Description of a data set: names, records and sizes of its shards, kept once for all receipts of a run.

A receipt over many shards has only the fingerprint of its data set. An audit proves epochs from the number of
records alone, and needs the description to name a shard; with ``shard_by="files"`` it also needs the records
and sizes of the files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from shardkeep.errors import CorruptDataError, PlanError
from shardkeep.plan.proof.contents import Dataset, parse_dataset
from shardkeep.plan.proof.fields import Fields
from shardkeep.plan.proof.sealed_json import CRC_KEY, check_seal, seal

__all__ = [
    "DESCRIPTION_KEY",
    "DescribedReceipt",
    "describe",
    "fingerprint_to_describe",
    "for_receipt",
    "is_description",
    "parse_description",
]

DESCRIPTION_KEY = "dataset_version"
_VERSION = 1
# A receipt has the names of its shards if they take at most a page of a file.
_MOST_BYTES = 4096


class DescribedReceipt(dict[str, Any]):
    """A receipt that refers to its data set, with a function that describes the data set.

    It is a dict with the contents of the receipt. Pickle and `copy` make a plain dict of it.

    Parameters
    ----------
    receipt : dict
    describe : callable
        Returns the `Dataset`, with its shards.
    """

    def __init__(self, receipt: dict[str, Any], describe: Callable[[], Dataset]) -> None:
        super().__init__(receipt)
        self.describe = describe

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def describe(dataset: Dataset) -> dict[str, Any]:
    """Return the description of a data set with a checksum, as types that JSON supports."""
    return seal(
        {
            DESCRIPTION_KEY: _VERSION,
            "fingerprint": dataset.fingerprint,
            "records": dataset.records,
            "shards": list(dataset.shards),
            "counts": list(dataset.counts),
            "sizes": list(dataset.sizes),
        }
    )


def is_description(data: object) -> bool:
    """Return True if a JSON value is the result of `describe`, perhaps damaged."""
    return isinstance(data, Mapping) and DESCRIPTION_KEY in data


def parse_description(data: Mapping[str, Any], path: str | None = None) -> Dataset:
    """Parse the result of `describe`; `path` is its file.

    Raises
    ------
    PlanError
        A key is missing, unknown or wrong, or a later Shardkeep wrote it.
    CorruptDataError
        The checksum does not match the content.
    """
    fields = Fields(data, "", "the description of a data set")
    version = fields.integer(DESCRIPTION_KEY, 1, 2**31)
    if version > _VERSION:
        raise PlanError(
            f"a description of a data set has {DESCRIPTION_KEY}={version}, expected at most {_VERSION}: "
            "update shardkeep"
        )
    try:
        check_seal(data)
    except (ValueError, TypeError, RecursionError) as error:
        where = "" if path is None else f" in {path!r}"
        message = f"the description of a data set{where} is damaged or was edited ({error})"
        raise CorruptDataError(f"{message}: take it from a copy", path=path) from error
    fields.text(CRC_KEY, ".*", "a text")
    return parse_dataset(fields)


def for_receipt(dataset: Dataset) -> Dataset:
    """Return a data set as a receipt has it: without its shards unless they are few."""
    few = len(dataset.shards) * len('"",0,') <= _MOST_BYTES
    if few and len(json.dumps([dataset.shards, dataset.counts, dataset.sizes])) <= _MOST_BYTES:
        return dataset
    return Dataset(dataset.fingerprint, dataset.records)


def fingerprint_to_describe(receipt: Mapping[str, Any]) -> str | None:
    """Return the fingerprint of the data set to which a receipt refers; None if it has the shards itself."""
    dataset = receipt.get("dataset")
    if not isinstance(dataset, Mapping) or dataset.get("shards") or dataset.get("records") == 0:
        return None
    fingerprint = dataset.get("fingerprint")
    return fingerprint if isinstance(fingerprint, str) else None
