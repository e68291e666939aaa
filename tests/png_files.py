"""PNGs of 16-bit samples in every form that the specification has (https://www.w3.org/TR/png-3/)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np

__all__ = ["deep_png"]

_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
_ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def deep_png(
    samples: np.ndarray, *, interlaced: bool = False, transparent: Sequence[int] | None = None
) -> bytes:
    """Return a PNG of `samples`, uint16 of (height, width, 1 to 4); its rows take turns with the filters.

    `transparent` is the colour that tRNS names.
    """
    height, width, channels = samples.shape
    head = struct.pack(">IIBBBBB", width, height, 16, _COLOR_TYPES[channels], 0, 0, int(interlaced))
    rows = []
    for x, y, across, down in _ADAM7 if interlaced else [(0, 0, 1, 1)]:
        part = samples[y::down, x::across]
        if part.size:
            rows.append(_filtered(part.astype(">u2").view(np.uint8).reshape(len(part), -1), 2 * channels))
    trns = b"" if transparent is None else chunk(b"tRNS", np.asarray(transparent, ">u2").tobytes())
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + trns
        + chunk(b"IDAT", zlib.compress(b"".join(rows)))
        + chunk(b"IEND", b"")
    )


def chunk(kind: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _filtered(rows: np.ndarray, pixel_bytes: int) -> bytes:
    out = bytearray()
    above = np.zeros(rows.shape[1], int)
    for number, row in enumerate(rows.astype(int)):
        left, corner = (np.concatenate([np.zeros(pixel_bytes, int), r[:-pixel_bytes]]) for r in (row, above))
        guess = left + above - corner
        near = np.abs(guess - [left, above, corner]).argmin(axis=0)
        predictions = [0 * row, left, above, (left + above) // 2, np.choose(near, [left, above, corner])]
        out.append(number % 5)
        out += ((row - predictions[number % 5]) % 256).astype(np.uint8).tobytes()
        above = row
    return bytes(out)
