"""The view of the records of a TFRecord file: a grid, one record, and a search."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardkeep.errors import NotFoundError, PlanError, ShardkeepError
from shardkeep.viewer.data.features import Content, content_of, hexadecimal, image_type, value_of, values_of
from shardkeep.viewer.data.record_file import BUDGET_S, FileRecord, RecordFile, open_records
from shardkeep.viewer.locations import Location
from shardkeep.viewer.view import Answer, Data, Page, View, Visit

__all__ = ["RECORDS", "has_records"]

_CARDS = 24
_RAW_BYTES = 4096


@dataclass(frozen=True)
class _Card:
    record: FileRecord
    content: Content | None


def has_records(location: Location) -> bool:
    """Return True for a TFRecord file, also for one whose first bytes are damaged."""
    kind = location.kind
    return kind.name == "tfrecord" or (kind.may_be_damaged_records and "tfrecord" in location.name)


def _show(visit: Visit) -> Answer:
    file = open_records(visit.location.path)
    if visit.part == "value":
        return _value(visit, file)
    if visit.query.text("record"):
        return _one(visit, file)
    if visit.query.text("value"):
        return _found(visit, file)
    first = visit.query.integer("first", 0)
    if file.compression is None:
        file.scan(first + _CARDS)
        first = min(first, max(0, file.known - 1))
    cards = [_card(one, whole=False) for one in file.read(range(first, first + _CARDS))]
    is_growing = not (file.is_complete or file.is_limited)
    more = first + _CARDS < file.known or is_growing or (file.compression and len(cards) == _CARDS)
    next_ = (
        first + len(cards) if cards and more and not (file.fault and first + _CARDS >= file.known) else None
    )
    return Page("records.html", {**_frame(visit, file), "cards": cards, "first": first, "next": next_})


def _frame(visit: Visit, file: RecordFile) -> dict[str, Any]:
    return {
        "file": file,
        "cards": [],
        "first": 0,
        "next": None,
        "rows": _CARDS,
        "feature": visit.query.text("feature"),
        "value": visit.query.text("value"),
        "searched": None,
    }


def _card(record: FileRecord, *, whole: bool) -> _Card:
    return _Card(record, None if record.data is None else content_of(record.data, whole=whole))


def _record(visit: Visit, file: RecordFile) -> FileRecord:
    number = visit.query.integer("record", 0)
    file.scan(number + 1)
    found = file.read([number])
    if not found:
        if file.is_complete and file.compression is None:
            raise NotFoundError(f"record {number:,} does not exist: the file has {file.known:,}")
        raise NotFoundError(
            f"record {number:,} is not among the {file.known:,} records that are known so far:"
            f" load the page again to continue, or store an index"
        )
    return found[0]


def _one(visit: Visit, file: RecordFile) -> Answer:
    record = _record(visit, file)
    last = file.known - 1 if file.is_complete and file.compression is None else None
    raw = "" if record.data is None else hexadecimal(record.data[:_RAW_BYTES])
    return Page(
        "record.html",
        {"file": file, "card": _card(record, whole=True), "last": last, "raw": raw, "raw_bytes": _RAW_BYTES},
    )


def _value(visit: Visit, file: RecordFile) -> Answer:
    record = _record(visit, file)
    if record.data is None:
        raise NotFoundError(f"record {record.number:,}: {record.fault}")
    value = value_of(record.data, visit.query.text("feature"), visit.query.integer("number", 0))
    if value is None:
        raise NotFoundError(f"record {record.number:,} has no such value")
    return Data(value, image_type(value) or "application/octet-stream")


# -- search ---------------------------------------------------------------------------------------------


def _found(visit: Visit, file: RecordFile) -> Answer:
    """Search from a record on, until there are enough records or the time is over."""
    if file.compression is not None:
        raise PlanError("a compressed file cannot be searched here; write it again without compression")
    feature, wanted = visit.query.text("feature"), visit.query.text("value")
    first = at = visit.query.integer("first", 0)
    end_s = time.monotonic() + BUDGET_S
    cards: list[_Card] = []
    file.scan(first + 100_000, BUDGET_S / 2)
    while at < file.known and len(cards) < _CARDS and (time.monotonic() < end_s or at == first):
        for record in file.read(range(at, min(at + 32, file.known))):
            at = record.number + 1
            if record.data is not None and _matches(record.data, feature, wanted):
                cards.append(_card(record, whole=False))
    is_end = at >= file.known and (file.is_complete or bool(file.fault))
    searched = {"first": min(first, at), "stop": at, "is_end": is_end}
    return Page("records.html", {**_frame(visit, file), "cards": cards, "first": first, "searched": searched})


def _matches(data: bytes, feature: str, wanted: str) -> bool:
    try:
        columns = values_of(data)
    except ShardkeepError:
        return False
    if columns is None:
        return not feature and wanted.encode() in data
    chosen = [columns.get(feature)] if feature else list(columns.values())
    return any(_has(values, wanted) for values in chosen)


def _has(values: Any, wanted: str) -> bool:
    if values is None:
        return False
    if isinstance(values, list):
        text = wanted.encode()
        return any(text in one for one in values)
    try:
        number = int(wanted) if values.dtype == np.int64 else float(np.float32(wanted))
    except (ValueError, OverflowError):
        return False
    return bool((values == number).any())


RECORDS = View("records", "Records", has_records, _show)
