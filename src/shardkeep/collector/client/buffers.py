"""Rows of a client in memory: a buffer for each dataset, and the payloads that are sent."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from shardkeep.collector.protocol.payload import encode_rows
from shardkeep.collector.protocol.schema import Schema
from shardkeep.collector.protocol.slots import SLOT_BYTES, ClientSlots
from shardkeep.errors import ShardkeepError

__all__ = ["ChunkBuffer", "DatasetBuffer", "Payload", "has_large_rows"]

_SCALAR_TYPES: dict[str, tuple[type, ...]] = {
    "<f8": (float, np.float64, np.float32),
    "<f4": (np.float32,),
    "<i8": (int, np.int64, np.int32),
    "<i4": (int, np.int32),
}
_LARGEST_F4 = float(np.finfo(np.float32).max)
# A chunk that is less than a quarter full is copied when it is sent, and its array is used again.
_COPIED_SHARE = 4
_MOST_TEXT_ROWS = 4096
# Rows from this size on use shared memory from the first chunk on: chunks in new memory cost three times as
# much as those in slots that were used before.
_LARGE_ROW_BYTES = 4096


@dataclass(slots=True, eq=False)
class Payload:
    """Encoded rows of one dataset, or one value; a batch is made of payloads.

    Attributes
    ----------
    schema : Schema or None
        The schema of the dataset; None for a value, and for rows that were read from a spill file.
    slot : int or None
        Offset of the bytes in shared memory. The slot is free again once the payload is durable.
    keyed : bool
        Whether the row numbers precede the rows.
    is_value : bool
        Whether the bytes are a value or an attribute (`shardkeep.collector.protocol.values`).
    is_awaited : bool
        Whether a call waits for this value, and raises `error`. Otherwise the next call raises it.
    error : ShardkeepError or None
        Why the collector refused the value.
    """

    name: str
    rows: int
    data: Any
    slot: int | None = None
    _: KW_ONLY
    schema: Schema | None = None
    keyed: bool = False
    is_value: bool = False
    is_awaited: bool = False
    error: ShardkeepError | None = None

    @property
    def size_bytes(self) -> int:
        """Length of the encoded rows or value."""
        return len(self.data)

    def copy_out_of_slot(self) -> None:
        """Move the bytes from shared memory to memory of this process."""
        if self.slot is not None:
            self.data, self.slot = self.data.copy(), None


class ChunkBuffer:
    """An array that is filled row by row, and sent when it is full.

    Attributes
    ----------
    array : ndarray, shape (capacity, *row_shape)
    rows : int
        The number of rows in it. Raising it is the single step that adds rows.
    limit : int
        The number of rows at which the buffer is full.
    slot : int or None
        Offset of the array in shared memory.
    text_bytes : int
        The length of the text that the rows refer to.
    """

    __slots__ = ("array", "limit", "rows", "schema", "slot", "text_bytes")

    def __init__(self, schema: Schema, array: np.ndarray[Any, Any], slot: int | None = None) -> None:
        self.schema = schema
        self.array = array
        self.slot = slot
        self.limit = len(array)
        self.rows = self.text_bytes = 0

    @property
    def name(self) -> str:
        """Name of the dataset."""
        return self.schema.name

    @property
    def size_bytes(self) -> int:
        """Approximate length of the encoded rows."""
        return self.rows * self.schema.row_bytes + self.text_bytes

    def drain(self) -> list[Payload]:
        """Remove the rows and return them encoded; the array is kept if few of its rows were used."""
        count, schema = self.rows, self.schema
        if not count:
            return []
        rows = self.array[:count]
        self.rows = 0
        if schema.dtype.hasobject:
            self.text_bytes = 0
            return _text_payloads(schema, rows)
        if count < self.limit and count * _COPIED_SHARE <= len(self.array):
            return [Payload(schema.name, count, encode_rows(rows.copy()), schema=schema)]
        slot, self.slot = self.slot, None
        self.array = self.array[:0]
        self.limit = 0
        return [Payload(schema.name, count, encode_rows(rows), slot, schema=schema)]

    def copy_out_of_slot(self) -> None:
        """Move the rows from shared memory to memory of this process."""
        if self.slot is not None:
            before, self.slot = self.array, None
            self.array = np.empty_like(before)
            self.array[: self.rows] = before[: self.rows]


class DatasetBuffer:
    """The rows of one dataset that are not submitted yet.

    Parameters
    ----------
    schema : Schema
        The schema that the collector has.

    Attributes
    ----------
    chunk : ChunkBuffer
        The buffer for the next row; a full one is replaced by `new_chunk`.
    accepted_dtype : dtype or None
        The dtype object of the last array that was accepted: identity is the cheapest test.
    scalar_types : tuple of type
        Types of which a value can be assigned to one row without a check.
    largest_scalar : float
        For float32 rows, the largest float that may be assigned: NumPy turns larger ones into infinity
        without an error. 0.0 for all other rows.
    uses_slots : bool
        Whether chunks are made in shared memory: rows are large, or a chunk was full once.
    """

    __slots__ = (
        "accepted_dtype",
        "capacity",
        "chunk",
        "largest_scalar",
        "row_shape",
        "scalar_types",
        "schema",
        "uses_slots",
    )

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.row_shape = schema.row_shape
        self.accepted_dtype: np.dtype[Any] | None = None
        is_scalar = not schema.dtype.hasobject and schema.rows is None and not schema.row_shape
        self.scalar_types = _SCALAR_TYPES.get(schema.dtype.str, ()) if is_scalar else ()
        self.largest_scalar = _LARGEST_F4 if is_scalar and schema.dtype.str == "<f4" else 0.0
        self.uses_slots = has_large_rows(schema)
        self.capacity = max(SLOT_BYTES // max(schema.row_bytes, 1), 1)
        if schema.dtype.hasobject:
            self.capacity = min(self.capacity, _MOST_TEXT_ROWS)
        self.chunk = ChunkBuffer(schema, np.empty((0, *self.row_shape), schema.dtype))

    def replace_empty_chunk(self) -> None:
        """Have the next chunk made in shared memory, if this one is empty and elsewhere."""
        chunk = self.chunk
        if self.uses_slots and chunk.rows == 0 and chunk.slot is None:
            chunk.array = chunk.array[:0]
            chunk.limit = 0

    def accepts(self, rows: Any) -> bool:
        """Whether an array of this dtype object and row shape was accepted before."""
        if type(rows) is not np.ndarray or rows.dtype is not self.accepted_dtype:
            return False
        return rows.ndim > 0 and rows.shape[1:] == self.row_shape

    def new_chunk(self, slots: ClientSlots | None) -> ChunkBuffer:
        """Return an empty chunk, in shared memory if a slot is free and the rows use slots."""
        schema = self.schema
        shape = (self.capacity, *schema.row_shape)
        size = self.capacity * schema.row_bytes
        if slots is not None and self.uses_slots and 0 < size <= SLOT_BYTES and not schema.dtype.hasobject:
            taken = slots.take()
            if taken is not None:
                return ChunkBuffer(schema, taken[1][:size].view(schema.dtype).reshape(shape), taken[0])
        return ChunkBuffer(schema, np.empty(shape, schema.dtype))


def has_large_rows(schema: Schema) -> bool:
    """Whether rows are so large that they use shared memory from the first one on."""
    is_fixed = not schema.dtype.hasobject and schema.rows is None
    return is_fixed and _LARGE_ROW_BYTES <= schema.row_bytes <= SLOT_BYTES


def _text_payloads(schema: Schema, rows: np.ndarray[Any, Any]) -> list[Payload]:
    """Encode text in payloads of at most `SLOT_BYTES`, unless a single row is longer."""
    data = encode_rows(rows)
    if len(data) <= SLOT_BYTES or len(rows) == 1:
        return [Payload(schema.name, len(rows), data, schema=schema)]
    middle = len(rows) // 2
    return _text_payloads(schema, rows[:middle]) + _text_payloads(schema, rows[middle:])
