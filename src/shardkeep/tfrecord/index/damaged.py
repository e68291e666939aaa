"""Index of a damaged file.

An index gives the byte range of each record number, so it must continue past a damaged header. The scan
resumes at the next whole record, and the bytes between count as one record each time:

- as the damaged record itself where its extent is certain: its length has one flipped bit, or its payload,
  cut where the next whole record starts, has the right checksum;
- as a *hole* otherwise. The number of records in a hole is unknown; its byte range is reported.

Records after a hole of several records therefore have other numbers than in the undamaged file, and the data
set has another fingerprint. The same bytes give the same index on every machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from shardkeep import _core
from shardkeep.errors import CorruptDataError, CorruptRecordError, TruncatedFileError
from shardkeep.tfrecord.format.bit_repair import corrected_length
from shardkeep.tfrecord.format.frame import (
    FOOTER_BYTES,
    HEADER_BYTES,
    OVERHEAD_BYTES,
    checked_length,
    read_at,
)
from shardkeep.tfrecord.format.resync import next_frame
from shardkeep.tfrecord.index.index import find_index, load_index
from shardkeep.tfrecord.index.scan import Starts, scan_in_parts

__all__ = [
    "DamagedRecord",
    "IndexWithHoles",
    "damaged_extent",
    "find_damage",
    "hole_error",
    "index_around_damage",
]

_TO_THE_END = 2**64 - 1
# A hole may be as large as the file; a payload that is larger than this is not checked.
_LARGEST_BYTES = 256 << 20


@dataclass(frozen=True, eq=False)
class IndexWithHoles:
    """Record offsets of a file, with the numbers of those that are holes.

    Attributes
    ----------
    starts : ndarray of uint64, shape (records + 1,)
    holes : tuple of int
        Record numbers of the holes, ascending.
    """

    starts: Starts
    holes: tuple[int, ...] = ()


@dataclass(frozen=True)
class DamagedRecord:
    """A damaged record of a file, or a hole.

    Attributes
    ----------
    record : int
        Its number.
    start_bytes, stop_bytes : int
        Half-open byte range of its frame.
    error : CorruptDataError
        The error of a reader at this record.
    """

    record: int
    start_bytes: int
    stop_bytes: int
    error: CorruptDataError


def index_around_damage(path: str, *, store: bool = True) -> IndexWithHoles:
    """Return the index of a file that may be damaged; the index of a damaged file is not stored.

    Payloads are not checked: a damaged payload is found when it is read. With ``store=False`` the index of an
    undamaged file is not stored either.

    Raises
    ------
    FormatError
        A file of another kind, or a compressed one.
    NotFoundError
        The file does not exist.
    """
    try:
        starts = load_index(path).starts if store else find_index(path)
        if starts is not None:
            return IndexWithHoles(starts)
    except (CorruptRecordError, TruncatedFileError):
        pass
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _scan(path, fd)
    finally:
        os.close(fd)


def find_damage(path: str, *, tick: Callable[[int], None]) -> Iterator[DamagedRecord | int]:
    """Check every checksum of a file: yield each damaged record, and last the number of all records.

    The records have the numbers of `index_around_damage`, which are those of a receipt. Nothing is stored.

    Parameters
    ----------
    path : str
        An uncompressed TFRecord file.
    tick : callable
        Called with the number of bytes of each part that was checked.

    Raises
    ------
    FormatError, NotFoundError
        As `frame_starts`.
    CorruptDataError
        The file changes while it is read.
    """
    index: Starts | None = None
    known = np.zeros(1, np.uint64)
    checked_bytes = 0

    def count(size_bytes: int) -> None:
        nonlocal checked_bytes
        checked_bytes += size_bytes
        tick(size_bytes)

    while index is None or len(known) < len(index):
        try:
            starts, _ = scan_in_parts(path, known, verify=True, tick=count)
        except CorruptDataError as error:
            if error.offset_bytes is None or error.record is None:
                raise
            if index is None:
                index = index_around_damage(path, store=False).starts
            record = error.record
            if record >= len(index) - 1 or int(index[record]) != error.offset_bytes:
                raise _changing(path) from None
            known = index[: record + 2]
            yield DamagedRecord(record, error.offset_bytes, int(known[-1]), error)
            count(int(known[-1]) - checked_bytes)
        else:
            yield len(starts) - 1
            return
    yield len(index) - 1


def hole_error(path: str, record: int, start: int, size_bytes: int) -> CorruptRecordError:
    """Return the error for a hole where only flipped bits may be damaged."""
    return CorruptRecordError(
        f"{path}: record {record} at byte {start}: {size_bytes} bytes without a recognisable record, which is"
        ' more than a flipped bit; on_corrupt="skip" omits them',
        path=path,
        record=record,
        offset_bytes=start,
    )


def damaged_extent(fd: int, offset_bytes: int) -> tuple[int, bool]:
    """Return the end of the damaged record at an offset, and True if the bytes up to there are a hole."""
    size_bytes = os.fstat(fd).st_size
    header = os.pread(fd, HEADER_BYTES, offset_bytes)
    length = checked_length(header) if len(header) == HEADER_BYTES else None
    if length is not None and offset_bytes + OVERHEAD_BYTES + length <= size_bytes:
        return offset_bytes + OVERHEAD_BYTES + length, False
    return _step_over(fd, offset_bytes, size_bytes)


def _scan(path: str, fd: int) -> IndexWithHoles:
    size_bytes = os.fstat(fd).st_size
    parts, holes = [np.zeros(1, np.uint64)], []
    at, record = 0, 0
    while at < size_bytes:
        part, whole = _undamaged(path, at, record)
        parts.append(part[1:])
        at, record = int(part[-1]), record + len(part) - 1
        if whole or at >= size_bytes:
            break
        at, is_hole = _step_over(fd, at, size_bytes)
        if is_hole:
            holes.append(record)
        parts.append(np.array([at], np.uint64))
        record += 1
    return IndexWithHoles(np.concatenate(parts), tuple(holes))


def _undamaged(path: str, at: int, record: int) -> tuple[Starts, bool]:
    """Return the offsets from the frame at `at` to the first damage, and True without damage."""
    until = _TO_THE_END
    for _ in range(2):
        try:
            part = _core.scan_part(path, offset_bytes=at, record=record, until_bytes=until)
        except (CorruptRecordError, TruncatedFileError) as error:
            if error.offset_bytes is None:
                raise
            until = error.offset_bytes
            if until == at:
                return np.array([at], np.uint64), False
        else:
            return part, until == _TO_THE_END
    raise _changing(path)


def _changing(path: str) -> CorruptDataError:
    return CorruptDataError(f"{path}: the file changes while it is scanned; wait for its writer", path=path)


def _step_over(fd: int, at: int, size_bytes: int) -> tuple[int, bool]:
    """Return the next offset after the damaged header at `at`, and True if the bytes between are a hole."""
    header = os.pread(fd, HEADER_BYTES, at)
    length = corrected_length(header)
    if length is not None:
        end = at + OVERHEAD_BYTES + length
        if end == size_bytes or (end < size_bytes and _is_frame(fd, at, end)):
            return end, False
        # The length may be any 64-bit number, larger than any file offset.
        following = os.pread(fd, HEADER_BYTES, end) if end < size_bytes else b""
        if len(following) == HEADER_BYTES and checked_length(following) is not None:
            return end, False
    next_start = next_frame(fd, at)
    end = size_bytes if next_start is None else next_start
    # An intact header with another length: the checksum of the rest does not belong to its record.
    of_another = len(header) == HEADER_BYTES and checked_length(header) is not None
    return end, of_another or not _is_frame(fd, at, end)


def _is_frame(fd: int, start: int, end: int) -> bool:
    """Return True if the bytes would be a whole frame with a correct header."""
    if not OVERHEAD_BYTES <= end - start <= _LARGEST_BYTES:
        return False
    payload = read_at(fd, end - start - OVERHEAD_BYTES, start + HEADER_BYTES)
    stored = os.pread(fd, FOOTER_BYTES, end - FOOTER_BYTES)
    return _core.masked_crc32c(payload) == int.from_bytes(stored, "little")
