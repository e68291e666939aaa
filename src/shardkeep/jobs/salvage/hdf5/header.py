"""Object headers: those with checksums are of version 2, and their messages say which index chunks have.

HDF5 has checked the checksum of a header when it opened the object; here only the kinds of its messages are
read. Format: HDF5 File Format Specification 4.0, section IV.A.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["is_checked_dataset", "is_checked_group"]

_LAYOUT, _CONTINUATION, _SYMBOL_TABLE = 0x08, 0x10, 0x11
_MOST_BLOCKS = 256
_MOST_BYTES = 1 << 20
# Layouts from version 4 on have indexes with checksums; before, chunks are in a B-tree of version 1.
_CHECKED_LAYOUT = 4
_CHUNKED = 2

Read = Callable[[int, int], bytes]


def is_checked_group(read: Read, address: int) -> bool:
    """Return whether a group, its links included, is covered by checksums."""
    messages = _messages(read, address)
    return messages is not None and _SYMBOL_TABLE not in messages


def is_checked_dataset(read: Read, address: int) -> bool:
    """Return whether type, shape and the places of all chunks of a dataset are covered by checksums."""
    messages = _messages(read, address)
    layout = None if messages is None else messages.get(_LAYOUT)
    if layout is None or len(layout) < 2:
        return False
    return layout[0] >= (_CHECKED_LAYOUT if layout[1] == _CHUNKED else _CHECKED_LAYOUT - 1)


def _messages(read: Read, address: int) -> dict[int, bytes] | None:
    """Return the messages of a header of version 2 by kind, one of each; None for another header."""
    start = read(address, 30)
    if start[:5] != b"OHDR\x02" or len(start) < 30:
        return None
    flags = start[5]
    width = 1 << (flags & 3)
    at = 6 + 16 * (flags >> 5 & 1) + 4 * (flags >> 4 & 1)
    size = int.from_bytes(start[at : at + width], "little")
    head = 6 if flags & 4 else 4
    blocks = [(address + at + width, size)]
    messages: dict[int, bytes] = {}
    for place, length in blocks:
        block = read(place, min(length, _MOST_BYTES))
        while len(block) >= head:
            kind, size = block[0], int.from_bytes(block[1:3], "little")
            body = block[head : head + size]
            messages[kind] = body
            if kind == _CONTINUATION and len(body) == 16 and len(blocks) < _MOST_BLOCKS:
                # After "OCHK", and with a checksum at its end.
                there, many = (int.from_bytes(body[i : i + 8], "little") for i in (0, 8))
                blocks.append((there + 4, many - 8))
            block = block[head + size :]
    return messages
