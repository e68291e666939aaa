"""`Writing`: what a client's calls do when there is more to it than one more row on a sheet."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from shardkeep.collector.client.link import Link
from shardkeep.collector.client.pen import Pen, Rows, Sheet
from shardkeep.collector.client.tray import Request
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

__all__ = ["OnFull", "Writing"]

OnFull = Literal["block", "raise", "spill"]


class Writing:
    """The calls of one client, on one link.

    Parameters
    ----------
    link : Link
    on_full : {"block", "raise", "spill"}
    """

    def __init__(self, link: Link, on_full: OnFull) -> None:
        self._link = link
        self._tray = link.tray
        self._on_full = on_full

    # -- rows ----------------------------------------------------------------------------------------------

    def append(self, name: str, rows: Any, key: Any) -> None:
        """Add rows, also the first ones of their dataset, many, or by number."""
        self.check()
        link = self._link
        pen = self._tray.pens.get(name)
        if pen is not None and key is None and pen.knows(rows):
            known = pen
            self._in_parts(len(rows), lambda start: self._write(known, rows, start, known.schema.row_bytes))
            return
        array = rows if getattr(rows, "shape", None) or isinstance(rows, (list, tuple)) else _one_row(rows)
        if pen is None:
            if isinstance(rows, (list, tuple)) and not rows:
                return  # of no type: the first rows say what it is
            if key is not None:
                raise SchemaError(
                    f"dataset {name!r} has no known length: declare(…, rows=N) it before append(key=)"
                )
            first = as_first_rows(name, array)
            check_name(name, tuple(self._tray.pens))
            shape = first.shape[1:]
            check_length(name, first, link.largest)
            chunk_rows = chunk_rows_of(first.dtype, shape) % (1 << 40)
            pen = self._answer(self._ask(Schema(name, first.dtype, shape, chunk_rows)))
        schema = pen.schema
        new = as_more_rows(name, array, schema.dtype, schema.row_shape)
        text_bytes = check_length(name, new, link.largest)
        if (schema.rows is None) != (key is None):
            placed = "by number: give key=" if key is None else "in the order of their coming: give no key="
            raise SchemaError(f"dataset {name!r} has rows that are placed {placed}")
        if key is not None:
            pieces = _keyed(schema, new, key)
            self._in_parts(len(pieces), lambda start: self._lay_down(pieces, start))
            return
        if type(rows) is np.ndarray and new.dtype is rows.dtype and not rows.dtype.hasobject:
            pen.accepted = rows.dtype
        row_bytes = schema.row_bytes + text_bytes // max(len(new), 1)
        self._in_parts(len(new), lambda start: self._write(pen, new, start, row_bytes))

    def _in_parts(self, count: int, add: Callable[[int], int]) -> None:
        """Add all rows, as many at a time as there is room for; with "raise" all of them or none."""
        start = 0
        while start < count:
            before = start
            start = self._tray.do(add, start)
            if start == before:
                self._wait_for_room()

    def _lay_down(self, pieces: list[Rows], start: int) -> int:
        if not self._link.has_room():
            return start
        end = len(pieces) if self._on_full == "raise" else start + 1
        self._tray.full.extend(pieces[start:end])
        self._tray.wake()
        return end

    def _write(self, pen: Pen, rows: np.ndarray[Any, Any], start: int, row_bytes: int) -> int:
        """Write rows on sheets; return which one is the next, the same if there is no room."""
        tray, sheet, left = self._tray, pen.sheet, len(rows) - start
        if left > sheet.limit - sheet.fill or self._link.outbox.spill_failure is not None:
            if not self._has_room(pen):
                return start
            if sheet.fill or sheet.limit < pen.capacity:
                if sheet.fill:
                    tray.hand_over(sheet)
                sheet = pen.sheet = pen.fresh(tray.slots)
            if left > sheet.limit:
                return self._write_many(pen, rows, start, row_bytes)
        fill = sheet.fill + left
        tray.mark(pen)
        sheet.array[sheet.fill : fill] = rows[start:]
        if rows.dtype.hasobject:
            sheet.text_bytes += row_bytes * left
        sheet.fill = fill
        if fill == sheet.limit or sheet.text_bytes >= SLOT_BYTES:
            tray.hand_over(sheet)
        return len(rows)

    def _has_room(self, pen: Pen) -> bool:
        waits = pen.has_many and self._on_full != "spill"
        return self._link.has_room() and (not waits or self._link.has_slots())

    def _write_many(self, pen: Pen, rows: np.ndarray[Any, Any], start: int, row_bytes: int) -> int:
        """Hand over sheets that are filled here; one list is extended, so it is all of them or none."""
        link, tray = self._link, self._tray
        sheets: list[Sheet] = []
        room = link.outbox.most_bytes - link.outbox.bytes - tray.full_bytes
        pen.has_many = True
        while start < len(rows) and (not sheets or self._on_full == "raise" or room > 0):
            sheet = pen.fresh(tray.slots)
            count = min(len(rows) - start, sheet.limit)
            sheet.array[:count] = rows[start : start + count]
            sheet.fill = sheet.limit = count
            if rows.dtype.hasobject:
                sheet.text_bytes = row_bytes * count
            room -= sheet.size
            sheets.append(sheet)
            start += count
        tray.full.extend(sheets)
        tray.wake()
        return start

    # -- datasets and values -------------------------------------------------------------------------------

    def declare(self, schemas: list[Schema], attributes: list[tuple[str, np.ndarray[Any, Any]]]) -> None:
        """Have datasets made as they are, all at once, and then attributes of them.

        Parameters
        ----------
        schemas : list of Schema
        attributes : list of (str, ndarray)
            Each with the name of its dataset, as `shardkeep.collector.protocol.values` packs them.
        """
        self.check()
        for name, data in attributes:
            check_value_length(f"an attribute of {name!r}", data, self._link.largest)
        requests = [self._ask(one) for one in schemas]
        for request, wanted in zip(requests, schemas, strict=True):
            known = self._answer(request).schema
            if not known.fits(wanted):
                is_now = f"dataset {known.name!r} has {describe(known.dtype, known.row_shape)}"
                declared = f"and is declared with {describe(wanted.dtype, wanted.row_shape)}"
                raise SchemaError(f"{is_now}, {declared}: declare the same everywhere")
        values = [Rows(name, 0, data, is_value=True) for name, data in attributes]
        self._in_parts(len(values), lambda start: self._lay_down(values, start))

    def _ask(self, schema: Schema) -> Request:
        check_name_length(schema.name)
        return self._tray.do(self._ask_for, schema)

    def _answer(self, request: Request) -> Pen:
        """Return the pen for rows of a dataset, with the schema that it really has."""
        what = f"answer about dataset {request.schema.name!r}"
        self.wait(lambda: request.pen is not None or request.error is not None, None, what)
        if request.error is not None:
            raise request.error
        assert request.pen is not None
        return request.pen

    def _ask_for(self, schema: Schema) -> Request:
        tray = self._tray
        pen = tray.pens.get(schema.name)
        if pen is None and self._on_full == "spill" and not self._link.is_ready:
            # Declared to the collector, as all are, when it is there.
            pen = tray.pens[schema.name] = Pen(schema)
        request = Request(schema, pen)
        tray.unflushed = schema.name, schema.rows is not None
        if pen is None:
            tray.requests.append(request)
            tray.wake()
        return request

    def put(self, name: str, data: np.ndarray[Any, Any], what: str) -> None:
        """Have a value or an attribute stored; returns when it is durable, or raises why it was refused."""
        self.check()
        check_name_length(name)
        check_value_length(what, data, self._link.largest)
        value = Rows(name, 0, data, is_value=True)
        value.is_awaited = self._on_full != "spill" or self._link.is_ready
        self._in_parts(1, lambda start: self._lay_down([value], start))
        if not value.is_awaited:
            return
        try:
            # Not for the value itself: it may be in the spill file meanwhile, and come back another object.
            ticket = self._tray.do(self._tray.new_ticket)
            done = lambda: value.error is not None or self._tray.durable_ticket >= ticket  # noqa: E731
            self.wait(done, None, f"store {what}")
        finally:
            value.is_awaited = False
        if value.error is not None:
            raise value.error
        self.check(ended=False)

    # -- waiting -------------------------------------------------------------------------------------------

    def flush(self, timeout_s: float | None) -> None:
        """Return when everything is durable."""
        ticket = self._tray.do(self._ask_for_everything)
        self.wait(lambda: self._tray.durable_ticket >= ticket, timeout_s, "make the rows durable")
        self.check(ended=False)

    def _ask_for_everything(self) -> int:
        tray = self._tray
        if tray.unflushed is not None:
            # A declaration has no number of its own that could be waited for: no rows, behind it, have one.
            name, keyed = tray.unflushed
            tray.full.append(Rows(name, 0, np.empty(0, np.uint8), keyed=keyed))
            tray.unflushed = None
        return tray.new_ticket()

    def check(self, *, ended: bool = True) -> None:
        """Raise what the collector said about earlier rows."""
        tray = self._tray
        if tray.trouble:
            raise tray.trouble.popleft()
        if ended and tray.ended is not None:
            raise tray.ended

    def wait(
        self, done: Callable[[], bool], timeout_s: float | None, what: str, *, patient: bool = False
    ) -> None:
        """Wait for the link's thread; a `patient` one for as long as rows become durable."""
        link = self._link
        limit = self._link.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit
        durable = link.outbox.durable
        while True:
            waiter = self._tray.do(self._tray.new_waiter)
            if done():
                return
            self.check()
            if patient and link.outbox.durable != durable:
                durable, deadline = link.outbox.durable, time.monotonic() + limit
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                why = f" ({link.silence})" if link.silence else ""
                message = f"the collector at {link.address} did not {what} within {limit:g} s{why}"
                raise CollectorError(f"{message}: see that it runs (shardkeep collect)")
            waiter.acquire(timeout=min(left_s, threading.TIMEOUT_MAX))

    def _wait_for_room(self) -> None:
        """Raise if none comes: then nothing more was added."""
        link, tray = self._link, self._tray
        if self._on_full == "spill":
            tray.do(self._ask_to_try_again)
            failure: DurabilityError | None = None

            def is_decided() -> bool:
                nonlocal failure
                failure = link.outbox.spill_failure
                return not tray.retry and (failure is not None or link.has_room())

            # Within `do`: while the thread tries, it has failed and not given up.
            self.wait(lambda: tray.do(is_decided), None, "take more rows")
            if failure is not None:
                raise failure
            return
        # Shared memory that is free in a moment is better than a way through the socket.
        self.wait(
            lambda: link.has_room() and link.has_slots(),
            None,
            "take more rows",
            patient=self._on_full == "block",
        )

    def _ask_to_try_again(self) -> None:
        # Within `do`: the thread must not take it for what it has just done.
        self._tray.retry = True
        self._tray.wake()


def _keyed(schema: Schema, rows: np.ndarray[Any, Any], key: Any) -> list[Rows]:
    keys = np.atleast_1d(np.asarray(key))
    if keys.shape != rows.shape[:1] or keys.dtype.kind not in "iu":
        message = f"dataset {schema.name!r}: {len(rows)} rows need {len(rows)} whole numbers as key="
        raise SchemaError(f"{message}, not {keys.dtype} of shape {keys.shape}")
    keys = keys.astype("<i8")
    step = min(max(SLOT_BYTES // (schema.row_bytes + 8), 1), MOST_NUMBERED_ROWS)
    pieces = []
    for start in range(0, len(rows), step):
        one, its = rows[start : start + step], keys[start : start + step]
        data = np.concatenate([its.view(np.uint8), encode_rows(one)])
        pieces.append(Rows(schema.name, len(one), data, keyed=True))
    return pieces


def _one_row(value: Any) -> Any:
    return np.asarray(value)[None] if isinstance(value, (np.generic, np.ndarray)) else [value]
