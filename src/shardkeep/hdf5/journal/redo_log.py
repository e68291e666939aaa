r"""The redo log of a file that the collector writes: what a commit changes in place.

::

    header    "SKREDO\r\n" | u32 CRC-32C | u32 length | JSON of `LogHeader`
    record    "SKRC" | u32 CRC-32C of the rest | u64 body bytes | u64 serial | body
    body      u64 file bytes | u32 extents | u32 0 | extents x (u64 offset, u32 length) | their bytes

A record is a commit. It is whole or it does not exist: the CRC tells. All integers are
little-endian. Records of one log have serials that follow each other, so a record left over from
an earlier log of the same file is never taken for a later one.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from shardkeep._core import crc32c
from shardkeep.errors import CorruptDataError, FormatError, UntrustedFileError
from shardkeep.files.durable import durably
from shardkeep.files.sidecar import make_sidecar, open_sidecar, user_name

__all__ = ["Extent", "LogHeader", "Record", "RedoLog", "read_log", "write_all"]

_MAGIC = b"SKREDO\r\n"
_HEAD = struct.Struct("<8sII")
_RECORD = struct.Struct("<4sIQQ")
_BODY = struct.Struct("<QII")
_EXTENT = struct.Struct("<QI")
_RECORD_MAGIC = b"SKRC"
_FORMAT = 1
_WHAT = "redo log"
_MOST_BYTES = 1 << 62

Extent = tuple[int, bytes]
"""An offset in the file, and the bytes there."""


@dataclass(frozen=True)
class LogHeader:
    """What a log says about itself.

    Attributes
    ----------
    fresh : bool
        The file was made together with this log: without a record it holds nothing.
    synced : bool
        Records are synced after the bytes they speak of (``--durability fsync``).
    boot : str
        Of the kernel that ran when the log was begun.
    file_bytes : int
        Length of the file before the first record.
    first_serial : int
        Of the first record.
    superblock : str
        The first bytes of the file then, in hexadecimal: they tie the log to its file. Empty if the file is
        fresh, or the log is one of an earlier Shardkeep (`shardkeep.hdf5.journal.recovery`).
    """

    fresh: bool
    synced: bool
    boot: str
    file_bytes: int
    first_serial: int = 1
    format: int = _FORMAT
    superblock: str = ""


@dataclass(frozen=True)
class Record:
    """One commit: the length of the file, and what changes in the part that was there before."""

    serial: int
    file_bytes: int
    extents: list[Extent]


class RedoLog:
    """The log while a collector writes it.

    Parameters
    ----------
    path : str
        Of the log itself. What is in it is lost.
    header : LogHeader
    data : os.stat_result, optional
        Of the file that it is of, if that exists.

    Raises
    ------
    UntrustedFileError
        The file is of another user, so a log of this user would be refused. Or what has the name of the log
        is not a log of this user.
    DurabilityError
        It cannot be made.
    """

    def __init__(self, path: str, header: LogHeader, data: os.stat_result | None = None) -> None:
        self.path = path
        self.serial = header.first_serial
        self._synced = header.synced
        self._header = header
        with durably("make the redo log", path):
            try:
                self._fd = open_sidecar(path, _WHAT, os.O_RDWR)
            except FileNotFoundError:
                # Read by those who can read the file, written by its owner only: `read_log` refuses others.
                mode = 0o644 if data is None else data.st_mode & 0o644 | 0o600
                self._fd = make_sidecar(path, mode=mode)
        self.bytes = 0
        if data is not None and os.fstat(self._fd).st_uid not in _owners(data):
            self.close(remove=True)
            message = f"{path!r} would not be believed: its file belongs to {user_name(data.st_uid)}"
            raise UntrustedFileError(f"{message}; collect as that user, or into a new file", path=path)
        try:
            self._begin()
        except BaseException:
            self.close(remove=False)  # a full disk is tried again every second, with a descriptor each time
            raise

    def append(self, file_bytes: int, extents: Sequence[Extent]) -> None:
        """Write one record, and sync it if the log is a synced one.

        Raises
        ------
        DurabilityError
            It could not be written; a part of it may be there and does not count.
        """
        table = [_EXTENT.pack(offset, len(data)) for offset, data in extents]
        body = [_BODY.pack(file_bytes, len(extents), 0), *table, *(data for _, data in extents)]
        size = sum(map(len, body))
        rest = struct.pack("<QQ", size, self.serial)
        crc = crc32c(rest)
        for part in body:
            crc = crc32c(part, crc)
        record = b"".join([_RECORD_MAGIC, crc.to_bytes(4, "little"), rest, *body])
        with durably("write the redo log", self.path):
            write_all(self._fd, record, self.bytes)
            if self._synced:
                os.fdatasync(self._fd)
        self.bytes += len(record)
        self.serial += 1

    def restart(self, file_bytes: int, superblock: bytes = b"") -> None:
        """Forget the records: what they say is in the file itself, and synced there."""
        boot = self._header.boot
        self._header = LogHeader(
            False, self._synced, boot, file_bytes, self.serial, superblock=superblock.hex()
        )
        self._begin()

    def close(self, *, remove: bool) -> None:
        """Let the log go, and remove it once nothing in it is needed."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        if remove:
            os.unlink(self.path)

    def _begin(self) -> None:
        text = json.dumps(asdict(self._header)).encode()
        head = _HEAD.pack(_MAGIC, crc32c(text), len(text)) + text
        with durably("write the redo log", self.path):
            os.ftruncate(self._fd, 0)
            write_all(self._fd, head, 0)
            if self._synced:
                os.fdatasync(self._fd)
        self.bytes = len(head)


