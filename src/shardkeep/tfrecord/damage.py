"""Records of a file that may be damaged: raised, skipped or repaired."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from shardkeep._core import correct_flipped_bits, damaged_extent, find_flipped_bit, masked_crc32c
from shardkeep.errors import CorruptDataError, CorruptRecordError, FormatError, PlanError
from shardkeep.files.kinds.kind import identify
from shardkeep.files.user_warning import warn_user
from shardkeep.tfrecord.format.frame import (
    FOOTER_BYTES,
    HEADER,
    HEADER_BYTES,
    checked_length,
    header_fault,
    payload_fault,
    read_at,
)
from shardkeep.tfrecord.format.resync import next_frame
from shardkeep.tfrecord.index.damaged import hole_error, index_around_damage
from shardkeep.tfrecord.reader import Reader

__all__ = [
    "Damage",
    "OnCorrupt",
    "check_on_corrupt",
    "is_foreign",
    "is_repairable",
    "read_records",
    "warn_of_damage",
]

OnCorrupt = Literal["raise", "skip", "repair"]

# A payload of more than 1 MiB is never repaired.
_LARGEST_REPAIR_BYTES = 2 << 20


@dataclass(frozen=True)
class Damage:
    """A damaged record, or a byte range without a recognisable record, that was skipped or repaired.

    Attributes
    ----------
    path : str
    record : int
        Number in the file, in which a byte range without a recognisable record counts as one.
    offset_bytes : int or None
        Start in the file; None in a compressed file.
    bytes : int or None
        Size in the file; None in a compressed file, of which the whole rest is skipped.
    fault : str
        Description of the damage, or of the repair.
    repaired : bool
        True if the record was corrected, False if it was skipped.
    """

    path: str
    record: int
    offset_bytes: int | None
    bytes: int | None
    fault: str
    repaired: bool = False

    def __str__(self) -> str:
        place = "" if self.offset_bytes is None else f" at byte {self.offset_bytes}"
        done = "repaired" if self.repaired else "skipped"
        return f"{self.path}: record {self.record}{place} was {done}: {self.fault}"


def check_on_corrupt(value: str) -> None:
    """Raise a `PlanError` unless `value` is one of `OnCorrupt`."""
    if value not in get_args(OnCorrupt):
        raise PlanError(f'on_corrupt must be "raise", "skip" or "repair", not {value!r}')


def warn_of_damage(damage: Damage) -> None:
    """Issue a `RuntimeWarning` about a record that was skipped or repaired."""
    warn_user(str(damage))


def read_records(
    path: str | os.PathLike[str],
    *,
    on_corrupt: OnCorrupt = "raise",
    on_damage: Callable[[Damage], object] = warn_of_damage,
) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of each record of a file, in order; every checksum is checked.

    Parameters
    ----------
    path : path
        A TFRecord file, compressed or not.
    on_corrupt : {"raise", "skip", "repair"}
        "raise": damage is an error. "skip": damaged records are left out, and the reading continues with the
        next whole record; nothing after the damage of a compressed file can be read. "repair": a record with
        one flipped bit is corrected, other damage is an error. Record numbers are those of `Loader`.
    on_damage : callable
        Called with each `Damage` that was skipped or repaired.

    Raises
    ------
    CorruptRecordError, TruncatedFileError, FormatError, NotFoundError
        As `Reader`. FormatError also if binary data have no whole record after their start.
    """
    number, name = -1, os.fspath(path)
    reader = Reader(name)
    try:
        for number, record in enumerate(reader):
            yield number, record
    except CorruptDataError as error:
        if on_corrupt == "raise":
            raise
        compressed = reader.compression is not None
        if compressed and on_corrupt == "repair":
            raise type(error)(
                f'{error}; on_corrupt="repair" is not for compressed files, "skip" reads the records before'
                " the damage",
                path=name,
                record=error.record,
            ) from None
        fault = error
    else:
        return
    if compressed:
        on_damage(Damage(name, number + 1, None, None, f"{_reason(fault)}; the rest cannot be decompressed"))
        return
    yield from _after_damage(name, number + 1, fault, on_corrupt, on_damage)


def is_repairable(path: str, offset_bytes: int) -> bool:
    """Return True if the damaged record at this offset of an uncompressed file has one flipped bit."""
    stop, is_hole = damaged_extent(path, offset_bytes)
    if is_hole or stop - offset_bytes > _LARGEST_REPAIR_BYTES:
        return False
    with open(path, "rb", buffering=0) as file:
        return correct_flipped_bits(read_at(file.fileno(), stop - offset_bytes, offset_bytes)) is not None


def is_foreign(path: str) -> bool:
    """Return True if a file whose first header is wrong shows no sign of a TFRecord file."""
    if not identify(path).described.startswith("binary data"):
        return False
    with open(path, "rb", buffering=0) as file:
        fd = file.fileno()
        header = os.pread(fd, HEADER_BYTES, 0)
        if len(header) == HEADER_BYTES and find_flipped_bit(header[:8], HEADER.unpack(header)[1]) is not None:
            return False
        return next_frame(fd, 0) is None


def _after_damage(
    path: str,
    first: int,
    fault: CorruptDataError,
    on_corrupt: OnCorrupt,
    on_damage: Callable[[Damage], object],
) -> Iterator[tuple[int, bytes]]:
    """Yield the records from `first`, the damaged one, by their offsets."""
    index = index_around_damage(path, store=False)
    starts, holes = index.starts.tolist(), set(index.holes)
    if len(starts) - 1 == len(holes):
        kind = FormatError if identify(path).described.startswith("binary data") else type(fault)
        raise kind(f"{path}: no record in it is whole ({_reason(fault)})", path=path)
    with open(path, "rb", buffering=0) as file:
        for number in range(first, len(starts) - 1):
            start, size_bytes = starts[number], starts[number + 1] - starts[number]
            if number in holes:
                error = hole_error(path, number, start, size_bytes)
                if on_corrupt == "repair":
                    raise error
                on_damage(
                    Damage(
                        path, number, start, size_bytes, f"{size_bytes} bytes without a recognisable record"
                    )
                )
                continue
            frame = read_at(file.fileno(), size_bytes, start)
            what = _fault_of(frame)
            if what is not None:
                corrected = correct_flipped_bits(frame) if on_corrupt == "repair" else None
                if on_corrupt == "repair" and corrected is None:
                    raise CorruptRecordError(
                        f"{path}: record {number} at byte {start}: {what}, by more than a flipped bit;"
                        ' on_corrupt="skip" omits it',
                        path=path,
                        record=number,
                        offset_bytes=start,
                    )
                if corrected is None:
                    on_damage(Damage(path, number, start, size_bytes, what))
                    continue
                frame, what = corrected
                on_damage(Damage(path, number, start, size_bytes, what, repaired=True))
            yield number, frame[HEADER_BYTES:-FOOTER_BYTES]


def _fault_of(frame: bytes) -> str | None:
    """Return the fault of a whole frame, or None."""
    header, payload = frame[:HEADER_BYTES], frame[HEADER_BYTES:-FOOTER_BYTES]
    if checked_length(header) is None:
        return header_fault(header)
    stored = int.from_bytes(frame[-FOOTER_BYTES:], "little")
    return None if masked_crc32c(payload) == stored else payload_fault(payload, stored)


def _reason(fault: CorruptDataError) -> str:
    """Return the message of an error without the path, which the other texts begin with."""
    return str(fault).removeprefix(f"{fault.path}: ")
