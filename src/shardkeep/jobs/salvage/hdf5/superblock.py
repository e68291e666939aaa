"""Repair of the superblock of an HDF5 file.

The superblock is at byte 0, 512, 1,024, 2,048 and so on, after a user block. Versions 2 and 3 have a checksum
(lookup3 of the bytes before it); versions 0 and 1 have none. Format: HDF5 File Format Specification 4.0,
section II.A.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from shardkeep._core import lookup3
from shardkeep.files.kinds.kind import HDF5_SIGNATURE, resembles_hdf5

__all__ = ["Superblock", "has_signature", "superblocks"]

_UNDEFINED = b"\xff" * 8
_CHECKED_BYTES = 44
_FLAGS = 11
_FIRST_HEADER = {0: 96, 2: 48}


@dataclass(frozen=True)
class Superblock:
    """Bytes of a superblock with which HDF5 may read a file.

    Attributes
    ----------
    offset_bytes : int
        Its place in the file, which is the size of the user block.
    data : bytes
        Empty without a superblock, and without a root group in its usual place.
    changes : tuple of str
        What differs from the superblock of the file.
    is_made : bool
        True if nothing of it is from the file.
    is_checked : bool
        True if a checksum, or the usual place of the root group, proves its address.
    """

    offset_bytes: int
    data: bytes
    changes: tuple[str, ...] = ()
    is_made: bool = False
    is_checked: bool = True


def superblocks(fd: int, size_bytes: int) -> Iterator[Superblock]:
    """Yield superblocks with which HDF5 may read a file, the one with the fewest changes first.

    The end of address of the last one that has the fields of the file is the end of the file, so that all
    bytes can be read. One that is made from the first object header, where nothing else is left, comes last.
    """
    found = _find(fd, size_bytes)
    if found is not None:
        at, block = found
        known: set[bytes] = set()
        for one in _repaired(at, block, size_bytes):
            if one.data not in known:
                known.add(one.data)
                yield one
    for at in [found[0]] if found else _places(size_bytes):
        made = _made(fd, at, size_bytes)
        if made is not None:
            yield made
            return


def has_signature(fd: int, size_bytes: int) -> bool:
    """Return whether a file is, or was, an HDF5 file by its signature, also if nothing else is left."""
    return _find(fd, size_bytes) is not None


def _places(size_bytes: int) -> Iterator[int]:
    at = 0
    while at < size_bytes:
        yield at
        at = at * 2 or 512


def _find(fd: int, size_bytes: int) -> tuple[int, bytes] | None:
    """Return place and bytes of the superblock, also if its signature is damaged."""
    damaged = None
    for at in _places(size_bytes):
        block = os.pread(fd, 100, at)
        if block.startswith(HDF5_SIGNATURE):
            return at, block
        if damaged is None and resembles_hdf5(block):
            damaged = at, block
    return damaged


def _repaired(at: int, block: bytes, size_bytes: int) -> Iterator[Superblock]:
    if len(block) < 48:
        return
    changes = []
    if not block.startswith(HDF5_SIGNATURE):
        block = HDF5_SIGNATURE + block[8:]
        changes.append("the signature")
    checked, change = _with_checksum(at, block[:48])
    if checked is not None:
        block, end, length = checked, 28, 48
        changes += change
    elif block[8] in (0, 1) and block[13:15] == b"\x08\x08":
        end, length = 40 + 4 * block[8], 96 + 4 * block[8]
    elif block[8] in (2, 3) and block[9:11] == b"\x08\x08":
        end, length = 28, 48
        changes.append("its checksum")
    else:
        return
    if len(block) < length:
        return
    data = bytearray(block[:length])
    in_usual_place = data[8] >= 2 and int.from_bytes(data[36:44], "little") == _FIRST_HEADER[2]
    is_checked = checked is not None or in_usual_place
    is_flagged = data[8] >= 2 and data[_FLAGS] != 0
    if is_flagged:
        changes.append(f"the consistency flags {data[_FLAGS]} cleared")
        data[_FLAGS] = 0
    stored_end = int.from_bytes(data[end : end + 8], "little")
    if stored_end <= size_bytes and stored_end > at and not is_flagged:
        yield Superblock(at, _sealed(data), tuple(changes), is_checked=is_checked)
    if stored_end != size_bytes:
        data[end : end + 8] = size_bytes.to_bytes(8, "little")
        changes.append(f"the end of address set from {stored_end:,} to the size of the file, {size_bytes:,}")
    yield Superblock(at, _sealed(data), tuple(changes), is_checked=is_checked)


def _sealed(data: bytearray) -> bytes:
    if data[8] >= 2:
        data[_CHECKED_BYTES:48] = lookup3(bytes(data[:_CHECKED_BYTES])).to_bytes(4, "little")
    return bytes(data)


def _with_checksum(at: int, block: bytes) -> tuple[bytes | None, list[str]]:
    """Return a superblock of version 2 or 3 with a right checksum, and what was changed; None for others.

    A single flipped bit is corrected exactly: no other flip gives the checksum.
    """
    if len(block) < 48:
        return None, []
    if _is_right(block):
        return block, []
    fitting = []
    for bit in range(8 * 8, 8 * 48):
        flipped = bytearray(block)
        flipped[bit // 8] ^= 1 << bit % 8
        if _is_right(bytes(flipped)):
            fitting.append((bytes(flipped), bit))
    if len(fitting) == 1:
        repaired, bit = fitting[0]
        return repaired, [f"bit {bit % 8} of byte {at + bit // 8:,} flipped back"]
    return None, []


def _is_right(block: bytes) -> bool:
    stored = int.from_bytes(block[_CHECKED_BYTES:48], "little")
    return block[8] in (2, 3) and lookup3(block[:_CHECKED_BYTES]) == stored


def _made(fd: int, at: int, size_bytes: int) -> Superblock | None:
    """Return a superblock for the root group where HDF5 writes it: directly after the superblock."""
    base, end = at.to_bytes(8, "little"), size_bytes.to_bytes(8, "little")
    change = ("the superblock was made again from the root group after it",)
    if os.pread(fd, 4, at + _FIRST_HEADER[2]) == b"OHDR":
        root = _FIRST_HEADER[2].to_bytes(8, "little")
        data = bytearray(HDF5_SIGNATURE + b"\x02\x08\x08\0" + base + _UNDEFINED + end + root + bytes(4))
        return Superblock(at, _sealed(data), change, is_made=True)
    header = os.pread(fd, 16, at + _FIRST_HEADER[0])
    # Version 1, a reserved byte, few messages, one reference, and a first message that is a symbol table.
    if header[:2] == b"\x01\0" and header[3:8] == b"\0\x01\0\0\0":
        root = _FIRST_HEADER[0].to_bytes(8, "little")
        numbers = b"\0\0\0\0\0\x08\x08\0\x04\0\x10\0\0\0\0\0"
        entry = bytes(8) + root + bytes(24)
        return Superblock(
            at, HDF5_SIGNATURE + numbers + base + _UNDEFINED + end + _UNDEFINED + entry, change, is_made=True
        )
    return None
