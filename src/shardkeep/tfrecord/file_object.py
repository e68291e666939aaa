"""Records of a file object: an `io.BytesIO`, a member of an archive, a remote file of fsspec."""

from __future__ import annotations

import io
import os
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from shardkeep import _core
from shardkeep.errors import CorruptRecordError, PlanError, TruncatedFileError
from shardkeep.tfrecord.format.frame import FOOTER_BYTES, HEADER_BYTES, OVERHEAD_BYTES

__all__ = ["FileObject", "checked_payload", "is_file_object"]


def is_file_object(source: Any) -> bool:
    """Return True if `source` is a file object and not a path."""
    return hasattr(source, "read") and not isinstance(source, (str, os.PathLike))


class FileObject:
    """A file object as a source of records for `Reader`.

    Parameters
    ----------
    file : binary file
        An object with ``read``; random access, and reading twice, need ``seek`` too.

    Notes
    -----
    A seekable object is read by offset, so several iterations do not affect each other, but its own position
    moves. `fork` and `pickle` work only as far as the object itself supports them.
    """

    def __init__(self, file: BinaryIO) -> None:
        if isinstance(file, io.TextIOBase):
            raise PlanError(f"a file object must be binary, as of open(path, 'rb'), not {file!r:.60}")
        self.file = file
        name = getattr(file, "name", None) or getattr(file, "path", None)
        self.name = name if isinstance(name, str) else f"<{type(file).__name__}>"
        seekable = getattr(file, "seekable", None)
        self.seekable = bool(seekable()) if callable(seekable) else hasattr(file, "seek")
        self._used = False
        self._starts: npt.NDArray[np.int64] | None = None

    def head(self, count: int) -> bytes | None:
        """Return the first bytes, or None if the object cannot seek back."""
        return self._read(0, count) if self.seekable else None

    def records(self, *, compression: Any, verify: bool) -> _core.RecordIterator:
        """Return an iterator over all records.

        Raises
        ------
        PlanError
            The object was read before and cannot seek.
        """
        if self._used and not self.seekable:
            message = "this file object has no seek, so its records are read in order and once; open it again"
            raise PlanError(f"{self.name}: {message}")
        self._used = True
        return _core.RecordIterator(
            self.file, compression=compression, verify=verify, name=self.name, seekable=self.seekable
        )

    def starts(self, *, verify: bool) -> npt.NDArray[np.int64]:
        """Return the start of each frame, and the end of the file, after one pass."""
        if self._starts is None:
            records = self.records(compression=None, verify=verify)
            lengths = [len(record) + OVERHEAD_BYTES for record in records]
            self._starts = np.cumsum([0, *lengths])
        return self._starts

    def read_many(self, numbers: npt.NDArray[np.uint64], *, verify: bool) -> list[bytes]:
        """Return the records with these numbers, which must exist."""
        starts = self.starts(verify=verify)
        return [
            self._record(int(n), int(starts[n]), int(starts[n + 1]), verify) for n in numbers.astype(np.int64)
        ]

    def _record(self, number: int, start: int, stop: int, verify: bool) -> bytes:
        frame = self._read(start, stop - start)
        return checked_payload(frame, self.name, number, start, stop - start, verify=verify)

    def _read(self, offset_bytes: int, count: int) -> bytes:
        self.file.seek(offset_bytes)
        parts: list[bytes] = []
        while count > 0:
            part = self.file.read(count)
            if not part:
                break
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


def checked_payload(
    frame: bytes, name: str, number: int, start: int, frame_bytes: int, *, verify: bool
) -> bytes:
    """Return the payload of a frame that was read at the offset of an index.

    Raises
    ------
    TruncatedFileError, CorruptRecordError
    """
    place: dict[str, Any] = {"path": name, "record": number, "offset_bytes": start}
    where = f"{name}: record {number} at byte {start}"
    if len(frame) < frame_bytes:
        raise TruncatedFileError(f"{where}: the file became shorter since it was indexed", **place)
    record = frame[HEADER_BYTES:-FOOTER_BYTES]
    if len(record) != int.from_bytes(frame[:8], "little"):
        raise CorruptRecordError(f"{where}: the file was rewritten after it was indexed", **place)
    if verify and _core.masked_crc32c(record) != int.from_bytes(frame[-FOOTER_BYTES:], "little"):
        raise CorruptRecordError(
            f"{where}: the checksum of the payload is wrong: the record is damaged", **place
        )
    return record
