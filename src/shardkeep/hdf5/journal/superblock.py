"""The superblock (version 3) of an HDF5 file, without the flag that marks the file as open for writing.

HDF5 refuses to open a file for reading while that flag is set. Here each commit is consistent, so the flag
would only exclude readers. Format: HDF5 File Format Specification 3.0, section II.A.
"""

from __future__ import annotations

from shardkeep._core import lookup3
from shardkeep.files.kinds.kind import HDF5_SIGNATURE

__all__ = ["SUPERBLOCK_BYTES", "refused_flags", "without_flags"]

SUPERBLOCK_BYTES = 48
_FLAGS = 11


def without_flags(block: bytes) -> bytes:
    """Return the 48 bytes of a superblock with its flags cleared, and a valid checksum."""
    if len(block) != SUPERBLOCK_BYTES or block[:9] != HDF5_SIGNATURE + b"\x03":
        raise ValueError("not a superblock of version 3")
    changed = bytearray(block[:44])
    changed[_FLAGS] = 0
    return bytes(changed) + lookup3(bytes(changed)).to_bytes(4, "little")


def refused_flags(block: bytes) -> int:
    """Return the flags of the start of a superblock with which HDF5 refuses to open the file; usually 0.

    Bit 0 marks a file as open for writing, bit 2 for SWMR. Files of versions 0 and 2 open with them.
    """
    return block[_FLAGS] & 5 if block[:9] == HDF5_SIGNATURE + b"\x03" and len(block) > _FLAGS else 0
