"""Index of a damaged file.

An index gives the byte range of each record number, so it must continue past a damaged header.
``crates/shardkeep-core/src/record/salvage/numbering.rs`` describes the numbers: unreadable bytes are a
*hole*, which counts as one record.

Records after a hole of several records therefore have other numbers than in the undamaged file, and the data
set has another fingerprint. The same bytes give the same index on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shardkeep import _core
from shardkeep.errors import CorruptDataError, CorruptRecordError, FormatError, TruncatedFileError
from shardkeep.tfrecord.index.index import find_index, load_index
from shardkeep.tfrecord.index.scan import SCAN_BYTES, Starts, explain

__all__ = [
    "DamagedRecord",
    "IndexWithHoles",
    "find_damage",
    "hole_error",
    "index_around_damage",
]


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
    starts, holes = _core.scan_around_damage(path)
    return IndexWithHoles(starts, tuple(holes.tolist()))


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
    at, record, until = 0, 0, 0
    while at >= until:
        until = at + SCAN_BYTES
        try:
            part = _core.scan_part(path, offset_bytes=at, record=record, until_bytes=until, verify=True)
            stop, record = int(part[-1]), record + len(part) - 1
        except CorruptDataError as error:
            if error.offset_bytes is None or error.record is None:
                raise
            if index is None:
                explained = explain(error)
                if isinstance(explained, FormatError):
                    raise explained from None
                index = index_around_damage(path, store=False).starts
            record = error.record + 1
            if record >= len(index) or int(index[record - 1]) != error.offset_bytes:
                raise _changing(path) from None
            stop = int(index[record])
            yield DamagedRecord(record - 1, error.offset_bytes, stop, error)
            until = 0
        tick(stop - at)
        at = stop
    yield record


def hole_error(path: str, record: int, start: int, size_bytes: int) -> CorruptRecordError:
    """Return the error for a hole where only flipped bits may be damaged."""
    return CorruptRecordError(
        f"{path}: record {record} at byte {start}: {size_bytes} bytes without a recognisable record, which is"
        ' more than a flipped bit; on_corrupt="skip" omits them',
        path=path,
        record=record,
        offset_bytes=start,
    )


def _changing(path: str) -> CorruptDataError:
    return CorruptDataError(f"{path}: the file changes while it is scanned; wait for its writer", path=path)
