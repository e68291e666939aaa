"""Salvage of compressed TFRecord files.

``crates/shardkeep-core/src/record/compressed_salvage`` describes the method.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from shardkeep import _core
from shardkeep.files.durable import durably
from shardkeep.files.kinds.kind import identify, require_kind
from shardkeep.files.publish import Exists, publish_raw
from shardkeep.jobs.salvage.report import MOST_PARTS, NothingKeptError, RepairedFile, RepairedPart, shortened
from shardkeep.tfrecord.format.file_kind import may_hold_records

__all__ = ["salvage_compressed"]

_STEP_BYTES = 16 << 20
_LEVEL = 6


def salvage_compressed(
    path: str, output: str | None, *, exists: Exists = "fail", tick: Callable[[int], None]
) -> RepairedFile:
    """Write every whole record of a damaged compressed file, and those with one flipped bit, into a new file.

    The file has gzip, zlib or zstd compression, as the new one; see `shardkeep.jobs.salvage`. Byte ranges of
    the report are those of compressed bytes, where they are known.

    Raises
    ------
    FormatError
        The file is of another kind.
    ExistsError, NotFoundError, DurabilityError
        As `shardkeep.files.publish`.
    """
    kind = identify(path)
    content = kind.described.partition("; inside is ")[2] or kind.described
    if kind.name != "tfrecord" and not may_hold_records(replace(kind, described=content)):
        require_kind(path, "tfrecord", found=kind)
    salvage = _core.CompressedSalvage(path, kind.compression or _core.sniff_compression(path))
    if output is None:
        _advance(salvage, None, tick)
    else:
        with suppress(NothingKeptError), publish_raw(output, exists=exists) as file:
            writer = _core.FrameWriter(file.fileno(), output, compression=salvage.compression, level=_LEVEL)
            with durably("write", output):
                _advance(salvage, writer, tick)
                writer.finish()
            if not salvage.records:
                raise NothingKeptError
    parts = _parts(salvage)
    return RepairedFile(
        path, output if salvage.records else None, "tfrecord", os.path.getsize(path), tuple(parts)
    )


def _advance(
    salvage: _core.CompressedSalvage, writer: _core.FrameWriter | None, tick: Callable[[int], None]
) -> None:
    done_bytes, is_going = 0, True
    while is_going:
        is_going = salvage.advance(_STEP_BYTES, writer)
        # The search for the next place may begin before the end of the last step.
        position_bytes = max(done_bytes, salvage.position_bytes)
        tick(position_bytes - done_bytes)
        done_bytes = position_bytes


def _parts(salvage: _core.CompressedSalvage) -> list[RepairedPart]:
    parts = shortened(
        RepairedPart(outcome, reason, items, start, _size(start, stop), record)
        for outcome, reason, items, start, stop, record in salvage.parts()
    )
    rest = [replace(one, offset_bytes=None, bytes=None) for one in parts[MOST_PARTS:]]
    return parts[:MOST_PARTS] + rest


def _size(start: int | None, stop: int | None) -> int | None:
    return None if start is None or stop is None else stop - start
