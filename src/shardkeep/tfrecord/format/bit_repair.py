"""Correction of single flipped bits of frames, from their checksums alone.

``crates/shardkeep-core/src/record/bit_flip.rs`` describes the method and its guarantees.
"""

from __future__ import annotations

from shardkeep._core import correct_flipped_bits, find_flipped_bit
from shardkeep.tfrecord.format.frame import HEADER, HEADER_BYTES

__all__ = ["corrected_frame", "corrected_length"]


def corrected_frame(frame: bytes) -> tuple[bytes, str] | None:
    """Return a frame after correcting one flipped bit in its header, one after the header, or both.

    Parameters
    ----------
    frame : bytes
        Header, payload and footer, up to the start of the next frame.

    Returns
    -------
    (bytes, str) or None
        The corrected frame and a description of the bits. None if nothing is wrong, if more bits are wrong,
        or if the payload is longer than 1 MiB: in longer payloads arbitrary damage looks like a flipped bit
        too often.

    Examples
    --------
    >>> from shardkeep.tfrecord.format.frame import HEADER
    >>> from shardkeep._core import masked_crc32c
    >>> length = HEADER.pack(3, masked_crc32c(HEADER.pack(3, 0)[:8]))
    >>> damaged = length + b"abs" + masked_crc32c(b"abc").to_bytes(4, "little")
    >>> corrected_frame(damaged)[1]
    'bit 4 of byte 2 of the payload was flipped'
    """
    return correct_flipped_bits(frame)


def corrected_length(header: bytes) -> int | None:
    """Return the payload length of a header with one flipped bit; None for any other header.

    Parameters
    ----------
    header : bytes
        12 bytes with a checksum that does not match.
    """
    if len(header) != HEADER_BYTES:
        return None
    length, stored = HEADER.unpack(header)
    flip = find_flipped_bit(header[:8], stored)
    if flip is None:
        return None
    field, bit = flip
    return int(length) ^ (1 << bit if field == "data" else 0)
