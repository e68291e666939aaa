"""Images of two-dimensional parts of a dataset, as PNG."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from typing import Any

import numpy as np

from shardkeep.viewer.hdf5.child.values import Values

__all__ = ["can_show", "picture_of"]

_SIDE = 1024
_MOST_BYTES = 32 * 1024 * 1024


def can_show(values: Values) -> int:
    """Return how many images a dataset has; 0 for one that has none."""
    if values.dtype.kind not in "iufb" or len(values.shape) < 2 or not math.prod(values.shape):
        return 0
    return math.prod(values.shape[: -3 if _has_colours(values) else -2])


def picture_of(values: Values, index: int) -> dict[str, Any]:
    """Return one image.

    Parameters
    ----------
    values : Values
    index : int
        Number of the image, counted over all axes before its own.

    Returns
    -------
    dict
        ``png`` as base64 text, its size, the shape of the values, the step between those that are shown, and
        the values of black and white.
    """
    depth = 3 if _has_colours(values) else 2
    leading, plane = values.shape[:-depth], values.shape[-depth:]
    index = min(index, math.prod(leading) - 1)
    step = max(1, math.ceil(max(plane[:2]) / _SIDE))
    at = [slice(int(one), int(one) + 1, 1) for one in np.unravel_index(index, leading)] if leading else []
    inner = [slice(0, n, 1) for n in plane]
    # Steps within HDF5 take long for each value: small planes are read whole.
    is_large = math.prod(plane) * values.dtype.itemsize > _MOST_BYTES
    if is_large:
        inner[:2] = [slice(0, n, step) for n in plane[:2]]
    found = np.reshape(values.read(*at, *inner), [len(range(0, one.stop, one.step)) for one in inner])
    if not is_large:
        found = found[::step, ::step]
    pixels, low, high = (found, 0, 255) if found.dtype == np.uint8 else _grey(found)
    return {
        "png": base64.b64encode(_png(pixels)).decode(),
        "width": pixels.shape[1],
        "height": pixels.shape[0],
        "shape": list(plane),
        "step": step,
        "low": low,
        "high": high,
        "index": index,
        "position": [one.start for one in at],
        "is_coloured": depth == 3,
    }


def _has_colours(values: Values) -> bool:
    return len(values.shape) >= 3 and values.shape[-1] in (3, 4) and values.dtype == np.uint8


def _grey(found: Any) -> tuple[Any, float, float]:
    """Return pixels, and the values of black and white; pixels that are not finite are transparent."""
    numbers = found.astype(np.float64)
    is_finite = np.isfinite(numbers)
    if not is_finite.any():
        return np.zeros((*numbers.shape, 2), np.uint8), 0.0, 0.0
    low, high = float(numbers[is_finite].min()), float(numbers[is_finite].max())
    scaled = np.where(is_finite, (numbers - low) / ((high - low) or 1.0), 0.0)
    grey = (scaled * 255).astype(np.uint8)
    if is_finite.all():
        return grey, low, high
    return np.stack([grey, is_finite.astype(np.uint8) * 255], axis=-1), low, high


def _png(pixels: Any) -> bytes:
    height, width = pixels.shape[:2]
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    rows = pixels.reshape(height, width * channels)
    # Each row begins with the number of its filter: none.
    data = np.hstack([np.zeros((height, 1), np.uint8), rows]).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(data, 1)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )
