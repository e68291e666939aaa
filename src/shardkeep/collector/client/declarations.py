"""Declarations of datasets: their schemas, and the queue in which a client sends them."""

from __future__ import annotations

from collections import deque
from typing import Any

from shardkeep.collector.client.buffers import DatasetBuffer
from shardkeep.collector.client.connection import Connection
from shardkeep.collector.client.state import Declaration, SenderState
from shardkeep.collector.protocol.messages import Kind, pack
from shardkeep.collector.protocol.schema import FilterSpec, Schema
from shardkeep.errors import PlanError, SchemaError, ShardkeepError
from shardkeep.hdf5.storage.dtypes import as_dtype, describe, vlen_base
from shardkeep.hdf5.storage.layout import as_row_shape, check_row_size, chunk_rows_of
from shardkeep.hdf5.storage.names import check_name

__all__ = ["DeclarationQueue", "make_schema", "refuse_variable_length"]

# ZeroMQ drops messages without an error beyond its limit, which is above this number.
_MOST_UNANSWERED = 256
_LONGEST_CHUNK_ROWS = 1 << 32


class DeclarationQueue:
    """Declarations until they are answered; for the sender's thread, in the guard of the state.

    On each new connection every dataset that the client may have rows of is declared before any row is
    sent: a collector that was killed may have lost it.
    """

    def __init__(self, state: SenderState, connection: Connection) -> None:
        self._state = state
        self._connection = connection
        self._last_number = 0
        self._waiting: deque[Declaration] = deque()
        self._sent: dict[int, Declaration] = {}

    @property
    def is_pending(self) -> bool:
        """Whether an answer is expected."""
        return bool(self._sent or self._waiting)

    @property
    def pending_schemas(self) -> list[Schema]:
        """Schemas of the datasets that are not answered."""
        return [one.schema for one in (*self._sent.values(), *self._waiting)]

    def send(self) -> bool:
        """Send what may be sent now; return whether that was all, so that rows may follow."""
        while self._state.declarations:
            self._waiting.append(self._state.declarations.popleft())
        while self._waiting and len(self._sent) < _MOST_UNANSWERED:
            declaration = self._waiting[0]
            number = self._last_number + 1
            has_rows, data = declaration.dataset is not None, declaration.schema.to_json()
            if not self._connection.send(pack(Kind.DECLARE, value=number, parts=has_rows, data=data)):
                return False
            self._sent[number] = self._waiting.popleft()
            self._last_number = number
        return not self._waiting

    def restart(self) -> None:
        """Declare every dataset again, on a new connection and possibly to another collector."""
        unanswered = [one for one in (*self._sent.values(), *self._waiting) if one.dataset is None]
        self._sent = {}
        self._waiting = deque(Declaration(one.schema, one) for one in self._state.datasets.values())
        self._waiting += unanswered

    def accept(self, number: int, schema: Schema) -> None:
        """Act on the answer that a dataset exists, with this schema."""
        declaration = self._sent.pop(number, None)
        if declaration is None:
            return
        wanted = declaration.schema
        if declaration.dataset is None:
            # Not by the call that waits: the connection may be lost before the call continues.
            declaration.dataset = self._state.datasets.setdefault(wanted.name, DatasetBuffer(schema))
        elif not schema.fits(wanted):
            what, its = describe(schema.dtype, schema.row_shape), describe(wanted.dtype, wanted.row_shape)
            message = f"dataset {wanted.name!r} of {self._connection.address} was made again with {what}"
            self._state.errors.append(
                SchemaError(f"{message}, while {its} of this client were on their way: connect again")
            )

    def reject(self, number: int, error: ShardkeepError) -> None:
        """Act on the answer that a dataset is refused."""
        declaration = self._sent.pop(number, None)
        if declaration is not None and declaration.dataset is None:
            declaration.error = error
        elif declaration is not None:
            self._state.errors.append(error)


def make_schema(
    name: str,
    dtype: Any,
    row_shape: tuple[int, ...],
    rows: int | None,
    chunk_rows: int | None,
    compression: str | None,
    compression_level: int | None,
    shuffle: bool | None,
) -> Schema:
    """Return the schema of a declared dataset.

    Raises
    ------
    SchemaError
        Name, dtype, row shape or number of rows are not valid.
    PlanError
        Compression, level or chunk_rows are not valid.
    """
    check_name(name, ())
    kind = as_dtype(name, dtype)
    refuse_variable_length(name, kind)
    shape = as_row_shape(row_shape)
    check_row_size(name, kind, shape)
    if rows is not None and (type(rows) is not int or rows < 0):
        raise SchemaError(f"dataset {name!r}: rows must be an int of at least 0, not {rows!r}")
    if chunk_rows is not None and (type(chunk_rows) is not int or chunk_rows < 1):
        raise PlanError(f"dataset {name!r}: chunk_rows must be an int of at least 1, not {chunk_rows!r}")
    usual = chunk_rows_of(kind, shape)
    count = min(chunk_rows or usual, _LONGEST_CHUNK_ROWS) if usual < 1 << 40 else 1024
    return Schema(name, kind, shape, count, _filters(compression, compression_level, shuffle, kind), rows)


def _filters(compression: Any, level: int | None, shuffle: bool | None, dtype: Any) -> tuple[FilterSpec, ...]:
    if compression is None:
        if level is not None or shuffle:
            raise PlanError("a level or shuffle needs a compression: pass compression= too")
        return ()
    from shardkeep.hdf5.storage.compression import compression_filters

    filters: tuple[FilterSpec, ...] = compression_filters(compression, level, shuffle, dtype)
    return filters


def refuse_variable_length(name: str, dtype: Any) -> None:
    """Raise a `SchemaError` for rows of numbers or bytes of variable length."""
    if vlen_base(dtype) is not None:
        raise SchemaError(f"dataset {name!r}: a collector does not take rows of variable length, only text")
