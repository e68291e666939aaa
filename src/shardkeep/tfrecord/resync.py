"""Where the records go on behind damage.

TFRecord has no marks between its records. What it has is two checksums of 32 bits in each: a place
where both hold is a record, and is one by chance once in 2^64 places. (Unless a payload is itself a TFRecord
file: event files have none of that.)
"""

from __future__ import annotations

import os

import numpy as np

from shardkeep._core import masked_crc32c
from shardkeep.tfrecord.frame import (
    FOOTER_BYTES,
    HEADER_BYTES,
    OVERHEAD_BYTES,
    checked_length,
    read_at,
)

__all__ = ["next_frame"]

_BLOCK_BYTES = 1 << 20
_NO_LENGTH = masked_crc32c(bytes(8))


def next_frame(fd: int, offset_bytes: int) -> int | None:
    """Return where the first whole record behind the damaged one at `offset_bytes` begins.

    Parameters
    ----------
    fd : int
        An uncompressed file, opened for reading.
    offset_bytes : int
        Where the damage is. If the length there is right, the place behind that many bytes is tried
        first: a damaged payload costs one record and is not searched.

    Returns
    -------
    int or None
        An offset in bytes; None if there is no whole record in the rest of the file.

    Notes
    -----
    A search goes over every byte: some 300 MB/s, a few MB/s through arrays of small integers, which look
    like lengths.
    """
    size = os.fstat(fd).st_size
    header = os.pread(fd, HEADER_BYTES, offset_bytes)
    length = checked_length(header) if len(header) == HEADER_BYTES else None
    if length is not None:
        behind = offset_bytes + OVERHEAD_BYTES + length
        if behind == size:
            return None
        # The length may be any number of 64 bits, more than a place in a file can be.
        if behind < size and _is_whole(fd, behind, size):
            return behind
    at = offset_bytes + 1
    while size - at >= OVERHEAD_BYTES:
        block = read_at(fd, _BLOCK_BYTES + HEADER_BYTES - 1, at)
        places = len(block) - HEADER_BYTES + 1
        if places <= 0:
            return None
        # A header may stand at any byte: overlapping views, one a byte further than the other.
        lengths = np.ndarray((places,), "<u8", block, 0, (1,))
        sums = np.ndarray((places,), "<u4", block, 8, (1,))
        # Nearly all places claim more than there is; in a hole all claim nothing, with a wrong checksum.
        likely = (lengths <= size - at) & ((lengths != 0) | (sums == _NO_LENGTH))
        for place in np.flatnonzero(likely):
            if _is_whole(fd, at + int(place), size, block[place : place + HEADER_BYTES]):
                return at + int(place)
        at += places
    return None


def _is_whole(fd: int, offset_bytes: int, size: int, header: bytes | None = None) -> bool:
    if header is None:
        header = os.pread(fd, HEADER_BYTES, offset_bytes)
    length = checked_length(header) if len(header) == HEADER_BYTES else None
    if length is None or offset_bytes + OVERHEAD_BYTES + length > size:
        return False
    rest = read_at(fd, length + FOOTER_BYTES, offset_bytes + HEADER_BYTES)
    return masked_crc32c(rest[:-FOOTER_BYTES]) == int.from_bytes(rest[-FOOTER_BYTES:], "little")
