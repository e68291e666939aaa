"""Records of a TFRecord file by number, with bounded work for each request.

The offsets are those of a stored index, or are found by a scan that continues a little with each request.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardkeep._core import RecordIterator, masked_crc32c, scan_part, sniff_compression
from shardkeep.errors import BudgetError, CorruptDataError, FormatError, ShardkeepError
from shardkeep.tfrecord.format.frame import (
    FOOTER_BYTES,
    HEADER_BYTES,
    OVERHEAD_BYTES,
    checked_length,
    header_fault,
    payload_fault,
)
from shardkeep.tfrecord.index.damaged import index_around_damage
from shardkeep.tfrecord.index.index import find_index
from shardkeep.tfrecord.index.state import stored_indexes
from shardkeep.viewer.data.large_index import LargeIndex
from shardkeep.viewer.kept import Recent, Version, version_of

__all__ = ["BUDGET_S", "MOST_BYTES", "FileRecord", "RecordFile", "open_records"]

BUDGET_S = 0.12
"""Time that one request may spend on scanning or searching."""
MOST_BYTES = 16 << 20
"""Size of the longest record that is read."""

_MOST_RECORDS = 8_000_000
_STEP_BYTES = 8 << 20
_SMALL_BYTES = 32 << 20
_KEPT_OFFSETS = 8_000_000
# At most 64 files are kept: each counts as so many offsets more.
_FILE_OFFSETS = _KEPT_OFFSETS // 64


@dataclass(frozen=True)
class FileRecord:
    """One record of a file.

    Attributes
    ----------
    number : int
    start_bytes : int or None
        Offset of its frame; None in a compressed file.
    size_bytes : int
        Size of its payload.
    data : bytes or None
        The payload; None if it is damaged or too long to be shown.
    fault : str
        The damage, or the reason why there is no payload.
    """

    number: int
    start_bytes: int | None
    size_bytes: int
    data: bytes | None
    fault: str = ""


class RecordFile:
    """One version of a TFRecord file.

    Attributes
    ----------
    compression : {None, "gzip", "zlib", "zstd"}
    size_bytes : int
    fault : str
        The damage at which the scan ended; empty if there is none so far.
    is_complete : bool
        True if the offsets of all records are known.
    """

    def __init__(self, version: Version) -> None:
        self.path = version.path
        self.size_bytes = version.size_bytes
        self.compression: str | None = sniff_compression(self.path)
        self.fault = ""
        self.is_complete = self.compression is not None
        self._starts: NDArray[np.uint64] = np.zeros(1, np.uint64)
        self._large: LargeIndex | None = None
        self._lock = threading.Lock()
        if self.compression is None:
            self._open()

    def _open(self) -> None:
        if self.size_bytes <= _SMALL_BYTES:
            self._starts = index_around_damage(self.path, store=False).starts
            self.is_complete = True
            return
        status = os.stat(self.path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            indexes = [one for one in stored_indexes(self.path, status) if one.records is not None]
            records = (indexes[0].records or 0) if indexes else 0
            if records > _MOST_RECORDS:
                self._large = LargeIndex(indexes[0].path, status, records)
                self.is_complete = True
                return
            starts = find_index(self.path) if indexes else None
        if starts is not None:
            self._starts, self.is_complete = starts, True

    @property
    def known(self) -> int:
        """Number of records whose offsets are known."""
        return self.kept_offsets if self._large is None else self._large.records

    @property
    def kept_offsets(self) -> int:
        """Number of offsets in memory."""
        return len(self._starts) - 1

    @property
    def is_limited(self) -> bool:
        """True if the scan has ended before the end of the file: the other records need an index."""
        return not self.is_complete and self.known >= _MOST_RECORDS

    @property
    def known_bytes(self) -> int:
        """Size of the part of the file whose records are known."""
        return int(self._starts[-1]) if self._large is None else self.size_bytes

    def frames_between(self, at: int, stop: int) -> list[tuple[int, int]]:
        """Return begin and end of the known frames with a byte of ``[at, stop)``."""
        if self._large is not None:
            first, last = self._large.record_at(at), self._large.record_at(stop - 1)
        else:
            first, last = (int(np.searchsorted(self._starts, one, "right")) - 1 for one in (at, stop - 1))
        return list(itertools.pairwise(self._starts_of(first, min(last + 1, self.known)).tolist()))

    def sample_sizes(self, most: int) -> NDArray[np.unsignedinteger]:
        """Return the sizes of at most `most` frames, spread evenly over those that are known."""
        if self._large is not None:
            return self._large.sample_lengths(most)
        chosen = np.arange(0, self.known, max(1, -(-self.known // most)))
        return self._starts[chosen + 1] - self._starts[chosen]

    def _starts_of(self, first: int, stop: int) -> NDArray[np.uint64]:
        return self._starts[first : stop + 1] if self._large is None else self._large.starts(first, stop)

    def scan(self, records: int, budget_s: float | None = None) -> None:
        """Find the offsets of the first `records` records, as far as the time allows."""
        end_s = time.monotonic() + (BUDGET_S if budget_s is None else budget_s)
        with self._lock:
            parts, at, count = [self._starts], self.known_bytes, self.known
            while not (self.is_complete or self.fault) and count < min(records, _MOST_RECORDS):
                try:
                    part = scan_part(self.path, offset_bytes=at, record=count, until_bytes=at + _STEP_BYTES)
                except CorruptDataError as error:
                    self.fault = str(error).removeprefix(f"{self.path}: ")
                    if error.record is not None and error.record > count and error.offset_bytes:
                        stop = error.offset_bytes
                        part = scan_part(self.path, offset_bytes=at, record=count, until_bytes=stop)
                        parts.append(part[1:])
                    break
                self.is_complete = int(part[-1]) < at + _STEP_BYTES
                parts.append(part[1:])
                at, count = int(part[-1]), count + len(part) - 1
                if time.monotonic() > end_s:
                    break
            if len(parts) > 1:
                self._starts = np.concatenate(parts)

    def read(self, numbers: range | list[int]) -> list[FileRecord]:
        """Return records whose offsets are known; in a compressed file those that are reached in time."""
        if self.compression is not None:
            return self._read_in_order(numbers)
        with open(self.path, "rb", buffering=0) as raw:
            return [self._read(raw.fileno(), number) for number in numbers if number < self.known]

    def _read(self, fd: int, number: int) -> FileRecord:
        start, stop = self._starts_of(number, number + 1).tolist()
        size_bytes = max(stop - start - OVERHEAD_BYTES, 0)
        if size_bytes > MOST_BYTES:
            return FileRecord(number, start, size_bytes, None, "too long to be shown")
        frame = os.pread(fd, stop - start, start)
        header, payload = frame[:HEADER_BYTES], frame[HEADER_BYTES:-FOOTER_BYTES]
        if len(frame) < OVERHEAD_BYTES:
            return FileRecord(number, start, size_bytes, None, "the file ends inside this record")
        length = checked_length(header)
        if length is None:
            return FileRecord(number, start, size_bytes, None, header_fault(header))
        if length != len(payload):
            return FileRecord(number, start, size_bytes, None, "its length does not fit the next record")
        stored = int.from_bytes(frame[-FOOTER_BYTES:], "little")
        if masked_crc32c(payload) != stored:
            return FileRecord(number, start, size_bytes, None, payload_fault(payload, stored))
        return FileRecord(number, start, size_bytes, payload)

    def _read_in_order(self, numbers: range | list[int]) -> list[FileRecord]:
        wanted, found = set(numbers), []
        end_s = time.monotonic() + BUDGET_S
        try:
            for number, data in enumerate(RecordIterator(self.path, most_bytes=MOST_BYTES)):
                if number in wanted:
                    found.append(FileRecord(number, None, len(data), data))
                if len(found) == len(wanted) or time.monotonic() > end_s:
                    break
        except BudgetError as error:
            if error.record in wanted:
                what = "too long to be shown, and the records after it are not read"
                found.append(FileRecord(error.record, None, 0, None, what))
        except ShardkeepError as error:
            self.fault = str(error).removeprefix(f"{self.path}: ")
        return found


def open_records(path: str) -> RecordFile:
    """Return the records of the present version of a file.

    Raises
    ------
    FormatError
        The file is not a regular file.
    """
    version = version_of(path)
    if not os.path.isfile(path):
        raise FormatError(f"{path}: not a regular file", path=path)
    return _recent.of(version)


_recent = Recent(RecordFile, _KEPT_OFFSETS, lambda file: file.kept_offsets + _FILE_OFFSETS)
