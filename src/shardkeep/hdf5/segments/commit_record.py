"""Record of a commit, in the dataset ``_commit`` of a sealed segment (JSON text).

::

    {"format": 2, "rank": 3, "world_size": 8, "sequence": 7, "step": 100,
     "incarnation": "9f…", "host": "node7", "pid": 4711, "created": 1764283902.5,
     "datasets": {"embeddings": {"first_row": 7168, "rows": 1024, "crc32c": "5a6b7c8d",
                                 "chunks_crc32c": "0a1b2c3d" or null}},
     "puts": {"labels": {"sequence": 0, "crc32c": "9b8a7f6e"}},
     "receipt": {…} or null,
     "receipts": {"<id of a Loader>": <sequence of the segment with its newest receipt>},
     "previous": "3e4f5a6b" or null, "crc32c": "1c2d3e4f"}

``first_row`` counts the rows of that rank before this segment; ``crc32c`` is
`shardkeep.hdf5.storage.content_hash.content_crc` of the segment's rows, ``chunks_crc32c``
`shardkeep.hdf5.storage.chunk_table.table_crc` of their compressed chunks, so that a merge can copy these
as they are and compare them with their hash. ``puts`` has all values without rows, and the segment of
each. ``receipts`` names every Loader since the first segment. So the newest segment of a rank is enough to
find all values and receipts. The last ``crc32c`` is that of the record itself (`plan.proof.sealed_json`),
``previous`` that of the record before it in the series, so that a segment of another run is noticed; records
of format 1 have none.
"""

from __future__ import annotations

import json
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
    "PutRecord",
    "check_receipt",
    "parse_record",
    "read_record",
    "write_record",
]

COMMIT = "_commit"
_FORMAT = 2
_FORMAT_WITHOUT_SEAL = 1
# The ranks of a run are listed in memory.
_MOST_RANKS = 1 << 24


@dataclass(frozen=True)
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
        return sealed_text({"format": _FORMAT, **values}).decode()


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
        if version not in (_FORMAT, _FORMAT_WITHOUT_SEAL):
            message = f"{path!r} has commit format {version}, this Shardkeep reads {_FORMAT}: upgrade it"
            raise FormatError(message, path=path)
        values["datasets"] = {name: DatasetRecord(**one) for name, one in values["datasets"].items()}
        values["puts"] = {name: PutRecord(**one) for name, one in values.get("puts", {}).items()}
        record = CommitRecord(**values)
        checked: list[Any] = [record.rank, record.world_size, record.sequence, record.step]
        checked += record.receipts.values()
        checked += [one.sequence for one in record.puts.values()]
        checked += [number for one in record.datasets.values() for number in (one.rows, one.first_row)]
        if not all(type(number) is int and number >= 0 for number in checked):
            raise ValueError("negative or missing numbers")
        if record.world_size > _MOST_RANKS:
            raise ValueError(f"{record.world_size:,} ranks")
    except FormatError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _damaged(path, error) from error
    return record


def check_receipt(receipt: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a copy of a receipt as JSON keeps it; raise `PlanError` if it is not a receipt."""
    if receipt is None:
        return None
    try:
        if not isinstance(receipt, dict):
            raise TypeError(f"a {type(receipt).__name__} is not a dict")
        copy: dict[str, Any] = json.loads(json.dumps(receipt, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise PlanError(f"receipt= must be a receipt, as of loader.receipt(): {error}") from error
    return copy


def _damaged(path: str, error: Exception) -> CorruptDataError:
    message = f"the commit record of {path!r} is damaged ({error}): restore the file from a copy"
    return CorruptDataError(message, path=path)
