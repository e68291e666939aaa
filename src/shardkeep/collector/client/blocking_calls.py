"""The calls of a client that may wait: first rows, many rows, declarations, values and flushes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from shardkeep.collector.client.buffers import ChunkBuffer, DatasetBuffer, Payload
from shardkeep.collector.client.declarations import refuse_variable_length
from shardkeep.collector.client.sender import Sender
from shardkeep.collector.client.state import Declaration
from shardkeep.collector.protocol.limits import (
    MOST_NUMBERED_ROWS,
    check_length,
    check_name_length,
    check_value_length,
)
from shardkeep.collector.protocol.payload import encode_rows
from shardkeep.collector.protocol.schema import Schema
from shardkeep.collector.protocol.slots import SLOT_BYTES
from shardkeep.errors import CollectorError, DurabilityError, SchemaError
from shardkeep.hdf5.storage.dtypes import describe
from shardkeep.hdf5.storage.layout import chunk_rows_of
from shardkeep.hdf5.storage.names import check_name
from shardkeep.hdf5.storage.rows import as_first_rows, as_more_rows

__all__ = ["BlockingCalls", "OnFull"]

OnFull = Literal["block", "raise", "spill"]

# Of a dataset that begins with one scalar: such rows mostly come one at a time, and many of these datasets
# stay small. A chunk costs the collector 0.1 ms, so that smaller ones would be felt in a stream of arrays.
_SCALAR_CHUNK_ROWS = 4096


class BlockingCalls:
    """The calls of one client.

    Parameters
    ----------
    sender : Sender
    on_full : {"block", "raise", "spill"}
        As of `shardkeep.collector.connect`.

    Attributes
    ----------
    has_answered : bool
        Whether a call has waited for the collector to answer.
    """

    def __init__(self, sender: Sender, on_full: OnFull) -> None:
        self.sender = sender
        self.state = sender.state
        self.has_answered = on_full == "spill"
        self._on_full = on_full

    # -- rows ----------------------------------------------------------------------------------------------

    def append(self, name: str, rows: Any, key: Any) -> None:
        """Add rows of any kind and number."""
        self.raise_error()
        state = self.state
        dataset = state.datasets.get(name)
        if dataset is not None and key is None and dataset.accepts(rows):
            known, size = dataset, dataset.schema.row_bytes
            self._add(len(rows), lambda start: self._write(known, rows, start, size))
            return
        if dataset is None:
            if isinstance(rows, (list, tuple)) and not rows:
                return  # without a dtype: later rows define the dataset
            if key is not None:
                raise SchemaError(
                    f"dataset {name!r} has no known length: declare(…, rows=N) it before append(key=)"
                )
            first = as_first_rows(name, rows)
            refuse_variable_length(name, first.dtype)
            check_name(name, tuple(state.datasets))
            check_length(name, first, state.largest_bytes)
            shape = first.shape[1:]
            chunk_rows = chunk_rows_of(first.dtype, shape) % (1 << 40)
            if len(first) == 1 and not shape:
                chunk_rows = min(chunk_rows, _SCALAR_CHUNK_ROWS)
            dataset = self._await_dataset(self._request_dataset(Schema(name, first.dtype, shape, chunk_rows)))
        schema = dataset.schema
        new = as_more_rows(name, rows, schema.dtype, schema.row_shape)
        text_bytes = check_length(name, new, state.largest_bytes)
        if (schema.rows is None) != (key is None):
            advice = "declared rows: pass key=" if key is None else "no declared number of rows: omit key="
            raise SchemaError(f"dataset {name!r} has {advice}")
        if key is not None:
            self._submit(_keyed_payloads(schema, new, key))
            return
        if type(rows) is np.ndarray and new.dtype is rows.dtype and not rows.dtype.hasobject:
            dataset.accepted_dtype = rows.dtype
        row_bytes = schema.row_bytes + text_bytes // max(len(new), 1)
        self._add(len(new), lambda start: self._write(dataset, new, start, row_bytes))

    def _add(self, count: int, add: Callable[[int], int]) -> None:
        """Add rows or payloads, as many at a time as there is room for.

        `add` adds some from a number on, with "raise" all of them, and returns the number of the next one.
        """
        start = 0
        while start < count:
            before = start
            start = self.state.run(add, start)
            if start == before:
                self._wait_for_room()

    def _submit(self, payloads: list[Payload]) -> None:
        def add(start: int) -> int:
            if not self.state.has_room():
                return start
            end = len(payloads) if self._on_full == "raise" else start + 1
            self.state.submitted.extend(payloads[start:end])
            self.state.wake()
            return end

        self._add(len(payloads), add)

    def _write(self, dataset: DatasetBuffer, rows: np.ndarray[Any, Any], start: int, row_bytes: int) -> int:
        """Write rows into chunks; return the number of the next row, `start` if all buffers are full."""
        state, chunk, count = self.state, dataset.chunk, len(rows) - start
        if count > chunk.limit - chunk.rows or state.outbox.spill_failure is not None:
            waits_for_slot = dataset.uses_slots and self._on_full != "spill"
            if not state.has_room() or (waits_for_slot and not state.has_slots()):
                return start
            if chunk.rows or chunk.limit < dataset.capacity:
                if chunk.rows:
                    state.submit(dataset)
                chunk = dataset.chunk = dataset.new_chunk(state.outbox.slots)
            if count > chunk.limit:
                return self._write_many(dataset, rows, start, row_bytes)
        after = chunk.rows + count
        state.mark_dirty(dataset)
        chunk.array[chunk.rows : after] = rows[start:]
        if rows.dtype.hasobject:
            chunk.text_bytes += row_bytes * count
        chunk.rows = after
        if after == chunk.limit or chunk.text_bytes >= SLOT_BYTES:
            state.submit(dataset)
        return len(rows)

    def _write_many(
        self, dataset: DatasetBuffer, rows: np.ndarray[Any, Any], start: int, row_bytes: int
    ) -> int:
        """Submit chunks that are filled here, all in one step."""
        state = self.state
        chunks: list[ChunkBuffer] = []
        room = state.outbox.most_bytes - state.outbox.bytes - state.submitted_bytes
        dataset.uses_slots = True
        while start < len(rows) and (not chunks or self._on_full == "raise" or room > 0):
            chunk = dataset.new_chunk(state.outbox.slots)
            count = min(len(rows) - start, chunk.limit)
            chunk.array[:count] = rows[start : start + count]
            chunk.rows = chunk.limit = count
            if rows.dtype.hasobject:
                chunk.text_bytes = row_bytes * count
            room -= chunk.size_bytes
            chunks.append(chunk)
            start += count
        state.submitted.extend(chunks)
        state.wake()
        return start

    # -- datasets and values -------------------------------------------------------------------------------

    def declare(self, schemas: list[Schema], attributes: list[tuple[str, np.ndarray[Any, Any]]]) -> None:
        """Declare datasets, and set attributes of them.

        Parameters
        ----------
        schemas : list of Schema
        attributes : list of (str, ndarray)
            The name of a dataset, and an attribute as `shardkeep.collector.protocol.values` packs it.
        """
        self.raise_error()
        for name, data in attributes:
            check_value_length(f"an attribute of {name!r}", data, self.state.largest_bytes)
        declarations = [self._request_dataset(one) for one in schemas]
        for declaration, wanted in zip(declarations, schemas, strict=True):
            known = self._await_dataset(declaration).schema
            if not known.fits(wanted):
                is_now = f"dataset {known.name!r} has {describe(known.dtype, known.row_shape)}"
                declared = f"and is declared with {describe(wanted.dtype, wanted.row_shape)}"
                raise SchemaError(f"{is_now}, {declared}: declare the same everywhere")
        self._submit([Payload(name, 0, data, is_value=True) for name, data in attributes])

    def _request_dataset(self, schema: Schema) -> Declaration:
        check_name_length(schema.name)

        def request() -> Declaration:
            state = self.state
            dataset = state.datasets.get(schema.name)
            if dataset is None and self._on_full == "spill" and not state.is_ready:
                # The thread declares it, as all datasets, when there is a collector.
                dataset = state.datasets[schema.name] = DatasetBuffer(schema)
            declaration = Declaration(schema, dataset)
            state.unflushed_declaration = schema.name, schema.rows is not None
            if dataset is None:
                state.declarations.append(declaration)
                state.wake()
            return declaration

        return self.state.run(request)

    def _await_dataset(self, declaration: Declaration) -> DatasetBuffer:
        """Return the buffer of a dataset, with the schema that the collector has."""
        what = f"answer about dataset {declaration.schema.name!r}"
        self.wait(lambda: declaration.dataset is not None or declaration.error is not None, None, what)
        if declaration.error is not None:
            raise declaration.error
        assert declaration.dataset is not None
        return declaration.dataset

    def put(self, name: str, data: np.ndarray[Any, Any], what: str) -> None:
        """Store a value or an attribute; return when it is durable, or raise why it was refused."""
        self.raise_error()
        check_name_length(name)
        state = self.state
        check_value_length(what, data, state.largest_bytes)
        value = Payload(name, 0, data, is_value=True)
        value.is_awaited = self._on_full != "spill" or state.is_ready
        self._submit([value])
        if not value.is_awaited:
            return
        try:
            # The ticket, not the payload, shows that the value is durable: what is read back from the spill
            # file is another object.
            ticket = state.run(state.request_flush)
            self.wait(
                lambda: value.error is not None or state.durable_ticket >= ticket, None, f"store {what}"
            )
        finally:
            value.is_awaited = False
        if value.error is not None:
            raise value.error
        self.raise_error(also_closed=False)

    # -- waiting -------------------------------------------------------------------------------------------

    def flush(self, timeout_s: float | None) -> None:
        """Return when everything is durable."""
        state = self.state

        def request() -> int:
            if state.unflushed_declaration is not None:
                # A declaration has no sequence number to wait for. A payload without rows, which follows it,
                # has one.
                name, keyed = state.unflushed_declaration
                dataset = state.datasets.get(name)
                schema = None if dataset is None else dataset.schema
                state.submitted.append(Payload(name, 0, np.empty(0, np.uint8), schema=schema, keyed=keyed))
                state.unflushed_declaration = None
            return state.request_flush()

        ticket = state.run(request)
        self.wait(lambda: state.durable_ticket >= ticket, timeout_s, "make the rows durable")
        self.raise_error(also_closed=False)

    def raise_error(self, *, also_closed: bool = True) -> None:
        """Raise an error about earlier rows, or that the client is closed."""
        state = self.state
        if state.errors:
            raise state.errors.popleft()
        if also_closed and state.closed_error is not None:
            raise state.closed_error

    def wait(
        self,
        is_done: Callable[[], bool],
        timeout_s: float | None,
        what: str,
        *,
        while_progress: bool = False,
    ) -> None:
        """Wait for the thread; with `while_progress`, the time starts again when rows become durable."""
        state = self.state
        limit = state.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit
        durable = state.outbox.durable
        while True:
            waiter = state.run(state.new_waiter)
            if is_done():
                return
            self.raise_error()
            if while_progress and state.outbox.durable != durable:
                durable, deadline = state.outbox.durable, time.monotonic() + limit
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                why = f" ({state.silence})" if state.silence else ""
                message = f"the collector at {state.address} did not {what} within {limit:g} s{why}"
                raise CollectorError(f"{message}: check that it runs (shardkeep collect)")
            waiter.acquire(timeout=min(left_s, threading.TIMEOUT_MAX))

    def _wait_for_room(self) -> None:
        """Wait until more rows may be submitted; nothing more was added if this raises."""
        state = self.state
        if self._on_full != "spill":
            # A slot that becomes free soon is faster than the socket.
            self.wait(
                lambda: state.has_room() and state.has_slots(),
                None,
                "take more rows",
                while_progress=self._on_full == "block",
            )
            return
        failure: DurabilityError | None = None

        def request_retry() -> None:
            # In the guard: the thread must not clear it for an attempt that it has just made.
            state.retries_spill = True
            state.wake()

        def is_decided() -> bool:
            # In the guard: in the middle of its attempt the thread has cleared `spill_failure`.
            nonlocal failure
            failure = state.outbox.spill_failure
            return not state.retries_spill and (failure is not None or state.has_room())

        state.run(request_retry)
        self.wait(lambda: state.run(is_decided), None, "take more rows")
        if failure is not None:
            raise failure


def _keyed_payloads(schema: Schema, rows: np.ndarray[Any, Any], key: Any) -> list[Payload]:
    keys = np.atleast_1d(np.asarray(key))
    if keys.shape != rows.shape[:1] or keys.dtype.kind not in "iu":
        message = f"dataset {schema.name!r}: {len(rows)} rows need {len(rows)} ints as key="
        raise SchemaError(f"{message}, not {keys.dtype} of shape {keys.shape}")
    keys = keys.astype("<i8")
    step = min(max(SLOT_BYTES // (schema.row_bytes + 8), 1), MOST_NUMBERED_ROWS)
    payloads = []
    for start in range(0, len(rows), step):
        some, numbers = rows[start : start + step], keys[start : start + step]
        data = np.concatenate([numbers.view(np.uint8), encode_rows(some)])
        payloads.append(Payload(schema.name, len(some), data, schema=schema, keyed=True))
    return payloads
