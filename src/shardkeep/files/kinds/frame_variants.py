"""Recognition of faulty TFRecord files: from a faulty writer, or rewritten by a tool for text.

The checksum in the first header distinguishes all of them from damage.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Literal

from shardkeep._core import crc32c, mask_crc, masked_crc32c

__all__ = ["find_variant", "is_frame_header"]

HEADER_BYTES = 12
# A record of this size, 256 TiB, is a length read in the wrong byte order.
_ABSURD_BYTES = 1 << 48
_REPLACEMENT = "\ufffd".encode()

_BINARY = "fetch or copy the file again in binary mode"
_REWRITE = "write it again with a writer that follows the format"


def is_frame_header(head: bytes) -> bool:
    """Return True if `head` begins with the length of a record and its correct checksum."""
    if len(head) < HEADER_BYTES or masked_crc32c(head[:8]) != int.from_bytes(head[8:12], "little"):
        return False
    return not _is_swapped(head)


def _is_swapped(head: bytes) -> bool:
    length, swapped = int.from_bytes(head[:8], "little"), int.from_bytes(head[:8], "big")
    return swapped < _ABSURD_BYTES <= length


def find_variant(head: bytes) -> tuple[str, str] | None:
    """Return the fault of a faulty TFRecord file, and advice.

    Parameters
    ----------
    head : bytes
        The first few kilobytes of a file for which `is_frame_header` is False.

    Returns
    -------
    (str, str) or None
        A description with an article, and advice.

    Examples
    --------
    >>> length = (5).to_bytes(8, "little")
    >>> find_variant(length + crc32c(length).to_bytes(4, "little") + b"hello")[0]
    'a TFRecord file whose checksums are not masked'
    """
    return _by_checksum(head) or _by_text(head) or _level_db(head)


def _by_checksum(head: bytes) -> tuple[str, str] | None:
    if len(head) < HEADER_BYTES or not head[:HEADER_BYTES].strip(b"\x00"):
        return None
    orders: tuple[Literal["little", "big"], ...] = ("little", "big")
    for order in orders:
        # A writer with the wrong byte order may use it for the length, the checksum, or both.
        stored = int.from_bytes(head[8:12], order)
        for data in (head[:8], head[7::-1]):
            sums = {
                masked_crc32c(data): "",
                crc32c(data): "a TFRecord file whose checksums are not masked",
                zlib.crc32(data): "a TFRecord file whose checksums are CRC-32 instead of CRC-32C",
                mask_crc(zlib.crc32(data)): "a TFRecord file whose checksums are CRC-32 instead of CRC-32C",
            }
            if stored not in sums:
                continue
            if sums[stored]:
                return sums[stored], _REWRITE
            return "a TFRecord file with byte-swapped lengths or checksums: a big-endian writer", _REWRITE
    return None


def _by_text(head: bytes) -> tuple[str, str] | None:
    if head.startswith(b"\xef\xbb\xbf") and is_frame_header(head[3:]):
        return (
            "a TFRecord file with a UTF-8 byte order mark in front, which a tool for text put there",
            _BINARY,
        )
    first = head[: 4 * HEADER_BYTES]
    if is_frame_header(first.replace(b"\r\n", b"\n")):
        return (
            "a TFRecord file whose line ends were converted from \\n to \\r\\n by a transfer as text",
            _BINARY,
        )
    try:
        if is_frame_header(base64.b64decode(head[:16], validate=True)):
            return "a TFRecord file in base64", "decode it first"
    except binascii.Error:
        pass
    text = first.decode("utf-8", "ignore")[:HEADER_BYTES]
    if text.isascii() or len(text) < HEADER_BYTES:
        return None
    if all(ord(char) < 256 for char in text) and is_frame_header(text.encode("latin-1")):
        return "a TFRecord file that was read as Latin-1 text and written as UTF-8", _BINARY
    if head[:8].count(b"\x00") >= 4 and _REPLACEMENT in first:
        return (
            "data that was read as text and written again, with U+FFFD for every byte that is not text",
            _BINARY,
        )
    return None


def _level_db(head: bytes) -> tuple[str, str] | None:
    """Recognise the log of LevelDB and RocksDB, which has the same masked CRC32C but over other bytes."""
    if len(head) < 7:
        return None
    length = int.from_bytes(head[4:6], "little")
    if 1 <= head[6] <= 4 and length <= len(head) - 7:
        covered = head[6 : 7 + length]
        if masked_crc32c(covered) == int.from_bytes(head[:4], "little"):
            return "a log of LevelDB or RocksDB", "read it with its own library"
    return None
