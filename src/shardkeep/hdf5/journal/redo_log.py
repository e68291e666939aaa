r"""The redo log of a live file: the changes of each commit to bytes that were committed before.

::

    header    "SKREDO\r\n" | u32 CRC-32C | u32 length | JSON of `LogHeader`
    record    "SKRC" | u32 CRC-32C of the rest | u64 body bytes | u64 serial | body
    body      u64 file bytes | u32 extents | u32 0 | extents x (u64 offset, u32 length) | their bytes

A record is a commit. It counts only if it is complete and its CRC matches; the records after the first one
that does not are ignored. All integers are little-endian. Serials of one log are consecutive and never used
again for a file, so a record left over from an earlier log is not taken for a later one.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from shardkeep._core import crc32c
from shardkeep.errors import CorruptDataError, FormatError, UntrustedFileError
from shardkeep.files.durable import durably, write_all
from shardkeep.files.sidecar import make_sidecar, open_sidecar, user_name

__all__ = ["Extent", "LogHeader", "LogScan", "Record", "RedoLog", "read_log", "scan_log"]

_MAGIC = b"SKREDO\r\n"
_HEAD = struct.Struct("<8sII")
_RECORD = struct.Struct("<4sIQQ")
_BODY = struct.Struct("<QII")
_EXTENT = struct.Struct("<QI")
_RECORD_MAGIC = b"SKRC"
_FORMAT = 1
_WHAT = "redo log"
_MOST_BYTES = 1 << 62
# In a damaged log any bytes may look like the start of a record of any size.
_MOST_TRIED = 1000

Extent = tuple[int, bytes]
"""An offset in the file, and the bytes there."""


@dataclass(frozen=True)
class LogHeader:
    """The header of a log.

    Attributes
    ----------
    fresh : bool
        Whether the file was created together with this log: without a record it holds nothing.
    synced : bool
        Whether each record was written after the file was synced (``--durability fsync``).
    boot : str
        Identifier of the boot of the kernel under which the log was begun.
    file_bytes : int
        Length of the file before the first record.
    first_serial : int
        Serial of the first record.
    superblock : str
        First bytes of the file at that time, in hexadecimal: they tie the log to its file. Empty for a fresh
        file, and in logs of an earlier Shardkeep (`shardkeep.hdf5.journal.recovery`).
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
    """One commit: the length of the file, and the changes of bytes that were committed before."""

    serial: int
    file_bytes: int
    extents: list[Extent]


class RedoLog:
    """The log of a collector that is running.

    Parameters
    ----------
    path : str
        Path of the log itself. Its former content is lost.
    header : LogHeader
    data : os.stat_result, optional
        Status of the file that the log belongs to, if that file exists.

    Raises
    ------
    UntrustedFileError
        The file belongs to another user, so a log of this user would be refused later; or the path is not
        a log of this user.
    DurabilityError
        The log cannot be written.
    """

    def __init__(self, path: str, header: LogHeader, data: os.stat_result | None = None) -> None:
        self.path = path
        self._header = header
        self._serial = header.first_serial
        with durably("make the redo log", path):
            try:
                self._fd = open_sidecar(path, _WHAT, os.O_RDWR)
            except FileNotFoundError:
                # Readable to readers of the file, writable to its owner only: `read_log` refuses others.
                mode = 0o644 if data is None else data.st_mode & 0o644 | 0o600
                self._fd = make_sidecar(path, mode=mode)
        self.bytes = 0
        if data is not None and os.fstat(self._fd).st_uid not in _owners(data):
            self.close(remove=True)
            message = f"{path!r} would not be trusted: its file belongs to {user_name(data.st_uid)}"
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
            The record may be there in part, and does not count.
        """
        table = [_EXTENT.pack(offset, len(data)) for offset, data in extents]
        body = [_BODY.pack(file_bytes, len(extents), 0), *table, *(data for _, data in extents)]
        rest = struct.pack("<QQ", sum(map(len, body)), self._serial)
        crc = crc32c(rest)
        for part in body:
            crc = crc32c(part, crc)
        self._write(b"".join([_RECORD_MAGIC, crc.to_bytes(4, "little"), rest, *body]))
        self._serial += 1

    def restart(self, file_bytes: int, superblock: bytes = b"") -> None:
        """Remove the records, which were applied to the file and synced there."""
        self._header = replace(
            self._header,
            fresh=False,
            file_bytes=file_bytes,
            first_serial=self._serial,
            superblock=superblock.hex(),
        )
        self._begin()

    def close(self, *, remove: bool) -> None:
        """Close the log, and remove it if nothing in it is needed."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        if remove:
            os.unlink(self.path)

    def _begin(self) -> None:
        text = json.dumps(asdict(self._header)).encode()
        with durably("write the redo log", self.path):
            os.ftruncate(self._fd, 0)
        self.bytes = 0
        self._write(_HEAD.pack(_MAGIC, crc32c(text), len(text)) + text)

    def _write(self, data: bytes) -> None:
        with durably("write the redo log", self.path):
            write_all(self._fd, data, self.bytes)
            if self._header.synced:
                os.fdatasync(self._fd)
        self.bytes += len(data)


