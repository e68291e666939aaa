"""Single flipped bits of frames, found from the checksums alone and put right.

How, and what is promised, is told in ``crates/shardkeep-core/src/crc_repair.rs``.
"""

from __future__ import annotations

from shardkeep._core import find_flipped_bit, mend_frame
from shardkeep.tfrecord.frame import HEADER, HEADER_BYTES

__all__ = ["mended_frame", "mended_length"]


def mended_frame(frame: bytes) -> tuple[bytes, str] | None:
    """Return a frame with one flipped bit in its header or one behind it, or both, put right.

    Parameters
    ----------
    frame : bytes
        Header, payload and footer, cut where the next frame starts.

    Returns
    -------
    (bytes, str) or None
        The whole frame and which bits they were. None if nothing is wrong, if more than that is, or if the
        payload is longer than 1 MiB: there arbitrary damage looks like a flipped bit too often.

    Examples
    --------
    >>> from shardkeep.tfrecord.frame import HEADER
    >>> from shardkeep._core import masked_crc32c
    >>> length = HEADER.pack(3, masked_crc32c(HEADER.pack(3, 0)[:8]))
    >>> damaged = length + b"abs" + masked_crc32c(b"abc").to_bytes(4, "little")
    >>> mended_frame(damaged)[1]
    'bit 4 of byte 2 of the payload was flipped'
    """
    return mend_frame(frame)


def mended_length(header: bytes) -> int | None:
    """Return the payload length of a header with one flipped bit; None if that is not what is wrong with it.

    Parameters
    ----------
    header : bytes
        12 bytes, whose checksum does not match.
    """
    if len(header) != HEADER_BYTES:
        return None
    length, stored = HEADER.unpack(header)
    flip = find_flipped_bit(header[:8], stored)
    if flip is None:
        return None
    field, bit = flip
    return int(length) ^ (1 << bit if field == "data" else 0)
