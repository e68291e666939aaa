"""The part of the protocol-buffer wire format that event files need.

Examples by the million are parsed in Rust (``crates/shardkeep-core/src/example/wire.rs``). Event files
have some hundred thousand messages of many kinds, few of which matter, and a table of field numbers in
Python is easier to read and to extend. Format: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["WireError", "fields", "signed", "varint"]

_DEEPEST_GROUP = 100


class WireError(ValueError):
    """Bytes that are not a protocol-buffer message; the caller adds file and record."""


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Iterate over the fields of the message ``data[at:end]``.

    Yields
    ------
    (tag, a, b) : int
        The tag is ``field_number << 3 | wire_type``, so that a field of an unexpected type never matches.
        ``data[a:b]`` is the content of a fixed-width or length-delimited field; of a varint `a` is the value,
        unsigned.

    Raises
    ------
    WireError
        The message is not valid.
    """
    try:
        while at < end:
            tag = data[at]
            at += 1
            if tag > 0x7F:
                tag, at = varint(data, at - 1)
            wire = tag & 7
            if wire == 2:
                size = data[at]
                at += 1
                if size > 0x7F:
                    size, at = varint(data, at - 1)
                stop = at + size
                if stop > end:
                    break
                yield tag, at, stop
                at = stop
            elif wire == 0:
                value = data[at]
                at += 1
                if value > 0x7F:
                    value, at = varint(data, at - 1)
                if at > end:
                    break
                yield tag, value, 0
            elif wire == 1 or wire == 5:
                stop = at + (8 if wire == 1 else 4)
                if stop > end:
                    break
                yield tag, at, stop
                at = stop
            elif wire == 3:
                at = _end_of_group(data, at, end, tag)
            else:
                raise WireError(f"wire type {wire} is not valid at byte {at - 1}")
            if tag < 8:
                raise WireError("field number 0 is not valid")
        else:
            return
    except IndexError:
        pass
    raise WireError("a field runs past the end of its message")


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the varint at `at` (64 bits, unsigned) and its end."""
    value = 0
    for shift, byte in zip(range(0, 70, 7), data[at : at + 10], strict=False):
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at + shift // 7 + 1
    raise WireError("a varint does not end")


def signed(value: int) -> int:
    """Convert an unsigned 64-bit number to signed: int32 and int64 fields use two's complement."""
    return value - (1 << 64) if value >> 63 else value


def _end_of_group(data: bytes, at: int, end: int, tag: int) -> int:
    """Return the end of the group after its opening `tag`."""
    open_tags = [tag]
    while open_tags:
        if len(open_tags) > _DEEPEST_GROUP or at >= end:
            raise WireError("a group has no matching end tag")
        tag, at = varint(data, at)
        wire = tag & 7
        if wire == 3:
            open_tags.append(tag)
        elif wire == 4:
            if open_tags.pop() + 1 != tag:
                raise WireError("a group has no matching end tag")
        elif wire == 0:
            _, at = varint(data, at)
        elif wire == 2:
            size, at = varint(data, at)
            at += size
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise WireError(f"wire type {wire} is not valid in a group")
    return at
