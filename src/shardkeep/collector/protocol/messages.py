"""Messages between clients and the collector: frames of fixed binary headers, JSON, and rows.

::

    frame 0   "SK" | u8 version | u8 kind | u32 parts | u64 sequence | u64 value
    frame 1   JSON; or, of a batch, the table of its parts
    frame 2…  of a batch: the rows of each part that is not in shared memory

    a part    u16 bytes of the name | u8 flags | u8 0 | u32 rows | u64 bytes | u64 offset in the slots | name

Nothing is unpickled. A message that is not valid raises `BadMessage`, before anything is allocated.
"""

from __future__ import annotations

import enum
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardkeep import errors
from shardkeep.errors import CollectorError, InternalError, ShardkeepError
from shardkeep.files.durable import durability_error

__all__ = [
    "BadMessage",
    "Kind",
    "Message",
    "Part",
    "error_data",
    "error_from",
    "pack",
    "pack_parts",
    "parse_json",
    "unknown_error",
    "unpack",
    "unpack_parts",
    "unpack_table",
]

_VERSION = 1
_HEADER = struct.Struct("<2sBBIQQ")
_PART = struct.Struct("<HBBIQQ")
_MAGIC = b"SK"
_MOST_FRAMES = 4096
# The longest name takes 64 KiB, each byte of it six characters at most; HDF5 keeps 64 KiB of a type.
_LONGEST_JSON = 1 << 20
_MOST_JSON_VALUES = 1 << 17

IN_SLOTS = 1
KEYED = 2
VALUE = 4


class BadMessage(ValueError):
    """An error about bytes that are not a message of this protocol."""


class Kind(enum.IntEnum):
    """The kind of a message; the fields of its header in brackets."""

    # From clients.
    HELLO = 1  # the client and its process [sequence: the oldest batch that it still has]
    DECLARE = 2  # a dataset [value: request; parts: 1 if rows of this schema may be under way]
    BATCH = 3  # rows [sequence; value: bytes that count against the credit]
    FLUSH = 4  # request to commit [sequence: up to this batch; value: 1 if only to make room]
    BYE = 5  # the client leaves [sequence: its last batch]
    PING = 6
    WANT = 7  # request for credit [value: bytes that the next batch takes]
    GIVE_BACK = 8  # unused credit is returned [value: bytes sent in all]
    SLOTS = 9  # request for shared memory; also the answer
    # From the collector.
    WELCOME = 64
    DECLARED = 65  # [value: request]
    REFUSED = 66  # an error [value: request, sequence: batch; both 0: the collector as a whole]
    STATE = 67  # [sequence: durable up to this batch; value: limit of bytes in all; parts: GIVE_BACKs]
    UNKNOWN = 68  # the client must send HELLO (again)
    STOPPING = 69  # the client must send its rows and leave
    RECALL = 70  # the client must give its credit back
    GOODBYE = 71  # answer to BYE


