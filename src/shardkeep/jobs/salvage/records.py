"""Salvage of uncompressed TFRecord files and event files.

``crates/shardkeep-core/src/record/salvage`` describes the method.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from shardkeep._core import RecordSalvage
from shardkeep.files.kinds.kind import identify, require_kind
from shardkeep.files.publish import Exists, publish_raw
from shardkeep.files.writeback import Writeback
from shardkeep.jobs.salvage.report import RepairedFile, RepairedPart, shortened

__all__ = ["salvage_records"]

_STEP_BYTES = 64 << 20
_BUFFER_BYTES = 4 << 20
_PARTS_AT_ONCE = 4096
# In the first record of an event file.
_EVENT_VERSION = b"brain.Event:"


def salvage_records(
    path: str, output: str | None, *, exists: Exists = "fail", tick: Callable[[int], None]
) -> RepairedFile:
    """Write every whole record of a damaged file, and every one with one flipped bit, into a new file.

    The file has uncompressed records or events; see `shardkeep.jobs.salvage`. The parts of the report cover
    the file, in its order.

    Raises
    ------
    FormatError
        The file is of another kind.
    CorruptDataError
        The file changes while it is read.
    ExistsError, NotFoundError, DurabilityError
        As `shardkeep.files.publish`.
    """
    kind = identify(path)
    if not kind.may_be_damaged_records:
        require_kind(path, "tfrecord", found=kind)
    salvage = RecordSalvage(path)
    while size_bytes := salvage.advance(_STEP_BYTES):
        tick(size_bytes)
    parts = shortened(_parts(salvage))
    if "tfevents" in os.path.basename(path) and parts and parts[0].outcome == "lost":
        parts[0] = _without_version(path, parts)
    if output is None or all(part.outcome == "lost" for part in parts):
        output = None
    else:
        _publish(salvage, output, exists, tick)
    return RepairedFile(path, output, "tfrecord", os.path.getsize(path), tuple(parts))


def _publish(salvage: RecordSalvage, output: str, exists: Exists, tick: Callable[[int], None]) -> None:
    buffer = bytearray(_BUFFER_BYTES)
    room = np.frombuffer(buffer, np.uint8)
    with (
        publish_raw(output, exists=exists) as file,
        Writeback(file, output) as writeback,
        memoryview(buffer) as view,
    ):
        while count := salvage.read_into(room):
            file.write(view[:count])
            writeback.wrote()
            tick(0)


def _parts(salvage: RecordSalvage) -> Iterator[RepairedPart]:
    for first in range(0, salvage.part_count, _PARTS_AT_ONCE):
        last = min(first + _PARTS_AT_ONCE, salvage.part_count)
        yield from (RepairedPart(*part) for part in salvage.parts(first, last))


def _without_version(path: str, parts: list[RepairedPart]) -> RepairedPart:
    """Return the lost first part of an event file; its reason names the file version, if that is lost."""
    first = next((part for part in parts if part.outcome != "lost"), None)
    if first is not None and first.offset_bytes is not None:
        with open(path, "rb") as file:
            file.seek(first.offset_bytes)
            if _EVENT_VERSION in file.read(256):
                return parts[0]
    reason = f"{parts[0].reason}, with the file version of the event file"
    return replace(parts[0], reason=reason)
