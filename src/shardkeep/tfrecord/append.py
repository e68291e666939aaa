"""Opening a TFRecord file at its end: what a killed writer left torn there is cut off first."""

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
    TruncatedFileError,
)
from shardkeep.files.pending import durably
from shardkeep.tfrecord.frame import HEADER_BYTES, OVERHEAD_BYTES, checked_length
from shardkeep.tfrecord.index import frame_starts

__all__ = ["cut", "cut_torn_tail", "open_to_append"]

_BLOCK_BYTES = 1 << 20
# What zlib takes for "a gzip header, and the largest window".
_GZIP = 31


def open_to_append(path: str, compression: Any) -> int:
    """Open a file, or make it, at the end of its last whole record; the caller has the lock.

    Parameters
    ----------
    path : str
    compression : {None, "gzip", "zlib"}
        What the writer will write.

    Returns
    -------
    int
        A descriptor.

    Raises
    ------
    PlanError
        The file has another compression, or is a zlib file.
    CorruptDataError
        It is damaged otherwise than by a writer that was killed, or by a power cut.
    DurabilityError
        The operating system refuses.
    """
    made = not os.path.exists(path)
    with durably("open", path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if made:
            with durably("make", path):
                folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
        elif os.fstat(fd).st_size:
            found = _core.sniff_compression(path)
            if found != compression:
                raise PlanError(
                    f"{path}: the file has compression={found!r}, the writer {compression!r}: give the same",
                    path=path,
                )
            if compression == "zlib":
                # TensorFlow reads the first of several zlib streams and calls it the end.
                raise PlanError(
                    f"{path}: nothing is appended to a zlib file, TensorFlow would not see it; use gzip",
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


def cut_torn_tail(fd: int, path: str) -> None:
    """Cut off a partial last record, or the NULs that a power cut left of it; other damage is an error."""
    try:
        frame_starts([path], verify=True)
        return
    except TruncatedFileError as error:
        whole = error.offset_bytes
    except CorruptRecordError as error:
        if error.offset_bytes is None or not _is_lost_to_the_end(fd, error.offset_bytes):
            raise
        whole = error.offset_bytes
    if whole is None:
        raise InternalError(f"{path}: a torn tail without an offset", path=path)
    cut(fd, path, whole)


def cut(fd: int, path: str, size_bytes: int) -> None:
    """Cut a file back to a size, durably."""
    with durably("cut the torn tail off", path):
        os.ftruncate(fd, size_bytes)
        os.fsync(fd)


def _cut_torn_member(fd: int, path: str) -> None:
    """Cut off a last gzip member without an end, if whole members of whole records stand before it."""
    try:
        for _ in _core.RecordIterator(path, compression="gzip"):
            pass
    except CorruptDataError:
        end, content_bytes = _whole_members(fd)
        if end == 0 or not _holds_whole_records(path, content_bytes):
            raise
        cut(fd, path, end)


def _whole_members(fd: int) -> tuple[int, int]:
    """Return where the last whole member ends and how much they all hold; (0, 0) if damage follows."""
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
            return (end, content_bytes) if _is_nul_to_the_end(fd, end) else (0, 0)
        block = member.unconsumed_tail
        if member.eof:
            block = member.unused_data
            end, content_bytes = position - len(block), unpacked
            member = zlib.decompressobj(_GZIP)


def _holds_whole_records(path: str, content_bytes: int) -> bool:
    """Whether a record ends after so many bytes of content, and everything before is sound."""
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
    """Whether nothing of a record, or of its payload, reached the disk, nor anything behind it."""
    header = os.pread(fd, HEADER_BYTES, offset_bytes)
    if len(header) == HEADER_BYTES and checked_length(header) is not None:
        offset_bytes += HEADER_BYTES
    return _is_nul_to_the_end(fd, offset_bytes)


def _is_nul_to_the_end(fd: int, offset_bytes: int) -> bool:
    while block := os.pread(fd, _BLOCK_BYTES, offset_bytes):
        if block.strip(b"\0"):
            return False
        offset_bytes += len(block)
    return True