@dataclass(frozen=True, slots=True)
class Message:
    """One message; `frames` are the frames after the header."""

    kind: Kind
    sequence: int
    value: int
    parts: int
    frames: Sequence[Any]

    def json(self) -> dict[str, Any]:
        """Return the JSON of frame 1."""
        if len(self.frames) != 1 or len(self.frames[0]) > _LONGEST_JSON:
            raise BadMessage(f"{self.kind.name} without one frame of JSON")
        try:
            return parse_json(bytes(self.frames[0]), _MOST_JSON_VALUES)
        except ValueError as error:
            raise BadMessage(f"{self.kind.name} with JSON that is not valid ({error})") from None


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one dataset in a batch.

    Attributes
    ----------
    offset : int or None
        Offset of the rows in shared memory; None if they are in a frame.
    keyed : bool
        Whether the row numbers (int64) precede the rows.
    is_value : bool
        Whether it is a value or an attribute (`shardkeep.collector.protocol.values`).
    """

    name: str
    rows: int
    bytes: int
    offset: int | None = None
    keyed: bool = False
    is_value: bool = False


def parse_json(text: bytes, most_values: int) -> dict[str, Any]:
    """Return the object in JSON from an untrusted sender.

    Raises
    ------
    ValueError
        It is not a JSON object, or has more than `most_values`: a value of two bytes takes 100 in Python.
    """
    if sum(text.count(mark) for mark in (b",", b"[", b"{")) > most_values:
        raise ValueError(f"more than {most_values:,} values")
    try:
        data = json.loads(text)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    if not isinstance(data, dict):
        raise ValueError("not an object")
    return data


def pack(kind: Kind, *, sequence: int = 0, value: int = 0, parts: int = 0, data: Any = None) -> list[Any]:
    """Return the frames of a message; `data` goes out as JSON."""
    header = _HEADER.pack(_MAGIC, _VERSION, kind, parts, sequence, value)
    return [header] if data is None else [header, json.dumps(data).encode()]


def unpack(frames: Sequence[Any]) -> Message:
    """Read a message; raises `BadMessage` if it is not valid."""
    if not frames or len(frames) > _MOST_FRAMES or len(frames[0]) != _HEADER.size:
        raise BadMessage("no header of this protocol")
    magic, version, kind, parts, sequence, value = _HEADER.unpack(frames[0])
    if magic != _MAGIC:
        raise BadMessage("no header of this protocol")
    if version != _VERSION:
        raise BadMessage(
            f"version {version} of the protocol, not {_VERSION}: use one version of Shardkeep everywhere"
        )
    try:
        return Message(Kind(kind), sequence, value, parts, frames[1:])
    except ValueError:
        raise BadMessage(f"a message of unknown kind {kind}") from None


def pack_parts(parts: Sequence[Part]) -> bytes:
    """Return the table of the parts of a batch."""
    pieces = []
    for part in parts:
        name = part.name.encode()
        flags = (IN_SLOTS if part.offset is not None else 0) | (KEYED if part.keyed else 0)
        flags |= VALUE if part.is_value else 0
        pieces.append(_PART.pack(len(name), flags, 0, part.rows, part.bytes, part.offset or 0))
        pieces.append(name)
    return b"".join(pieces)


def unpack_table(table: bytes, count: int) -> list[Part]:
    """Return the parts in the table of a batch; raises `BadMessage` if it is not valid."""
    if count > _MOST_FRAMES:
        raise BadMessage(f"a batch of {count} parts")
    found = []
    offset = 0
    try:
        for _ in range(count):
            size, flags, _, rows, length, place = _PART.unpack_from(table, offset)
            offset += _PART.size
            name = table[offset : offset + size].decode()
            offset += size
            where = place if flags & IN_SLOTS else None
            found.append(Part(name, rows, length, where, bool(flags & KEYED), bool(flags & VALUE)))
    except (struct.error, UnicodeDecodeError):
        raise BadMessage("a batch whose table is cut off") from None
    if offset != len(table):
        raise BadMessage("a batch whose table is longer than its parts")
    return found


def unpack_parts(message: Message) -> list[tuple[Part, Any]]:
    """Return the parts of a batch, each with its frame (None if it is in shared memory).

    Raises
    ------
    BadMessage
        Names, lengths and frames do not add up.
    """
    if not message.frames:
        raise BadMessage("a batch without a table")
    parts = unpack_table(bytes(message.frames[0]), message.parts)
    frames = message.frames[1:]
    if len(frames) != sum(part.offset is None for part in parts):
        raise BadMessage("a batch whose table does not fit its frames")
    rest = iter(frames)
    found = [(part, None if part.offset is not None else next(rest)) for part in parts]
    for part, frame in found:
        if frame is not None and len(frame) != part.bytes:
            raise BadMessage(f"a frame of {len(frame)} bytes that should have {part.bytes}")
    return found


def error_data(error: Exception) -> dict[str, Any]:
    """Return the JSON of REFUSED for an error."""
    return {"error": type(error).__name__, "text": str(error)}


def error_from(data: dict[str, Any], path: str | None = None) -> ShardkeepError:
    """Return the error of which `error_data` made the JSON; a `CollectorError` for an unknown class."""
    kind = getattr(errors, str(data.get("error")), None)
    if not (isinstance(kind, type) and issubclass(kind, ShardkeepError)):
        kind = CollectorError
    return kind(str(data.get("text")), path=path)


def unknown_error(error: Exception, path: str) -> ShardkeepError:
    """Return a `ShardkeepError` for an error after which the state of the file in memory is unknown."""
    if isinstance(error, OSError):
        return durability_error("write", path, error)
    return InternalError(f"unexpected error in the collector ({type(error).__name__}: {error})")
