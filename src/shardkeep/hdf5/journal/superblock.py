"""The superblock (version 3) of an HDF5 file, without the flag that says a writer has it open.

HDF5 sets that flag while a file is open for writing, and then refuses to open it for reading. Here
each commit is whole, so the flag would only keep readers out. Format: HDF5 File Format
Specification 3.0, section II.A; the checksum is Jenkins' lookup3 (``hashlittle``, 2006).
"""

from __future__ import annotations

from shardkeep._core import lookup3

__all__ = ["SUPERBLOCK_BYTES", "without_flags"]

SUPERBLOCK_BYTES = 48
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_FLAGS = 11


def without_flags(block: bytes) -> bytes:
    """Return the 48 bytes with no consistency flag and the checksum that belongs to them."""
    if len(block) != SUPERBLOCK_BYTES or block[:9] != _SIGNATURE + b"\x03":
        raise ValueError("not a superblock of version 3")
    changed = bytearray(block[:44])
    changed[_FLAGS] = 0
    return bytes(changed) + lookup3(bytes(changed)).to_bytes(4, "little")
