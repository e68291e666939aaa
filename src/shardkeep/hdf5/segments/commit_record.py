"""Record of a commit, in the dataset ``_commit`` of a sealed segment (JSON text).

::

    {"format": 2, "rank": 3, "world_size": 8, "sequence": 7, "step": 100,
     "incarnation": "9f…", "host": "node7", "pid": 4711, "created": 1764283902.5,
     "datasets": {"embeddings": {"first_row": 7168, "rows": 1024, "crc32c": "5a6b7c8d",
                                 "chunks_crc32c": "0a1b2c3d" or null}},
     "puts": {"labels": {"sequence": 0, "crc32c": "9b8a7f6e"}},
     "receipt": {…} or null,
     "receipts": {"<id of a Loader>": <sequence of the segment with its newest receipt>},
     "state": {…}, "marks": [{"step": 50, "rows": {"embeddings": 512}, "puts": ["labels"],
                              "receipt": {…} or null, "state": {…} or null}],
     "previous": "3e4f5a6b" or null, "crc32c": "1c2d3e4f"}

``first_row`` counts the rows of that rank before this segment; ``crc32c`` is
`shardkeep.hdf5.storage.content_hash.content_crc` of the segment's rows, ``chunks_crc32c``
`shardkeep.hdf5.storage.chunk_table.table_crc` of their compressed chunks, so that a merge can copy these
as they are and compare them with their hash. ``puts`` has all values without rows, and the segment of
each. ``receipts`` names every Loader since the first segment. So the newest segment of a rank is enough to
find all values and receipts. The last ``crc32c`` is that of the record itself (`plan.proof.sealed_json`),
``previous`` that of the record before it in the series, so that a segment of another run is noticed; records
of format 1 have none. ``state`` and ``marks`` are there only if the program passed them, and then the format
is 3. A mark has the number of rows of each dataset in this segment up to its step, and the values put so far.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import h5py
import numpy as np

from shardkeep.errors import CorruptDataError, FormatError, PlanError
from shardkeep.hdf5.read_errors import reading
from shardkeep.plan.proof.sealed_json import CRC_KEY, check_sealed_text, sealed_crc, sealed_text

__all__ = [
    "COMMIT",
    "CommitRecord",
    "DatasetRecord",
    "MarkRecord",
    "PutRecord",
    "check_receipt",
    "check_state",
    "newest_mark",
    "parse_record",
    "read_record",
    "write_record",
]

COMMIT = "_commit"
_FORMAT = 2
_FORMAT_WITH_MARKS = 3
_FORMAT_WITHOUT_SEAL = 1
_OPTIONAL = {"state", "marks"}
_KEYS_OF_RECEIPTS = {"receipt_version", "id"}
# The ranks of a run are listed in memory.
_MOST_RANKS = 1 << 24


@dataclass(frozen=True, slots=True)
class DatasetRecord:
    """Rows of one dataset in one segment."""

    first_row: int
    rows: int
    crc32c: str
    chunks_crc32c: str | None = None


@dataclass(frozen=True)
class PutRecord:
    """Value that was written once, and the number of the segment that has it."""

    sequence: int
    crc32c: str


@dataclass(frozen=True)
class MarkRecord:
    """Step inside a commit, and the contents of the segment up to it."""

    step: int
    rows: dict[str, int]
    puts: list[str]
    receipt: dict[str, Any] | None = None
    state: dict[str, Any] | None = None


@dataclass(frozen=True)
class CommitRecord:
    """Commit of one segment."""

    rank: int
    world_size: int
    sequence: int
    step: int
    incarnation: str
    host: str
    pid: int
    created: float
    datasets: dict[str, DatasetRecord]
    receipt: dict[str, Any] | None = None
    receipts: dict[str, int] = field(default_factory=dict)
    puts: dict[str, PutRecord] = field(default_factory=dict)
    previous: str | None = None
    state: dict[str, Any] | None = None
    marks: tuple[MarkRecord, ...] = ()
    # The checksum of this record, where it was read from a file that has one.
    crc32c: str | None = field(default=None, compare=False)

    @property
    def objects(self) -> list[str]:
        """Names of the datasets with rows, then of the values that were put with this commit."""
        here = [name for name, put in self.puts.items() if put.sequence == self.sequence]
        return [*self.datasets, *here]

    def to_json(self) -> str:
        """Return the text in the file."""
        values = {key: value for key, value in asdict(self).items() if key != CRC_KEY}
        values = {
            key: value for key, value in values.items() if key not in _OPTIONAL or value not in (None, ())
        }
        version = _FORMAT_WITH_MARKS if _OPTIONAL & values.keys() else _FORMAT
        return sealed_text({"format": version, **values}).decode()


def newest_mark(marks: Iterable[MarkRecord], step: int) -> MarkRecord | None:
    """Return the newest mark up to `step`; None if there is none."""
    return max((one for one in marks if one.step <= step), key=lambda one: one.step, default=None)


def write_record(file: h5py.File, record: CommitRecord) -> CommitRecord:
    """Write the record into an open segment; return it with its checksum."""
    text = record.to_json().encode()
    # A dataset and not an attribute: receipts may outgrow the 64 KiB of an object header.
    file.create_dataset(COMMIT, data=np.array(text, dtype=h5py.string_dtype("utf-8", len(text))))
    return replace(record, crc32c=sealed_crc(text))


def read_record(file: h5py.File, path: str) -> CommitRecord | None:
    """Return the record of an open file; None if it is not a segment.

    Raises
    ------
    CorruptDataError
        The record is damaged.
    FormatError
        A later Shardkeep wrote it.
    """
    with reading(path, COMMIT, "commit record"):
        if COMMIT not in file:
            return None
        item = file[COMMIT]
        text = item[()] if isinstance(item, h5py.Dataset) else b""
    return parse_record(bytes(text) if isinstance(text, bytes) else b"", path)


def parse_record(text: bytes, path: str) -> CommitRecord:
    """Parse the text of a record; errors as `read_record`."""
    try:
        values = json.loads(text)
        version = values.pop("format")
        if CRC_KEY in values or version != _FORMAT_WITHOUT_SEAL:
            check_sealed_text(text)
        if version not in (_FORMAT_WITH_MARKS, _FORMAT, _FORMAT_WITHOUT_SEAL):
            message = (
                f"{path!r} has commit format {version}, this Shardkeep reads {_FORMAT_WITH_MARKS}: upgrade it"
            )
            raise FormatError(message, path=path)
        # One text for a name in the records of all segments.
        values["datasets"] = {
            sys.intern(name): DatasetRecord(**one) for name, one in values["datasets"].items()
        }
        values["puts"] = {name: PutRecord(**one) for name, one in values.get("puts", {}).items()}
        values["marks"] = tuple(MarkRecord(**one) for one in values.get("marks", ()))
        record = CommitRecord(**values)
        checked: list[Any] = [record.rank, record.world_size, record.sequence, record.step]
        checked += record.receipts.values()
        checked += [one.sequence for one in record.puts.values()]
        checked += [number for one in record.datasets.values() for number in (one.rows, one.first_row)]
        checked += [number for one in record.marks for number in (one.step, *one.rows.values())]
        if not all(type(number) is int and number >= 0 for number in checked):
            raise ValueError("negative or missing numbers")
        for one in record.marks:
            if any(rows > record.datasets[name].rows for name, rows in one.rows.items()):
                raise ValueError(f"the mark of step {one.step} has more rows than the commit")
            if not set(one.puts) <= record.puts.keys():
                raise ValueError(f"the mark of step {one.step} has values that the commit does not have")
        if record.world_size > _MOST_RANKS:
            raise ValueError(f"{record.world_size:,} ranks")
    except FormatError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _damaged(path, error) from error
    return record


def check_receipt(receipt: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a copy of a receipt as JSON keeps it; raise `PlanError` if it is not a receipt."""
    expected = "receipt= must be a receipt, as of loader.receipt()"
    copy = _json_copy(expected, receipt)
    if copy is not None and not _KEYS_OF_RECEIPTS & copy.keys():
        # Only the audit would notice, after the training.
        raise PlanError(f"{expected}, not a dict of {', '.join(map(repr, copy))}; pass a state as state=")
    return copy


def check_state(state: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a copy of a state as JSON keeps it; raise `PlanError` if JSON would change it."""
    expected = (
        "state= must be a dict of JSON values (str, int, float, bool, None, lists, dicts with str keys)"
    )
    copy = _json_copy(expected, state)
    if copy != state:
        raise PlanError(f"{expected}, and JSON would change {state!r}: convert tuples and keys")
    return copy


def _json_copy(expected: str, value: dict[str, Any] | None) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        if not isinstance(value, dict):
            raise TypeError(f"a {type(value).__name__} is not a dict")
        copy: dict[str, Any] = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise PlanError(f"{expected}: {error}") from error
    return copy


def _damaged(path: str, error: Exception) -> CorruptDataError:
    message = f"the commit record of {path!r} is damaged ({error}): restore the file from a copy"
    return CorruptDataError(message, path=path)
