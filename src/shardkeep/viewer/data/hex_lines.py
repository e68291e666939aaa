"""Lines of a hex view, in which header, payload and checksum of each frame are marked."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shardkeep.tfrecord.format.frame import FOOTER_BYTES, HEADER_BYTES, OVERHEAD_BYTES, checked_length
from shardkeep.viewer.data.features import ascii_text
from shardkeep.viewer.data.record_file import RecordFile

__all__ = ["LINE_BYTES", "HexLine", "hex_lines", "marks_of"]

LINE_BYTES = 16


@dataclass(frozen=True)
class HexLine:
    """16 bytes: their offset, runs of bytes of one kind as (kind, hexadecimal digits), and their text."""

    offset: int
    runs: tuple[tuple[str, str], ...]
    text: str


def marks_of(file: RecordFile, at: int, stop: int) -> Callable[[int], str]:
    """Return a function that names the field of a byte in ``[at, stop)``.

    The fields are "header", "payload" and "checksum" of a frame, "damage" for a frame without a valid
    header, and "" where no frame is known.
    """
    edges: list[tuple[int, str]] = [(0, "")]
    with open(file.path, "rb", buffering=0) as raw:
        fd = raw.fileno()
        for start, end in _frames(file, fd, at, stop):
            header = os.pread(fd, HEADER_BYTES, start)
            length = checked_length(header) if len(header) == HEADER_BYTES else None
            if length is None or length + OVERHEAD_BYTES != end - start:
                edges += [(start, "damage"), (end, "")]
            else:
                checksum = end - FOOTER_BYTES
                edges += [(start, "header"), (start + HEADER_BYTES, "payload"), (checksum, "checksum")]
                edges.append((end, ""))
    places = np.array([place for place, _ in edges])
    return lambda offset: edges[int(np.searchsorted(places, offset, side="right")) - 1][1]


def _frames(file: RecordFile, fd: int, at: int, stop: int) -> list[tuple[int, int]]:
    """Return the frames that overlap ``[at, stop)``, as far as they are known."""
    if file.known and at < file.known_bytes:
        return file.frames_between(at, stop)
    found = []
    while at < stop and len(header := os.pread(fd, HEADER_BYTES, at)) == HEADER_BYTES:
        length = checked_length(header)
        if length is None:
            break
        found.append((at, at + length + OVERHEAD_BYTES))
        at = found[-1][1]
    return found


def hex_lines(data: bytes, at: int, field_of: Callable[[int], str]) -> list[HexLine]:
    """Return the lines of some bytes that begin at the offset `at`."""
    lines = []
    for first in range(0, len(data), LINE_BYTES):
        part = data[first : first + LINE_BYTES]
        kinds = itertools.groupby(enumerate(part, at + first), lambda one: field_of(one[0]))
        runs = tuple((kind, bytes(one for _, one in group).hex(" ")) for kind, group in kinds)
        lines.append(HexLine(at + first, runs, ascii_text(part)))
    return lines
