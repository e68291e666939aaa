"""`Pen`: the rows of one dataset that a client has not sent yet, sheet by sheet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shardkeep.collector.protocol.payload import encode_rows
from shardkeep.collector.protocol.schema import Schema
from shardkeep.collector.protocol.slots import SLOT_BYTES
from shardkeep.errors import ShardkeepError

if TYPE_CHECKING:
    from shardkeep.collector.protocol.slots import ClientSlots

__all__ = ["Pen", "Rows", "Sheet", "has_large_rows"]

_SCALARS: dict[str, tuple[type, ...]] = {
    "<f8": (float, np.float64, np.float32),
    "<f4": (np.float32,),
    "<i8": (int, np.int64, np.int32),
    "<i4": (int, np.int32),
}
_LARGEST_F4 = float(np.finfo(np.float32).max)
# Below this, rows are copied out of the array that they were collected in, and it is kept.
_SMALL = 4
# From this on, rows are worth shared memory before anything is known of their number: the first sheets
# would cost three times as much as those in slots that were used before.
_LARGE_ROW_BYTES = 4096


class Rows:
    """Rows that are to be sent: some of a dataset, as bytes; or a value.

    Attributes
    ----------
    slot : int or None
        The offset in shared memory where they are; the slot is free again once they are durable.
    keyed : bool
        Whether their numbers stand in front.
    is_value : bool
        Whether it is a value or an attribute, in the form of `shardkeep.collector.protocol.values`.
    is_awaited : bool
        Whether a call waits for what becomes of a value; else the next one has to raise an error about it.
    error : ShardkeepError or None
        What the collector said about a value that is awaited.
    """

    __slots__ = ("data", "error", "is_awaited", "is_value", "keyed", "name", "rows", "slot")

    def __init__(
        self,
        name: str,
        rows: int,
        data: Any,
        slot: int | None = None,
        *,
        keyed: bool = False,
        is_value: bool = False,
    ) -> None:
        self.name = name
        self.rows = rows
        self.data = data
        self.slot = slot
        self.keyed = keyed
        self.is_value = is_value
        self.is_awaited = False
        self.error: ShardkeepError | None = None

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.data)

    def leave_slot(self) -> None:
        """Copy the bytes out of shared memory."""
        if self.slot is not None:
            self.data, self.slot = self.data.copy(), None


class Sheet:
    """An array that is filled row by row.

    Attributes
    ----------
    array : ndarray, shape (capacity, *row_shape)
    fill : int
        So many rows are in it. To raise it is the one step by which rows are added.
    limit : int
        So many it may get.
    slot : int or None
        Where the array is in shared memory.
    text_bytes : int
        Of the text in it.
    """

    __slots__ = ("array", "fill", "limit", "pen", "slot", "text_bytes")

    def __init__(self, pen: Pen, array: np.ndarray[Any, Any], slot: int | None) -> None:
        self.pen = pen
        self.array = array
        self.slot = slot
        self.limit = len(array)
        self.fill = self.text_bytes = 0

    @property
    def name(self) -> str:
        """Of the dataset."""
        return self.pen.schema.name

    @property
    def rows(self) -> int:
        """How many are in it."""
        return self.fill

    @property
    def size(self) -> int:
        """Bytes of the rows in it, about."""
        return self.fill * self.pen.schema.row_bytes + self.text_bytes

    def take(self) -> list[Rows]:
        """Return what is in it and forget it; the array is kept if little of it was used."""
        fill, schema = self.fill, self.pen.schema
        if not fill:
            return []
        rows = self.array[:fill]
        if schema.dtype.hasobject:
            self.fill = self.text_bytes = 0
            return _text_rows(schema.name, rows)
        self.fill = 0
        if fill < self.limit and fill * _SMALL <= len(self.array):
            return [Rows(schema.name, fill, encode_rows(rows.copy()))]
        slot, self.slot = self.slot, None
        self.array = self.array[:0]
        self.limit = 0
        return [Rows(schema.name, fill, encode_rows(rows), slot)]

    def leave_slot(self) -> None:
        """Copy what is in it out of shared memory."""
        if self.slot is not None:
            before, self.slot = self.array, None
            self.array = np.empty_like(before)
            self.array[: self.fill] = before[: self.fill]


class Pen:
    """The rows of one dataset that wait for more.

    Parameters
    ----------
    schema : Schema
        As the collector has it.

    Attributes
    ----------
    sheet : Sheet
        Rows are written on it; when it is full, a `fresh` one is needed.
    accepted : dtype or None
        The very object that was last found to fit: identity is the cheapest test there is.
    scalars : tuple of type
        What may be assigned to one row as it is.
    largest : float
        Of rows that a float is assigned to with a check, as NumPy makes infinity of what does not fit; 0.0
        of all other rows.
    has_many : bool
        Whether rows are large, or a sheet was full once: they are worth shared memory.
    """

    __slots__ = ("accepted", "capacity", "has_many", "largest", "row_shape", "scalars", "schema", "sheet")

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.row_shape = schema.row_shape
        self.accepted: np.dtype[Any] | None = None
        fixed = not schema.dtype.hasobject and schema.rows is None
        is_scalar = fixed and not schema.row_shape
        self.scalars = _SCALARS.get(schema.dtype.str, ()) if is_scalar else ()
        self.largest = _LARGEST_F4 if is_scalar and schema.dtype.str == "<f4" else 0.0
        self.has_many = has_large_rows(schema)
        self.capacity = max(SLOT_BYTES // max(schema.row_bytes, 1), 1)
        if schema.dtype.hasobject:
            self.capacity = min(self.capacity, 4096)
        self.sheet = Sheet(self, np.empty((0, *self.row_shape), schema.dtype), None)

    def leave_sheet(self) -> None:
        """Let the next row be on a sheet in shared memory, if this one is elsewhere and empty."""
        sheet = self.sheet
        if self.has_many and sheet.fill == 0 and sheet.slot is None:
            sheet.array = sheet.array[:0]
            sheet.limit = 0

    def knows(self, rows: Any) -> bool:
        """Whether rows just like these were found to fit before."""
        if type(rows) is not np.ndarray or rows.dtype is not self.accepted:
            return False
        return rows.ndim > 0 and rows.shape[1:] == self.row_shape

    def fresh(self, slots: ClientSlots | None) -> Sheet:
        """Return an empty sheet, in shared memory if there is some and it is worth it."""
        schema = self.schema
        shape = (self.capacity, *schema.row_shape)
        size = self.capacity * schema.row_bytes
        if slots is not None and self.has_many and 0 < size <= SLOT_BYTES and not schema.dtype.hasobject:
            taken = slots.take()
            if taken is not None:
                return Sheet(self, taken[1][:size].view(schema.dtype).reshape(shape), taken[0])
        return Sheet(self, np.empty(shape, schema.dtype), None)


def has_large_rows(schema: Schema) -> bool:
    """Whether its rows are worth shared memory whatever their number."""
    fixed = not schema.dtype.hasobject and schema.rows is None
    return fixed and _LARGE_ROW_BYTES <= schema.row_bytes <= SLOT_BYTES


def _text_rows(name: str, rows: np.ndarray[Any, Any]) -> list[Rows]:
    """Encode text in pieces of `SLOT_BYTES` at most, unless a single row is longer."""
    data = encode_rows(rows)
    if len(data) <= SLOT_BYTES or len(rows) == 1:
        return [Rows(name, len(rows), data)]
    middle = len(rows) // 2
    return _text_rows(name, rows[:middle]) + _text_rows(name, rows[middle:])