def read_log(path: str, data: os.stat_result | None = None) -> tuple[LogHeader, Iterator[Record]] | None:
    """Return header and whole records of a log; None if there is none, or one without a whole header.

    Parameters
    ----------
    path : str
    data : os.stat_result, optional
        Of the file that it is of, if that exists: the log must be of the same owner, or of root.

    Raises
    ------
    FormatError
        A later Shardkeep wrote it.
    CorruptDataError
        It contradicts itself.
    UntrustedFileError
        It may be the work of another user.
    DurabilityError
        It cannot be read.
    """
    try:
        with durably("read the redo log", path):
            try:
                fd = open_sidecar(path, _WHAT, owners=None if data is None else _owners(data), data=data)
            except FileNotFoundError:
                return None
            with open(fd, "rb") as file:
                whole = memoryview(file.read())
    except MemoryError:
        raise CorruptDataError(
            f"the redo log {path!r} does not fit into memory: move it away", path=path
        ) from None
    if len(whole) < _HEAD.size:
        return None
    magic, crc, size = _HEAD.unpack_from(whole)
    text = bytes(whole[_HEAD.size : _HEAD.size + size])
    if magic != _MAGIC or len(text) < size or crc32c(text) != crc:
        return None
    header = _parse_header(path, text)
    return header, _records(path, whole, _HEAD.size + size, header.first_serial)


def _owners(data: os.stat_result) -> frozenset[int]:
    return frozenset({data.st_uid, 0})


def _parse_header(path: str, text: bytes) -> LogHeader:
    try:
        values = json.loads(text)
        if values.get("format") != _FORMAT:
            message = (
                f"{path!r} has format {values.get('format')}, this Shardkeep reads {_FORMAT}: upgrade it"
            )
            raise FormatError(message, path=path)
        header = LogHeader(**values)
        bytes.fromhex(header.superblock)
        if not 0 <= header.file_bytes < _MOST_BYTES or not 0 <= header.first_serial < _MOST_BYTES:
            raise ValueError("a length or a serial out of range")
    except FormatError:
        raise
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _contradiction(path, error, 0) from None
    return header


def _contradiction(path: str, error: Exception, offset: int) -> CorruptDataError:
    message = f"the redo log {path!r} contradicts itself ({error}): keep it, and report this"
    return CorruptDataError(message, path=path, offset_bytes=offset)


def _records(path: str, data: memoryview, offset: int, serial: int) -> Iterator[Record]:
    while len(data) - offset >= _RECORD.size:
        magic, crc, size, found = _RECORD.unpack_from(data, offset)
        start = offset + _RECORD.size
        if magic != _RECORD_MAGIC or found != serial or size > len(data) - start:
            return
        if crc32c(bytes(data[offset + 8 : start + size])) != crc:
            return
        yield _parse(path, data[start : start + size], serial, offset)
        offset = start + size
        serial += 1


def _parse(path: str, body: memoryview, serial: int, offset: int) -> Record:
    try:
        file_bytes, count, _ = _BODY.unpack_from(body)
        place = _BODY.size + count * _EXTENT.size
        extents = []
        for number in range(count):
            where, length = _EXTENT.unpack_from(body, _BODY.size + number * _EXTENT.size)
            if where + length >= _MOST_BYTES or file_bytes >= _MOST_BYTES:
                raise ValueError("an offset that no file has")
            extents.append((where, bytes(body[place : place + length])))
            place += length
        if place != len(body):
            raise ValueError("lengths that do not add up")
    except (struct.error, ValueError) as error:
        raise _contradiction(path, error, offset) from None
    return Record(serial, file_bytes, extents)


def write_all(fd: int, data: Any, offset: int) -> None:
    """Write all of a buffer, however little each call takes."""
    view = memoryview(data)
    while len(view):
        done = os.pwrite(fd, view, offset)
        view, offset = view[done:], offset + done
