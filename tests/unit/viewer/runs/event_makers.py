"""Event files as PyTorch writes them."""

from __future__ import annotations

import pathlib
import struct
from collections.abc import Iterable

from shardkeep.tfrecord import Writer

__all__ = ["write_events"]


def write_events(path: pathlib.Path, values: Iterable[tuple[str, int, float]]) -> None:
    """Write an event file with scalars: tag, step and value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with Writer(path) as writer:
        writer.write(b"\x09" + struct.pack("<d", 1.7e9) + b"\x1a\x0dbrain.Event:2")
        for one in values:
            writer.write(_event(*one))


def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def _event(tag: str, step: int, value: float) -> bytes:
    name = tag.encode()
    scalar = b"\x0a" + bytes([len(name)]) + name + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(scalar)]) + scalar
    return (
        b"\x09"
        + struct.pack("<d", 1.7e9)
        + b"\x10"
        + _varint(step)
        + b"\x2a"
        + bytes([len(summary)])
        + summary
    )
