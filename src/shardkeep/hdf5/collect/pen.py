"""`Pen`: the rows of one dataset that a client has not sent yet, in one array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shardkeep.hdf5.collect.payload import encode_rows
from shardkeep.hdf5.collect.schema import Schema
from shardkeep.hdf5.collect.slots import SLOT_BYTES

if TYPE_CHECKING:
    from shardkeep.hdf5.collect.slots import ClientSlots

__all__ = ["Pen", "Rows"]

_SCALARS: dict[str, tuple[type, ...]] = {
    "<f8": (float, np.float64, np.float32),
    "<f4": (float, np.float32),
    "<i8": (int, np.int64, np.int32),
    "<i4": (int, np.int32),
}
# Below this, rows are copied out of the array that they were collected in, and it is kept.
_SMALL = 4


class Rows:
    """Rows that are to be sent: some of a dataset, as bytes.

    Attributes
    ----------
    slot : int or None
        The offset in shared memory where they are; the slot is free again once they are durable.
    """

    __slots__ = ("data", "keyed", "name", "rows", "slot")

    def __init__(self, name: str, rows: int, data: Any, slot: int | None = None, keyed: bool = False) -> None:
        self.name = name
        self.rows = rows
        self.data = data
        self.slot = slot
        self.keyed = keyed


class Pen:
    """Rows of one dataset that wait for more.

    Parameters
    ----------
    schema : Schema
        As the collector has it.

    Attributes
    ----------
    array : ndarray, shape (capacity, *row_shape)
        Its first `fill` rows are waiting.
    accepted : dtype or None
        The very object that was last found to fit: identity is the cheapest test there is.
    scalars : tuple of type
        What may be assigned to one row as it is.
    text_bytes : int
        Of the text that waits.
    """

    __slots__ = (
        "accepted",
        "array",
        "capacity",
        "fill",
        "row_shape",
        "scalars",
        "schema",
        "slot",
        "text_bytes",
    )

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.row_shape = schema.row_shape
        self.accepted: np.dtype[Any] | None = None
        fixed = not schema.dtype.hasobject and schema.rows is None
        self.scalars = _SCALARS.get(schema.dtype.str, ()) if fixed and not schema.row_shape else ()
        size = max(schema.row_bytes, 1)
        self.capacity = max(SLOT_BYTES // size, 1)
        if schema.dtype.hasobject:
            self.capacity = min(self.capacity, 4096)
        self.slot: int | None = None
        self.fill = self.text_bytes = 0
        self.array = self._fresh(None)

    def renew(self, slots: ClientSlots | None) -> None:
        """Begin a new array, in shared memory if there is some and rows come in large numbers."""
        self.fill = 0
        self.array = self._fresh(slots)

    def take(self) -> list[Rows]:
        """Return what is waiting and forget it; the array is kept if little of it was used."""
        fill, schema = self.fill, self.schema
        if not fill:
            return []
        rows = self.array[:fill]
        if schema.dtype.hasobject:
            self.fill = self.text_bytes = 0
            return _text_rows(schema.name, rows)
        if fill * _SMALL <= self.capacity:
            self.fill = 0
            return [Rows(schema.name, fill, encode_rows(rows.copy()))]
        slot, self.slot = self.slot, None
        self.array = rows[:0]
        self.fill = 0
        return [Rows(schema.name, fill, encode_rows(rows), slot)]

    def leave_slot(self) -> None:
        """Copy what is waiting out of shared memory."""
        if self.slot is not None:
            before, self.slot = self.array, None
            self.array = np.empty((self.capacity, *self.row_shape), self.schema.dtype)
            self.array[: self.fill] = before[: self.fill]

    def _fresh(self, slots: ClientSlots | None) -> np.ndarray[Any, Any]:
        schema = self.schema
        shape = (self.capacity, *schema.row_shape)
        size = self.capacity * schema.row_bytes
        if slots is not None and 0 < size <= SLOT_BYTES and not schema.dtype.hasobject:
            taken = slots.take()
            if taken is not None:
                self.slot = taken[0]
                return taken[1][:size].view(schema.dtype).reshape(shape)
        return np.empty(shape, schema.dtype)


def _text_rows(name: str, rows: np.ndarray[Any, Any]) -> list[Rows]:
    """Encode text in pieces of `SLOT_BYTES` at most, unless a single row is longer."""
    data = encode_rows(rows)
    if len(data) <= SLOT_BYTES or len(rows) == 1:
        return [Rows(name, len(rows), data)]
    middle = len(rows) // 2
    return _text_rows(name, rows[:middle]) + _text_rows(name, rows[middle:])