def read_log(path: str, data: os.stat_result | None = None) -> tuple[LogHeader, Iterator[Record]] | None:
    """Return the header and the valid records of a log; None without a log, or without a complete header.

    Parameters
    ----------
    path : str
    data : os.stat_result, optional
        Status of the file that the log belongs to, if that file exists: the log must have the same owner, or
        belong to root.

    Raises
    ------
    FormatError
        A later Shardkeep wrote it.
    CorruptDataError
        A record with a correct checksum contradicts itself.
    UntrustedFileError
        It may be the work of another user.
    DurabilityError
        It cannot be read.
    """
    whole = _read(path, data)
    found = None if whole is None else _header_of(path, whole)
    if whole is None or found is None:
        return None
    header, offset = found
    return header, _records(path, whole, offset, header.first_serial)


@dataclass(frozen=True)
class LogScan:
    """What is left of a damaged log.

    Attributes
    ----------
    header : LogHeader or None
    records : list of Record
        Valid ones with consecutive serials, from the start, or without a header from the first valid one.
    rest_bytes : int
        Size of what follows them. A collector that is killed in the middle of a record leaves a part of it.
    lost_commits : int
        Number of records in the rest that were once complete.
    """

    header: LogHeader | None
    records: list[Record]
    rest_bytes: int
    lost_commits: int


def scan_log(path: str, data: os.stat_result | None) -> LogScan | None:
    """Return everything that is valid in a log that may be damaged; None without a log.

    Raises
    ------
    FormatError, CorruptDataError, UntrustedFileError, DurabilityError
        As `read_log`.
    """
    whole = _read(path, data)
    if whole is None:
        return None
    raw = bytes(whole)
    header, offset = _header_of(path, whole) or (None, 0)
    if header is None:
        offset, serial = next(_whole_records(raw, 0), (len(raw), 1))
    else:
        serial = header.first_serial
    records = list(_records(path, whole, offset, serial))
    for one in records:
        offset += _RECORD.size + _BODY.size + sum(_EXTENT.size + len(part) for _, part in one.extents)
    last = serial - 1 + len(records)
    newest = max((serial for _, serial in _whole_records(raw, offset)), default=last)
    if raw[offset : offset + 4] == _RECORD_MAGIC and len(raw) - offset >= _RECORD.size:
        size, serial = _RECORD.unpack_from(raw, offset)[2:]
        if serial == last + 1 and size <= len(raw) - offset - _RECORD.size:
            newest = max(newest, serial)
    return LogScan(header, records, len(raw) - offset, newest - last)


def _whole_records(raw: bytes, offset: int) -> Iterator[tuple[int, int]]:
    """Yield offset and serial of each record after `offset` that has its checksum."""
    for _ in range(_MOST_TRIED):
        offset = raw.find(_RECORD_MAGIC, offset)
        if offset < 0 or len(raw) - offset < _RECORD.size:
            return
        _, crc, size, serial = _RECORD.unpack_from(raw, offset)
        stop = offset + _RECORD.size + size
        if stop <= len(raw) and crc32c(raw[offset + 8 : stop]) == crc:
            yield offset, serial
            offset = stop
        else:
            offset += 1


def _read(path: str, data: os.stat_result | None) -> memoryview | None:
    """Return the bytes of a log; None without one."""
    try:
        with durably("read the redo log", path):
            try:
                fd = open_sidecar(path, _WHAT, owners=None if data is None else _owners(data), data=data)
            except FileNotFoundError:
                return None
            with open(fd, "rb") as file:
                return memoryview(file.read())
    except MemoryError:
        message = f"the redo log {path!r} does not fit into memory: move it away"
        raise CorruptDataError(message, path=path) from None


def _owners(data: os.stat_result) -> frozenset[int]:
    return frozenset({data.st_uid, 0})


def _header_of(path: str, whole: memoryview) -> tuple[LogHeader, int] | None:
    """Return the header of a log and the offset after it; None if it is not complete."""
    if len(whole) < _HEAD.size:
        return None
    magic, crc, size = _HEAD.unpack_from(whole)
    text = bytes(whole[_HEAD.size : _HEAD.size + size])
    if magic != _MAGIC or len(text) < size or crc32c(text) != crc:
        return None
    try:
        values = json.loads(text)
        if values.get("format") != _FORMAT:
            message = f"{path!r} has format {values.get('format')}, this Shardkeep reads {_FORMAT}"
            raise FormatError(f"{message}: upgrade it", path=path)
        header = LogHeader(**values)
        bytes.fromhex(header.superblock)
        if not 0 <= header.file_bytes < _MOST_BYTES or not 0 <= header.first_serial < _MOST_BYTES:
            raise ValueError("a length or a serial out of range")
    except FormatError:
        raise
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _contradiction(path, error, 0) from None
    return header, _HEAD.size + size


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
        try:
            yield _parse(data[start : start + size], serial)
        except (struct.error, ValueError) as error:
            raise _contradiction(path, error, offset) from None
        offset = start + size
        serial += 1


def _parse(body: memoryview, serial: int) -> Record:
    file_bytes, count, _ = _BODY.unpack_from(body)
    place = _BODY.size + count * _EXTENT.size
    extents = []
    for number in range(count):
        offset, length = _EXTENT.unpack_from(body, _BODY.size + number * _EXTENT.size)
        if offset + length >= _MOST_BYTES or file_bytes >= _MOST_BYTES:
            raise ValueError("an offset out of range")
        extents.append((offset, bytes(body[place : place + length])))
        place += length
    if place != len(body):
        raise ValueError("lengths that do not add up")
    return Record(serial, file_bytes, extents)
