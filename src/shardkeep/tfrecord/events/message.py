"""The scalars of a serialised `tensorflow.Event`, without protobuf.

Field numbers: tensorflow/core/util/event.proto, tensorflow/core/framework/{summary,tensor,tensor_shape,
types}.proto. TensorFlow 1 and PyTorch write ``simple_value``, TensorFlow 2 a tensor of rank 0 whose
metadata name the plugin "scalars".
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from shardkeep._core import WireError, protobuf_fields, protobuf_varint

__all__ = ["Event", "EventParser"]

_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")

# Tags: field number << 3 | wire type (0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes).
_EVENT_WALL_TIME, _EVENT_STEP, _EVENT_VERSION, _EVENT_SUMMARY = 1 << 3 | 1, 2 << 3, 3 << 3 | 2, 5 << 3 | 2
_SUMMARY_VALUE = 1 << 3 | 2
_VALUE_TAG, _VALUE_SIMPLE, _VALUE_TENSOR, _VALUE_METADATA = 1 << 3 | 2, 2 << 3 | 5, 8 << 3 | 2, 9 << 3 | 2
_METADATA_PLUGIN, _PLUGIN_NAME = 1 << 3 | 2, 1 << 3 | 2
_TENSOR_DTYPE, _TENSOR_SHAPE, _TENSOR_CONTENT = 1 << 3, 2 << 3 | 2, 4 << 3 | 2
_SHAPE_DIM, _DIM_SIZE = 2 << 3 | 2, 1 << 3

# DataType -> struct code of an element in tensor_content. DT_BFLOAT16 (14) has no struct code.
_CONTENT = {
    1: "<f", 2: "<d", 3: "<i", 4: "<B", 5: "<h", 6: "<b", 9: "<q", 10: "<?", 14: "<H",
    17: "<H", 19: "<e", 22: "<I", 23: "<Q",
}  # fmt: skip
_BFLOAT16, _HALF = 14, 19
_UNSIGNED = {4, 10, _BFLOAT16, 17, _HALF, 22, 23}
# DataType -> the number of its *_val field: float_val, double_val, int_val, ...
_VALUES = {1: 5, 2: 6, 3: 7, 4: 7, 5: 7, 6: 7, 9: 10, 10: 11, 14: 13, 17: 7, 19: 13, 22: 16, 23: 17}
_FIXED = {5: _FLOAT, 6: _DOUBLE}


class Event(NamedTuple):
    """Scalars of one event.

    Attributes
    ----------
    wall_time : float
        Seconds since the epoch; 0.0 if the message has none (every known writer sets it).
    step : int
        The writer's step number.
    version : str
        ``"brain.Event:2"`` in the first event of a file, otherwise empty.
    scalars : list of (str, float)
        Tag and value, in the order of the message. Most events have one or none.
    """

    wall_time: float
    step: int
    version: str
    scalars: list[tuple[str, float]]


class EventParser:
    """Parser of the events of one file, in order.

    TensorFlow 1 sends the metadata of a tag with its first value only, so the parser keeps the plugin of each
    tag.
    """

    def __init__(self) -> None:
        self._tags: dict[bytes, str] = {}
        self._plugins: dict[str, str] = {}
        self._metadata: dict[bytes, str] = {}

    def parse(self, record: bytes) -> Event:
        """Parse one event.

        Raises
        ------
        WireError
            The record is not a protocol-buffer message.
        """
        wall_time, step, version = 0.0, 0, ""
        scalars: list[tuple[str, float]] = []
        for tag, a, b in protobuf_fields(record, 0, len(record)):
            if tag == _EVENT_WALL_TIME:
                wall_time = _DOUBLE.unpack_from(record, a)[0]
            elif tag == _EVENT_STEP:
                step = _signed(a)
            elif tag == _EVENT_SUMMARY:
                for inner, c, d in protobuf_fields(record, a, b):
                    if inner == _SUMMARY_VALUE:
                        self._value(record, c, d, scalars)
            elif tag == _EVENT_VERSION:
                version = record[a:b].decode("utf-8", "replace")
        return Event(wall_time, step, version, scalars)

    def _value(self, record: bytes, at: int, end: int, scalars: list[tuple[str, float]]) -> None:
        raw_name = b""
        value: float | None = None
        tensor: tuple[int, int] | None = None
        metadata = b""
        for tag, a, b in protobuf_fields(record, at, end):
            if tag == _VALUE_TAG:
                raw_name = record[a:b]
            elif tag == _VALUE_SIMPLE:
                value, tensor = _FLOAT.unpack_from(record, a)[0], None
            elif tag == _VALUE_TENSOR:
                value, tensor = None, (a, b)
            elif tag == _VALUE_METADATA:
                metadata = record[a:b]
        if value is None and tensor is None:
            return
        name = self._tags.get(raw_name)
        if name is None:
            name = self._tags.setdefault(raw_name, raw_name.decode("utf-8", "replace"))
        if metadata:
            plugin = self._metadata.get(metadata)
            if plugin is None:
                plugin = self._metadata.setdefault(metadata, _plugin_name(metadata))
            self._plugins[name] = plugin
        if tensor is not None:
            plugin = self._plugins.get(name, "")
            if plugin not in ("", "scalars"):
                return
            value = _scalar(record, *tensor, any_rank=plugin == "scalars")
        if value is not None:
            scalars.append((name, value))


def _plugin_name(metadata: bytes) -> str:
    name = ""
    for tag, a, b in protobuf_fields(metadata, 0, len(metadata)):
        if tag == _METADATA_PLUGIN:
            for inner, c, d in protobuf_fields(metadata, a, b):
                if inner == _PLUGIN_NAME:
                    name = metadata[c:d].decode("utf-8", "replace")
    return name


def _scalar(record: bytes, at: int, end: int, *, any_rank: bool) -> float | None:
    """Return the single number of a TensorProto; None if it holds several values or another type."""
    dtype = 0
    content: tuple[int, int] | None = None
    values: dict[int, tuple[int, int, int]] = {}
    for tag, a, b in protobuf_fields(record, at, end):
        if tag == _TENSOR_DTYPE:
            dtype = a
        elif tag == _TENSOR_CONTENT:
            content = a, b
        elif tag != _TENSOR_SHAPE:
            values[tag >> 3] = tag & 7, a, b
        elif b > a and not (any_rank and _elements(record, a, b) == 1):
            return None
    code = _CONTENT.get(dtype)
    if code is None:
        return None
    if content is not None and content[1] > content[0]:
        return _from_content(record, *content, code, dtype)
    value = values.get(_VALUES[dtype])
    # protobuf omits zeros.
    return 0.0 if value is None else _from_value(record, *value, dtype)


def _from_content(record: bytes, at: int, end: int, code: str, dtype: int) -> float:
    if end - at != struct.calcsize(code):
        raise WireError(f"{end - at} bytes of tensor_content for one number of DataType {dtype}")
    (number,) = struct.unpack_from(code, record, at)
    return _from_bits(dtype, number) if dtype == _BFLOAT16 else float(number)


def _from_value(record: bytes, wire: int, a: int, b: int, dtype: int) -> float:
    """Read a ``*_val`` field, packed (wire type 2) or not."""
    fixed = _FIXED.get(_VALUES[dtype])
    if wire == 2 and a == b:
        return 0.0
    if fixed is not None:
        if b - a != fixed.size:
            raise WireError(f"{b - a} bytes of numbers in a tensor of one element")
        number: float = fixed.unpack_from(record, a)[0]
        return number
    if wire == 2:
        a, stop = protobuf_varint(record, a)
        if stop != b:
            raise WireError("several numbers in a tensor of one element")
    elif wire != 0:
        raise WireError(f"wire type {wire} for the number of a tensor")
    if dtype in (_BFLOAT16, _HALF):
        return _from_bits(dtype, a)
    return float(a if dtype in _UNSIGNED else _signed(a))


def _from_bits(dtype: int, bits: int) -> float:
    bits &= 0xFFFF
    packed = bits.to_bytes(2, "little")
    value: float
    (value,) = struct.unpack("<e", packed) if dtype == _HALF else _FLOAT.unpack(b"\0\0" + packed)
    return value


def _elements(record: bytes, at: int, end: int) -> int:
    count = 1
    for tag, a, b in protobuf_fields(record, at, end):
        if tag == _SHAPE_DIM:
            for inner, size, _ in protobuf_fields(record, a, b):
                if inner == _DIM_SIZE:
                    count *= _signed(size)
    return count


def _signed(value: int) -> int:
    """Convert an unsigned 64-bit number to signed: int32 and int64 fields use two's complement."""
    return value - (1 << 64) if value >> 63 else value
