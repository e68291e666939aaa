"""Records of a TFRecord file, or rows of an HDF5 dataset, one after the other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from shardkeep import hdf5
from shardkeep._core import record_content
from shardkeep._summary import summary
from shardkeep.errors import PlanError, ShardkeepError
from shardkeep.files.kinds.kind import identify, require_kind
from shardkeep.files.remote.copies import accepts_urls
from shardkeep.hdf5.read_errors import reading
from shardkeep.hdf5.sources.source import open_source
from shardkeep.hdf5.storage.names import decode_name
from shardkeep.jobs.dataset_rows import pick_dataset, rows_of
from shardkeep.jobs.json_values import plain
from shardkeep.plan.checks import MAX_RECORDS, checked_int
from shardkeep.tfrecord import decode_example
from shardkeep.tfrecord.damage import OnCorrupt, check_on_corrupt, read_records
from shardkeep.tfrecord.format.file_kind import may_hold_records

__all__ = ["RecordItem", "RowItem", "cat", "example_or_none", "show_record"]


@dataclass(frozen=True)
class RecordItem:
    """One record of a TFRecord file.

    Attributes
    ----------
    record : int
        Number of the record in the file, from 0.
    data : bytes
        The record.
    features : dict or None
        Name to an int64 or float32 array, to a list of bytes, or to None for a feature without a kind. None
        if the record is not a tf.train.Example.
    content : str or None
        Name of the message or data in the record, such as "tf.train.SequenceExample" or "JSON text"; None
        for bytes of no known form.
    """

    record: int
    data: bytes
    features: dict[str, Any] | None
    content: str | None = None

    __repr__ = summary

    def to_dict(self) -> dict[str, Any]:
        """Return the item as types that JSON supports; bytes are base64 text."""
        item: dict[str, Any] = {"record": self.record, "size_bytes": len(self.data)}
        if self.features is None:
            return item | {"content": self.content, "data": plain(self.data)}
        features = {
            name: {"type": feature_type(values), "values": [] if values is None else plain(values)}
            for name, values in self.features.items()
        }
        return item | {"features": features}


@dataclass(frozen=True)
class RowItem:
    """One row of an HDF5 dataset.

    Attributes
    ----------
    dataset : str
        Name of the dataset.
    row : int
        Index along the first axis.
    value
        The element at this index.
    """

    dataset: str
    row: int
    value: Any

    __repr__ = summary

    def to_dict(self) -> dict[str, Any]:
        """Return the item as types that JSON supports; bytes are base64 text."""
        return {"dataset": self.dataset, "row": self.row, "value": plain(self.value)}


@accepts_urls("path")
def cat(
    path: str | os.PathLike[str],
    *,
    dataset: str | None = None,
    skip: int = 0,
    limit: int | None = None,
    on_corrupt: OnCorrupt = "raise",
) -> Iterator[RecordItem | RowItem]:
    """Return an iterator over the records of a TFRecord file or the rows of an HDF5 dataset.

    Parameters
    ----------
    path : path
        The file. Its kind is determined from its content.
    dataset : str, optional
        Name of the dataset of an HDF5 file; required if the file has several.
    skip : int
        Number of records or rows to skip at the beginning. Checksums of skipped records are verified, too.
    limit : int, optional
        Largest number of records or rows to yield.
    on_corrupt : {"raise", "skip", "repair"}
        What to do with a damaged record: fail, leave it out, or correct it if one bit is flipped (and fail at
        other damage). The numbers of the others stay the same. Only "raise" is valid for an HDF5 file, of
        which unreadable rows are always an error.

    Returns
    -------
    iterator of RecordItem or RowItem

    Warns
    -----
    RuntimeWarning
        For each damaged record that was skipped or repaired.

    Raises
    ------
    NotFoundError
        The file does not exist.
    FormatError
        The file is neither a TFRecord nor an HDF5 file.
    CorruptDataError
        The iteration reached a damaged record or an unreadable row.
    PlanError
        `skip` or `limit` is not an int of at least 0, or `on_corrupt` is not valid for the file.
    SchemaError
        The dataset does not exist, or the file has several and none is named.
    """
    check_on_corrupt(on_corrupt)
    skip = checked_int("skip", skip, 0, MAX_RECORDS)
    limit = None if limit is None else checked_int("limit", limit, 0, MAX_RECORDS)
    kind, name = identify(path), os.fspath(path)
    if kind.name == "hdf5":
        if on_corrupt != "raise":
            message = f'on_corrupt="{on_corrupt}" is for records of TFRecord files, and {name!r} is HDF5'
            raise PlanError(f"{message}: leave it out, or name other files", path=name)
        return _rows(path, dataset, skip, limit)
    if kind.name not in ("tfrecord", "empty") and not may_hold_records(kind):
        require_kind(path, "tfrecord", "hdf5", found=kind)
    return _records(path, skip, limit, on_corrupt)


def example_or_none(record: bytes) -> dict[str, Any] | None:
    """Decode a record as tf.train.Example; return None if it is something else."""
    try:
        return decode_example(record)
    except ShardkeepError:
        return None


def show_record(number: int, record: bytes) -> RecordItem:
    """Return a record with its number, decoded if it is a tf.train.Example.

    Parameters
    ----------
    number : int
        Number of the record in its file.
    record : bytes

    Returns
    -------
    RecordItem
    """
    return RecordItem(number, record, example_or_none(record), record_content(record))


def feature_type(values: Any) -> str:
    """Return the type of a decoded feature: ``bytes``, ``int64``, ``float32``, or ``none`` without a kind."""
    if values is None:
        return "none"
    return "bytes" if isinstance(values, list) else str(values.dtype)


def _records(
    path: str | os.PathLike[str], skip: int, limit: int | None, on_corrupt: OnCorrupt
) -> Iterator[RecordItem]:
    stop = None if limit is None else skip + limit
    for number, record in islice(read_records(path, on_corrupt=on_corrupt), skip, stop):
        yield show_record(number, record)


def _rows(
    path: str | os.PathLike[str], dataset: str | None, skip: int, limit: int | None
) -> Iterator[RowItem]:
    name = os.fspath(path)
    with open_source(name) as source:
        chosen = pick_dataset(source, dataset)
        label = chosen.name if isinstance(chosen.name, str) else decode_name(chosen.name)
        with reading(name, label, "dataset"):
            is_virtual = chosen.is_virtual
        if not is_virtual:
            for number, value in rows_of(chosen, skip=skip, limit=limit):
                yield RowItem(label, number, value)
            return
    # For a source that it cannot read, HDF5 itself returns fill values.
    with hdf5.open(name) as file:
        for number, value in rows_of(file[label], skip=skip, limit=limit):
            yield RowItem(label, number, value)
