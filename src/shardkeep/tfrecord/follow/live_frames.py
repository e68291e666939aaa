"""Whole frames of a file that another process may be writing."""

from __future__ import annotations

import os
from collections.abc import Generator, Hashable
from dataclasses import dataclass
from typing import Literal

from shardkeep._core import masked_crc32c
from shardkeep.tfrecord.format.frame import (
    FOOTER_BYTES,
    HEADER_BYTES,
    OVERHEAD_BYTES,
    checked_length,
    header_fault,
    payload_fault,
    read_at,
)

__all__ = ["LiveFrames", "Stall"]

_FIRST_BLOCK_BYTES = 64 << 10  # most checks find little new
_BLOCK_BYTES = 1 << 20
_ANCHOR_BYTES = 64
_HOLE_NULS = bytes(512)  # such a run in a wrong payload is a page that was not written yet
_KNOWN_LENGTHS = 4096


@dataclass(frozen=True)
class Stall:
    """Reason why no whole record is at an offset.

    Attributes
    ----------
    kind : {"end", "partial", "hole", "damage"}
        The file ends here; it ends inside a record; NULs are in place of other bytes; other bytes are wrong.
    what : str
        A description for messages.
    seen : hashable
        Changes between two checks while a process writes here.
    later_bytes : int
        Offset: a byte other than NUL at or after it proves that the writer has passed this record.
    """

    kind: Literal["end", "partial", "hole", "damage"]
    what: str = ""
    seen: Hashable = None
    later_bytes: int = 0


class LiveFrames:
    """Iteration over the frames of a descriptor, up to the first that is not whole.

    Parameters
    ----------
    fd : int
        Opened for reading; the caller closes it.
    offset_bytes : int
        Offset of the first frame.
    record : int
        Number of the record at that offset.

    Attributes
    ----------
    offset_bytes, record : int
        Offset and number after the last record that was yielded.
    """

    def __init__(self, fd: int, *, offset_bytes: int = 0, record: int = 0) -> None:
        self._fd = fd
        self.offset_bytes = offset_bytes
        self.record = record
        self._lengths: dict[bytes, int] = {}
        self._anchor = b""

    def is_intact(self) -> bool:
        """Return True if the last bytes that were read are still at their offset."""
        anchor = self._anchor
        return os.pread(self._fd, len(anchor), self.offset_bytes - len(anchor)) == anchor

    def whole(self) -> Generator[bytes, None, Stall]:
        """Yield the whole payloads from the current offset; return the reason why there are no more."""
        block_bytes = _FIRST_BLOCK_BYTES
        lengths = self._lengths
        while True:
            data = read_at(self._fd, block_bytes, self.offset_bytes)
            have = len(data)
            at = 0
            stall = None
            while have - at >= HEADER_BYTES:
                header = data[at : at + HEADER_BYTES]
                known = lengths.get(header)
                if known is None:
                    known = checked_length(header)
                    if known is None:
                        stall = self._bad_header(header)
                        break
                    if len(lengths) < _KNOWN_LENGTHS:
                        lengths[header] = known
                end = at + OVERHEAD_BYTES + known
                if end > have:
                    if at == 0:
                        stall = yield from self._large(known)
                    break
                payload = data[at + HEADER_BYTES : end - FOOTER_BYTES]
                stored = int.from_bytes(data[end - FOOTER_BYTES : end], "little")
                if masked_crc32c(payload) != stored:
                    stall = self._bad_payload(payload, stored)
                    break
                # Before the yield: the caller may never resume, or resume in two processes.
                self.offset_bytes += end - at
                self.record += 1
                self._anchor = data[max(at, end - _ANCHOR_BYTES) : end]
                at = end
                yield payload
            else:
                if have < block_bytes:
                    stall = _cut_off(have - at)
            if stall is not None:
                return stall
            block_bytes = _BLOCK_BYTES

    def _large(self, length: int) -> Generator[bytes, None, Stall | None]:
        """Yield a record that is larger than a block, or that is incomplete in the file."""
        frame_bytes = length + OVERHEAD_BYTES
        there_bytes = os.fstat(self._fd).st_size - self.offset_bytes
        # A length is trusted only up to the end of the file: nothing is read or allocated before the check.
        if there_bytes < frame_bytes:
            return _cut_off(there_bytes)
        frame = read_at(self._fd, frame_bytes, self.offset_bytes)
        if len(frame) < frame_bytes:
            return _cut_off(len(frame))
        payload = frame[HEADER_BYTES:-FOOTER_BYTES]
        stored = int.from_bytes(frame[-FOOTER_BYTES:], "little")
        if masked_crc32c(payload) != stored:
            return self._bad_payload(payload, stored)
        self.offset_bytes += frame_bytes
        self.record += 1
        self._anchor = frame[-_ANCHOR_BYTES:]
        del frame
        yield payload
        return None

    def _bad_header(self, header: bytes) -> Stall:
        if not any(header):
            return Stall("hole", header_fault(header), header, self.offset_bytes)
        return Stall("damage", header_fault(header), header, self.offset_bytes + HEADER_BYTES)

    def _bad_payload(self, payload: bytes, stored: int) -> Stall:
        seen = (self.offset_bytes, masked_crc32c(payload), stored)
        end = self.offset_bytes + OVERHEAD_BYTES + len(payload)
        what = payload_fault(payload, stored)
        if stored == 0:
            return Stall("hole", what, seen, end)
        if _HOLE_NULS in payload:
            return Stall("hole", what, seen, end - FOOTER_BYTES)
        return Stall("damage", what, seen, end)


def _cut_off(there_bytes: int) -> Stall:
    if there_bytes <= 0:
        return Stall("end")
    return Stall("partial", f"the file ends {there_bytes:,} bytes into a record")
