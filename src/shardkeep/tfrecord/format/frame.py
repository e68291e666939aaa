"""Checks of single TFRecord frames in Python.

`shardkeep._core` reads whole files. Code that follows a growing file, or continues after damage, decides at
every frame how to proceed; its checks and messages are here. The format is described in
``crates/shardkeep-core/src/record/framing.rs``.
"""

from __future__ import annotations

import os
import struct
from typing import Any

from shardkeep._core import crc32c, masked_crc32c
from shardkeep.errors import SchemaError

__all__ = [
    "FOOTER_BYTES",
    "HEADER",
    "HEADER_BYTES",
    "OVERHEAD_BYTES",
    "as_record",
    "checked_length",
    "first_byte_that_is_not_nul",
    "header_fault",
    "payload_fault",
    "read_at",
]

HEADER = struct.Struct("<QI")
HEADER_BYTES = 12
FOOTER_BYTES = 4
OVERHEAD_BYTES = HEADER_BYTES + FOOTER_BYTES

_BLOCK_BYTES = 1 << 20


def as_record(value: Any) -> bytes:
    """Return the bytes of a bytes-like object.

    Raises
    ------
    SchemaError
        The value is of another type.
    """
    if isinstance(value, bytes):
        return value
    try:
        return bytes(memoryview(value))
    except TypeError:
        advice = "; encode it, as in text.encode()" if isinstance(value, str) else ""
        raise SchemaError(f"a record must be bytes-like, not {value!r:.60}{advice}") from None


def checked_length(header: bytes) -> int | None:
    """Return the payload length that a header claims; None if its checksum does not match."""
    length, stored = HEADER.unpack(header)
    return int(length) if masked_crc32c(header[:8]) == stored else None


def header_fault(header: bytes) -> str:
    """Return a description of the fault of a header whose checksum does not match."""
    if not any(header):
        return (
            "NUL bytes where a record header should be: a hole that was never filled, or a power cut;"
            " fetch or write the file again"
        )
    _, stored = HEADER.unpack(header)
    if crc32c(header[:8]) == stored:
        return "the header has an unmasked CRC32C: the writer did not follow the TFRecord format"
    computed = masked_crc32c(header[:8])
    return f"the checksum of the length field is {stored:#010x}, want {computed:#010x}: the header is damaged"


def payload_fault(payload: bytes, stored: int) -> str:
    """Return a description of the fault of a payload whose checksum does not match."""
    return (
        f"the checksum of the {len(payload)}-byte payload is {stored:#010x},"
        f" want {masked_crc32c(payload):#010x}: the record is damaged"
    )


def read_at(fd: int, count: int, offset_bytes: int) -> bytes:
    """Read `count` bytes, fewer only at the end of the file; the descriptor's own offset does not change."""
    data = os.pread(fd, count, offset_bytes)
    if len(data) == count or not data:
        return data
    # One call returns at most 2 GiB.
    parts = [data]
    have = len(data)
    while have < count and (data := os.pread(fd, count - have, offset_bytes + have)):
        parts.append(data)
        have += len(data)
    return b"".join(parts)


def first_byte_that_is_not_nul(fd: int, offset_bytes: int) -> int | None:
    """Return the offset of the first byte other than NUL from `offset_bytes` on; None if there is none."""
    while block := os.pread(fd, _BLOCK_BYTES, offset_bytes):
        rest = block.lstrip(b"\0")
        if rest:
            return offset_bytes + len(block) - len(rest)
        offset_bytes += len(block)
    return None
