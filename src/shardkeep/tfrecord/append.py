"""Opening of a TFRecord file for appending, after the removal of a torn tail.

A torn tail is a record that the end of the file cuts off, with no whole record after its start. A length that
reaches beyond the end of the file while whole records follow is damage (a lost block, two joined files), and
nothing is cut.
"""

from __future__ import annotations

import os
import zlib
from typing import Any

from shardkeep import _core
from shardkeep.errors import (
    CorruptDataError,
    CorruptRecordError,
    InternalError,
    PlanError,
    RepairRefusedError,
    TruncatedFileError,
)
from shardkeep.files.durable import durably, sync_folder
from shardkeep.tfrecord.format.file_kind import with_file_kind
from shardkeep.tfrecord.format.frame import (
    HEADER_BYTES,
    OVERHEAD_BYTES,
    checked_length,
    first_byte_that_is_not_nul,
)
from shardkeep.tfrecord.format.resync import next_frame
from shardkeep.tfrecord.index.index import frame_starts

__all__ = ["cut", "cut_torn_tail", "open_to_append"]

_BLOCK_BYTES = 1 << 20
# The wbits of zlib for "a gzip header, and the largest window".
_GZIP = 31
# First bytes of a gzip member whose method is deflate, the only defined one (RFC 1952).
_MEMBER_START = b"\x1f\x8b\x08"


