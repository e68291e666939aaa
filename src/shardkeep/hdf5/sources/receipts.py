"""Receipts of Loaders that were kept with commits."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import h5py
import numpy as np

from shardkeep.errors import CorruptDataError
from shardkeep.files.kinds.urls import local_path
from shardkeep.files.remote.copies import accepts_urls
from shardkeep.hdf5.read_errors import reading
from shardkeep.hdf5.segments.commit_record import CommitRecord
from shardkeep.hdf5.segments.described_data import with_description
from shardkeep.hdf5.segments.run_folder import list_ranks, list_segments
from shardkeep.hdf5.sources.source import Source, open_source
from shardkeep.hdf5.sources.tables import check_table, seal_table
from shardkeep.hdf5.storage.content_hash import content_crc
from shardkeep.hdf5.storage.names import own_names
from shardkeep.plan.proof.description import (
    DescribedReceipt,
    describe,
    fingerprint_to_describe,
    is_description,
    parse_description,
)

__all__ = [
    "RECEIPTS",
    "committed_receipt",
    "receipts",
    "receipts_in",
    "receipts_of_rank",
    "write_receipts",
]

RECEIPTS = "_receipts"


@accepts_urls("path", folders=True)
def receipts(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the newest receipt of every Loader, from the commits that were not rolled back.

    A receipt covers everything that its Loader delivered before the commit, so the newest one is
    enough. After a crash the receipts are those of the committed rows, no more and no fewer: a
    receipt and the rows of its commit appear together.

    Parameters
    ----------
    path : str or os.PathLike
        A run folder, a file that `shardkeep.hdf5.merge` made, or one segment.

    Returns
    -------
    list of dict
        As ``loader.receipt()`` returned them, by rank, then in the order of the Loaders' first
        commits. `shardkeep.plan.audit` finds the descriptions of their data sets.

    Raises
    ------
    NotFoundError
        The file or folder does not exist.
    FormatError, CorruptDataError
        It cannot be read.
    """
    target = local_path(path)
    if os.path.isfile(target):
        with open_source(target) as source:
            return list(receipts_in(source).values())
    run_dir = os.path.abspath(target)
    return [
        with_description(run_dir, one)
        for folder in list_ranks(target).values()
        for one in receipts_of_rank(folder)
    ]


def receipts_of_rank(
    folder: str, read: Callable[[str], CommitRecord | None] | None = None
) -> list[dict[str, Any]]:
    """Return the receipts in the folder of a rank as `receipts` does, without their data sets.

    `read` returns the commit record of a segment; without it the segment is opened.
    """
    read = read or _record_of
    segments = list_segments(folder)
    newest = read(segments[-1].path) if segments else None
    if newest is None:
        return []
    found = []
    for number in newest.receipts.values():
        path = segments[number].path
        record = newest if number == len(segments) - 1 else read(path)
        if record is None or record.receipt is None:
            raise CorruptDataError(f"{path!r} has lost its receipt: restore it from a copy", path=path)
        found.append(record.receipt)
    return found


def receipts_in(source: Source) -> dict[str, dict[str, Any]]:
    """Return the receipts of one open file with their data sets, by the id of their Loader."""
    record = source.record
    if record is not None:
        if record.receipt is None:
            return {}
        receipt = committed_receipt(source.path, record.receipt)
        return {str(receipt.get("id", record.incarnation)): receipt}
    tables = [name for name in ("_provenance", RECEIPTS) if name in source.file]
    if RECEIPTS not in own_names(source.file.id, tables):
        return {}
    check_table(source.file, RECEIPTS, source.path)
    with reading(source.path, RECEIPTS, "table"):
        texts = source.file[RECEIPTS].asstr()[:]
    try:
        values = [json.loads(text) for text in texts]
        if not all(isinstance(value, dict) for value in values):
            raise ValueError("a row is not a JSON object")
    except ValueError as error:
        message = f"{RECEIPTS!r} of {source.path!r} is damaged ({error}): restore the file from a copy"
        raise CorruptDataError(message, path=source.path) from error
    described = {
        str(value.get("fingerprint")): partial(parse_description, value, source.path)
        for value in values
        if is_description(value)
    }
    found = {}
    for i, value in enumerate(values):
        if not is_description(value):
            fingerprint = fingerprint_to_describe(value)
            receipt = DescribedReceipt(value, described[fingerprint]) if fingerprint in described else value
            found[str(value.get("id", f"{source.path}#{i}"))] = receipt
    return found


def committed_receipt(path: str, receipt: dict[str, Any]) -> dict[str, Any]:
    """Return the receipt of a segment, with the description of its data set from the run folder."""
    return with_description(os.path.dirname(os.path.dirname(os.path.abspath(path))), receipt)


def write_receipts(file: h5py.File, values: tuple[dict[str, Any], ...]) -> None:
    """Write receipts into a merged file, and the descriptions of their data sets, each as JSON text."""
    described = {
        fingerprint_to_describe(value): value for value in values if isinstance(value, DescribedReceipt)
    }
    rows = [*values, *(describe(value.describe()) for value in described.values())]
    texts = [json.dumps(value, separators=(",", ":")) for value in rows]
    dtype = h5py.string_dtype("utf-8")
    dataset = file.create_dataset(RECEIPTS, data=texts, shape=(len(texts),), dtype=dtype)
    seal_table(dataset, content_crc(np.array(texts, object)))


def _record_of(path: str) -> CommitRecord | None:
    with open_source(path) as source:
        return source.record
