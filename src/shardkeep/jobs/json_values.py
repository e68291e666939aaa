"""Values of NumPy, HDF5 and tf.train.Example as JSON types."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["plain"]


def plain(value: Any) -> Any:
    r"""Return `value` as types that `json.dumps` accepts and every JSON parser reads.

    Arrays and tuples become lists, rows of a compound type dicts, text of fixed length (`numpy.bytes_`) text,
    other bytes base64 text. NaN and the infinities,
    which JSON does not have, become ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``, as in the JSON form of
    Protocol Buffers. Every other value becomes its text.

    Examples
    --------
    >>> plain(np.array([0.1, np.nan], "float32"))
    [0.1, 'NaN']
    >>> plain({"png": b"\x89PNG"})
    {'png': 'iVBORw=='}
    """
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return str(value)  # np.str_ is a subclass of str
    if isinstance(value, float):
        return _plain_float(value)
    if isinstance(value, np.bytes_):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.void) and value.dtype.names is not None:
        return {name: plain(value[name]) for name in value.dtype.names}
    if isinstance(value, np.ndarray) and value.ndim > 0:
        return [plain(item) for item in value]
    if isinstance(value, (np.float16, np.float32)):
        # The shortest decimal that reads back as the same number: 0.1, not 0.10000000149011612.
        return _plain_float(float(str(value)))
    if isinstance(value, np.ndarray) and value.dtype.kind == "S":
        return plain(value[()])
    if isinstance(value, (np.generic, np.ndarray)):
        item = value.item()
        # `item` returns a NumPy scalar for longdouble, and a tuple for a structured scalar.
        return str(item) if isinstance(item, np.generic) else plain(item)
    return str(value)


def _plain_float(number: float) -> float | str:
    if math.isfinite(number):
        return float(number)
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"