def open_to_append(path: str, compression: Any) -> int:
    """Open or create a file at the end of its last whole record; the caller holds the lock.

    Parameters
    ----------
    path : str
    compression : {None, "gzip", "zlib"}
        Compression that the writer will use.

    Returns
    -------
    int
        A descriptor, positioned at the end of the file.

    Raises
    ------
    PlanError
        The file has another compression, or is a zlib file.
    CorruptDataError
        The file has damage other than that of a killed writer or of a power cut.
    RepairRefusedError
        Whole records follow a torn one; a cut there would lose them.
    DurabilityError
        The operating system reports an error.
    """
    made = not os.path.exists(path)
    with durably("open", path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if made:
            with durably("make", path):
                sync_folder(os.path.dirname(path))
        elif os.fstat(fd).st_size:
            found = _core.sniff_compression(path)
            if found != compression:
                raise PlanError(
                    f"{path}: the file has compression={found!r}, the writer {compression!r}; pass the same",
                    path=path,
                )
            if compression == "zlib":
                # TensorFlow stops at the end of the first of several zlib streams.
                raise PlanError(
                    f"{path}: cannot append to a zlib file, TensorFlow would not read the new part; use gzip",
                    path=path,
                )
            if compression is None:
                cut_torn_tail(fd, path)
            else:
                _cut_torn_member(fd, path)
        os.lseek(fd, 0, os.SEEK_END)
    except BaseException:
        os.close(fd)
        raise
    return fd


def cut_torn_tail(fd: int, path: str, *, written_from: int | None = None) -> None:
    """Cut off a partial last record, or NULs that a power cut left in its place; other damage is an error.

    Parameters
    ----------
    fd : int
    path : str
    written_from : int, optional
        Offset from which the caller itself wrote, with the lock held. A torn record from there on is the
        caller's, and so are all bytes after it: its payload may hold whole records.

    Raises
    ------
    CorruptDataError
        The file has other damage.
    RepairRefusedError
        Whole records follow the torn one. The file is unchanged.
    """
    try:
        frame_starts([path], verify=True)
        return
    except TruncatedFileError as error:
        whole = error.offset_bytes
        if whole is None:
            raise InternalError(f"{path}: a torn tail without an offset", path=path) from error
        if written_from is None or whole < written_from:
            _refuse_if_frames_follow(fd, path, whole, error)
    except CorruptRecordError as error:
        if error.offset_bytes is None or not _is_lost_to_the_end(fd, error.offset_bytes):
            raise
        whole = error.offset_bytes
    cut(fd, path, whole)


def cut(fd: int, path: str, size_bytes: int) -> None:
    """Truncate a file to a size, durably."""
    with durably("cut the torn tail off", path):
        os.ftruncate(fd, size_bytes)
        os.fsync(fd)


def _cut_torn_member(fd: int, path: str) -> None:
    """Cut off an unfinished last gzip member, if all members before it are whole and hold whole records."""
    try:
        for _ in _core.RecordIterator(path, compression="gzip"):
            pass
    except CorruptDataError as error:
        end, content_bytes = _whole_members(fd)
        if end == 0 or not _holds_whole_records(path, content_bytes):
            raise (with_file_kind(error) if isinstance(error, CorruptRecordError) else error) from None
        _refuse_if_members_follow(fd, path, end)
        cut(fd, path, end)


def _refuse_if_frames_follow(fd: int, path: str, torn: int, error: TruncatedFileError) -> None:
    following = next_frame(fd, torn)
    if following is None:
        return
    message = (
        f"{path}: record {error.record} at byte {torn} reaches beyond the end of the file, yet a whole record"
        f" follows at byte {following}: this is damage and not a torn tail, and nothing was cut off"
    )
    advice = f'"shardkeep verify {path}" lists the damage; Loader(on_corrupt="skip") reads the whole records'
    raise RepairRefusedError(f"{message}. {advice}", path=path, record=error.record, offset_bytes=torn)


def _refuse_if_members_follow(fd: int, path: str, torn: int) -> None:
    """Refuse the cut if a whole gzip member starts after `torn`, the start of the torn one."""
    at = torn + 1
    while block := os.pread(fd, _BLOCK_BYTES + len(_MEMBER_START) - 1, at):
        place = block.find(_MEMBER_START)
        while place >= 0:
            if _is_whole_member(fd, at + place):
                message = (
                    f"{path}: the gzip member at byte {torn} has no end, yet a whole one follows at byte"
                    f" {at + place}: this is damage and not a torn tail, and nothing was cut off"
                )
                advice = f'"shardkeep verify {path}" shows the offset; restore the file from a copy'
                raise RepairRefusedError(f"{message}. {advice}", path=path, offset_bytes=torn)
            place = block.find(_MEMBER_START, place + 1)
        at += _BLOCK_BYTES


def _is_whole_member(fd: int, offset_bytes: int) -> bool:
    member = zlib.decompressobj(_GZIP)
    block = b""
    while not member.eof:
        if not block:
            block = os.pread(fd, _BLOCK_BYTES, offset_bytes)
            offset_bytes += len(block)
            if not block:
                return False
        try:
            member.decompress(block, _BLOCK_BYTES)
        except zlib.error:
            return False
        block = member.unconsumed_tail
    return True


def _whole_members(fd: int) -> tuple[int, int]:
    """Return the end of the last whole member and the content size of all; (0, 0) if damage follows."""
    end = content_bytes = position = unpacked = 0
    member = zlib.decompressobj(_GZIP)
    block = b""
    while True:
        if not block:
            block = os.pread(fd, _BLOCK_BYTES, position)
            position += len(block)
            if not block:
                return end, content_bytes
        try:
            unpacked += len(member.decompress(block, _BLOCK_BYTES))
        except zlib.error:
            return (end, content_bytes) if first_byte_that_is_not_nul(fd, end) is None else (0, 0)
        block = member.unconsumed_tail
        if member.eof:
            block = member.unused_data
            end, content_bytes = position - len(block), unpacked
            member = zlib.decompressobj(_GZIP)


def _holds_whole_records(path: str, content_bytes: int) -> bool:
    """Return True if a record ends after `content_bytes` of content and all before it are whole."""
    records_bytes = 0
    try:
        for record in _core.RecordIterator(path, compression="gzip"):
            if records_bytes >= content_bytes:
                break
            records_bytes += len(record) + OVERHEAD_BYTES
    except CorruptDataError:
        pass
    return records_bytes == content_bytes


def _is_lost_to_the_end(fd: int, offset_bytes: int) -> bool:
    """Return True if the file holds only NULs from a record, or from its payload, to the end."""
    header = os.pread(fd, HEADER_BYTES, offset_bytes)
    if len(header) == HEADER_BYTES and checked_length(header) is not None:
        offset_bytes += HEADER_BYTES
    return first_byte_that_is_not_nul(fd, offset_bytes) is None
