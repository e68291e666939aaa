"""The superblock (version 3) of an HDF5 file, without the flag that says a writer has it open.

HDF5 sets that flag while a file is open for writing, and then refuses to open it for reading. Here
each commit is whole, so the flag would only keep readers out. Format: HDF5 File Format
Specification 3.0, section II.A; the checksum is Jenkins' lookup3 (``hashlittle``, 2006).
"""

from __future__ import annotations

__all__ = ["SUPERBLOCK_BYTES", "lookup3", "without_flags"]

SUPERBLOCK_BYTES = 48
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_FLAGS = 11
_MASK = 0xFFFFFFFF


def without_flags(block: bytes) -> bytes:
    """Return the 48 bytes with no consistency flag and the checksum that belongs to them."""
    if len(block) != SUPERBLOCK_BYTES or block[:9] != _SIGNATURE + b"\x03":
        raise ValueError("not a superblock of version 3")
    changed = bytearray(block[:44])
    changed[_FLAGS] = 0
    return bytes(changed) + lookup3(bytes(changed)).to_bytes(4, "little")


def lookup3(data: bytes) -> int:
    """Return Jenkins' hash of some bytes, as HDF5 uses it.

    Examples
    --------
    >>> hex(lookup3(b"Four score and seven years ago"))  # the example in lookup3.c
    '0x17770551'
    """
    a = b = c = (0xDEADBEEF + len(data)) & _MASK
    if not data:
        return c
    while len(data) > 12:
        a, b, c = (
            (x + int.from_bytes(data[i : i + 4], "little")) & _MASK for x, i in ((a, 0), (b, 4), (c, 8))
        )
        a, b, c = _mix(a, b, c)
        data = data[12:]
    data = data.ljust(12, b"\0")
    a, b, c = ((x + int.from_bytes(data[i : i + 4], "little")) & _MASK for x, i in ((a, 0), (b, 4), (c, 8)))
    for shift_c, shift_a, shift_b in ((14, 11, 25), (16, 4, 14)):
        c = ((c ^ b) - _rotate(b, shift_c)) & _MASK
        a = ((a ^ c) - _rotate(c, shift_a)) & _MASK
        b = ((b ^ a) - _rotate(a, shift_b)) & _MASK
    return ((c ^ b) - _rotate(b, 24)) & _MASK


def _mix(a: int, b: int, c: int) -> tuple[int, int, int]:
    for first, second, third in ((4, 6, 8), (16, 19, 4)):
        a = ((a - c) & _MASK) ^ _rotate(c, first)
        c = (c + b) & _MASK
        b = ((b - a) & _MASK) ^ _rotate(a, second)
        a = (a + c) & _MASK
        c = ((c - b) & _MASK) ^ _rotate(b, third)
        b = (b + a) & _MASK
    return a, b, c


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _MASK
