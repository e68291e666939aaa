"""The encoding of values that are put once, and of attributes.

::

    u32 length of the JSON | JSON | the value, encoded as by `shardkeep.collector.protocol.payload`

    {"put": NAME, …} or {"set": NAME, "on": OBJECT, "if_none": BOOL, …}
    {…, "dtype": TYPE, "shape": SHAPE}          an array or a scalar
    {…, "dtype": TYPE, "shape": null}           h5py.Empty
    {…, "vlen": TYPE, "shape": SHAPE, "lengths": […]}   values of variable length, in one array
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from shardkeep.collector.protocol.messages import parse_json
from shardkeep.collector.protocol.payload import TEXT_BYTES, decode_rows, encode_rows, texts_in
from shardkeep.collector.protocol.schema import checked_count, dtype_from_json, dtype_to_json
from shardkeep.errors import CollectorError, SchemaError
from shardkeep.hdf5.storage.attributes import as_attribute, as_read
from shardkeep.hdf5.storage.dtypes import is_text, vlen_base
from shardkeep.hdf5.storage.names import check_path
from shardkeep.hdf5.storage.rows import as_value

__all__ = ["ROOT", "Value", "pack_attribute", "pack_put", "unpack_value"]

ROOT = "/"

# Memory of a value of variable length without its bytes: an array, and its length twice.
_VLEN_BYTES = 256
# Values in the JSON besides lengths: a type.
_OTHER_VALUES = 1 << 16
_MOST_VALUES = 1 << 40


@dataclass(frozen=True)
class Value:
    """A value that was put once, or an attribute.

    Attributes
    ----------
    name : str
    on : str or None
        The object that has the attribute, "/" for the file; None for a value that was put.
    value : ndarray or h5py.Empty
    dtype : dtype
    if_none : bool
        Whether an existing attribute of that name stays as it is.
    """

    name: str
    on: str | None
    value: Any
    dtype: np.dtype[Any]
    if_none: bool = False


def pack_put(name: str, value: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Encode a value; raises `SchemaError` if HDF5 cannot keep it."""
    check_path(name, "value")
    array = as_value(f"value {name!r}", value)
    return _pack({"put": name}, array, array.dtype)


def pack_attribute(
    name: str, value: Any, on: str, *, if_none: bool = False
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Encode an attribute; raises `SchemaError` if HDF5 cannot keep it."""
    if on != ROOT:
        check_path(on, "group")
    kept, dtype = as_attribute(name, value)
    return _pack({"set": name, "on": on, "if_none": if_none}, kept, dtype)


def unpack_value(data: memoryview, most_bytes: int) -> Value:
    """Decode the bytes of `pack_put` and `pack_attribute`.

    Parameters
    ----------
    data : memoryview
    most_bytes : int
        The memory that the value may take.

    Raises
    ------
    CollectorError
        The bytes are not a valid value.
    SchemaError
        It takes more memory; checked before memory is allocated.

    Examples
    --------
    >>> unpack_value(memoryview(pack_attribute("unit", "nats", "loss")), 1 << 20).on
    'loss'
    """
    try:
        size = int.from_bytes(data[:4], "little")
        head = parse_json(bytes(data[4 : 4 + size]), most_bytes // _VLEN_BYTES + _OTHER_VALUES)
        body = data[4 + size :]
        is_put = "put" in head
        name, on = str(head["put"] if is_put else head["set"]), None if is_put else str(head["on"])
        if_none = not is_put and bool(head.get("if_none", False))
        value, dtype = _unpack(name, head, body, most_bytes)
    except SchemaError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise CollectorError(f"the encoding of a value is not valid ({error})") from None
    return Value(name, on, value, dtype, if_none)


def _pack(head: dict[str, Any], value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    data = b""
    base = vlen_base(dtype)
    if isinstance(value, h5py.Empty):
        head |= {"dtype": dtype_to_json(dtype), "shape": None}
    elif base is not None:
        array = np.asarray(value) if isinstance(value, np.ndarray) and value.dtype.hasobject else _one(value)
        pieces = [np.ascontiguousarray(one, base) for one in array.ravel()]
        head |= {
            "vlen": dtype_to_json(base),
            "shape": list(array.shape),
            "lengths": [len(one) for one in pieces],
        }
        data = b"".join(one.tobytes() for one in pieces)
    else:
        array = np.asarray(value, dtype)
        head |= {"dtype": dtype_to_json(dtype), "shape": list(array.shape)}
        data = encode_rows(array.reshape(-1)).tobytes()
    text = json.dumps(head).encode()
    return np.frombuffer(len(text).to_bytes(4, "little") + text + data, np.uint8)


def _unpack(name: str, head: dict[str, Any], body: memoryview, most_bytes: int) -> tuple[Any, np.dtype[Any]]:
    if head["shape"] is None:
        dtype = dtype_from_json(head["dtype"])
        return h5py.Empty(dtype), dtype
    shape = tuple(checked_count(size, _MOST_VALUES) for size in head["shape"])
    count = math.prod(shape)
    if "vlen" not in head:
        dtype = dtype_from_json(head["dtype"])
        # Before anything is allocated: even text takes 4 bytes for each value.
        if count * min(max(dtype.itemsize, 1), 4) > len(body) and count * dtype.itemsize:
            raise ValueError(f"{len(body)} bytes are not {count} values")
        if dtype.hasobject:
            needed = count * (dtype.itemsize + TEXT_BYTES * texts_in(dtype))
            _check_memory(name, count, len(body) + needed, most_bytes)
        array = decode_rows(body, count, dtype, ()).reshape(shape)
        return (as_read(array) if is_text(dtype) and "set" in head else array), dtype
    _check_memory(name, count, len(body) + count * _VLEN_BYTES, most_bytes)
    base = dtype_from_json(head["vlen"])
    lengths = [checked_count(length, _MOST_VALUES) for length in head["lengths"]]
    if len(lengths) != count or sum(lengths) * base.itemsize != len(body):
        raise ValueError("the sum of the lengths is not the size")
    dtype = h5py.vlen_dtype(base)
    result = np.empty(count, dtype)
    start = 0
    for place, length in enumerate(lengths):
        result[place] = np.frombuffer(body, base, length, start).copy()
        start += length * base.itemsize
    return result.reshape(shape), dtype


def _check_memory(name: str, count: int, needed: int, most_bytes: int) -> None:
    if needed > most_bytes:
        message = f"{name!r}: {count:,} texts or values of variable length take {needed:,} bytes of memory"
        raise SchemaError(f"{message}, of {most_bytes:,} allowed: use a collector with more, or append rows")


def _one(value: Any) -> np.ndarray[Any, Any]:
    result = np.empty((), object)
    result[()] = value
    return result
