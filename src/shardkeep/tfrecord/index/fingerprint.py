"""Fingerprints that connect an index with the content of its shard.

A fingerprint holds size, modification time, and checksums of a few blocks. The offsets of the blocks depend
on the size alone, so the fingerprint of a file that grew can be compared over its old part.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardkeep._core import crc32c, masked_crc32c
from shardkeep.tfrecord.format.frame import HEADER_BYTES, OVERHEAD_BYTES

__all__ = [
    "SAMPLES",
    "Blocks",
    "Fingerprint",
    "frames_fit",
    "header_of",
    "sample_blocks",
]

Blocks = list[tuple[int, bytes]]
"""Offset in bytes and content of each sampled block."""

SAMPLES = 8
_SAMPLE_BYTES = 4096


@dataclass(frozen=True)
class Fingerprint:
    """Fingerprint of a file, or of the first `size_bytes` of a file that has grown.

    Attributes
    ----------
    size_bytes : int
    mtime_ns : int
        Modification time in nanoseconds since the epoch, as in `os.stat`.
    samples : tuple of int
        CRC32C of each sampled block: `SAMPLES` of them, evenly spread, the first at the head and the last
        at the tail. A small file has as many samples as whole blocks fit in it, at least one.
    """

    size_bytes: int
    mtime_ns: int
    samples: tuple[int, ...]


def sample_blocks(fd: int, size_bytes: int, mtime_ns: int) -> tuple[Fingerprint, Blocks]:
    """Read the sampled blocks of the first `size_bytes` of an open file.

    Returns
    -------
    Fingerprint
    list of (offset in bytes, bytes)
        The blocks, for `frames_fit`.
    """
    blocks = [(at, os.pread(fd, _SAMPLE_BYTES, at)[: size_bytes - at]) for at in _block_offsets(size_bytes)]
    return Fingerprint(size_bytes, mtime_ns, tuple(crc32c(block) for _, block in blocks)), blocks


def frames_fit(starts: npt.NDArray[np.uint64], blocks: Blocks) -> bool:
    """Return True if the headers in the sampled blocks have the offsets and lengths of the index.

    The first header of each block is compared. A header holds the checksum of its length, so a wrong offset
    passes with a probability of about 2^-32.
    """
    if len(starts) < 2:
        return True
    firsts = starts[:-1].searchsorted(np.array([at for at, _ in blocks], np.uint64))
    firsts = firsts[firsts < len(starts) - 1]
    # This leaves out blocks after the start of the last frame.
    begins, ends = starts[firsts].tolist(), starts[firsts + 1].tolist()
    for (at, block), start, end in zip(blocks, begins, ends, strict=False):
        header = block[start - at : start - at + HEADER_BYTES]
        if len(header) == HEADER_BYTES and header != header_of(end - start):
            return False
    return True


def header_of(frame_bytes: int) -> bytes:
    """Return the header of a frame that is `frame_bytes` long from its start to the next one's."""
    length = (frame_bytes - OVERHEAD_BYTES).to_bytes(8, "little")
    return length + masked_crc32c(length).to_bytes(4, "little")


def _block_offsets(size_bytes: int) -> list[int]:
    blocks = min(SAMPLES, max(size_bytes // _SAMPLE_BYTES, 1))
    if blocks == 1:
        return [0]
    return [i * (size_bytes - _SAMPLE_BYTES) // (blocks - 1) for i in range(blocks)]
