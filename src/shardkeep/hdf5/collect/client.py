"""`Client`: how a worker sends rows to a collector."""

from __future__ import annotations

import atexit
import contextlib
import os
import time
import warnings
import weakref
from types import TracebackType
from typing import Any, Literal

import numpy as np

from shardkeep.errors import CollectorError, SchemaError, ShardkeepError
from shardkeep.hdf5.collect.finding import Finder
from shardkeep.hdf5.collect.lengths import check_length, check_name_length
from shardkeep.hdf5.collect.link import Link
from shardkeep.hdf5.collect.outbox import Outbox
from shardkeep.hdf5.collect.payload import encode_rows
from shardkeep.hdf5.collect.pen import Pen, Rows
from shardkeep.hdf5.collect.schema import Schema
from shardkeep.hdf5.collect.slots import SLOT_BYTES
from shardkeep.hdf5.collect.spill import SpillFile
from shardkeep.hdf5.rows import as_first_rows, as_more_rows, check_name, chunk_rows_of

__all__ = ["Client", "OnFull"]

OnFull = Literal["block", "raise", "spill"]

_LINGER_S = 0.05


class Client:
    """One worker's way to a collector; made by `shardkeep.hdf5.connect`.

    Notes
    -----
    **Order.** Rows of one client are in each dataset in the order of its calls. Those of several clients
    lie between each other in runs.

    **Durability.** `flush` returns when every row appended before is durable. Rows that were not flushed are
    sent within 50 ms and durable a second later, if nobody dies before.

    **Interruptions.** If the connection is cut or the collector restarted, the client connects again and
    sends what was not durable; each row is stored once. Nothing waits for longer than `timeout_s`.

    **Processes.** After ``fork``, in the child, and when it is unpickled, it is a client of its own with the
    same rank; what was appended before belongs to the parent. Threads may share it.
    """

    def __init__(
        self,
        *,
        place: str,
        rank: int,
        world_size: int,
        timeout_s: float,
        key_file: str | None,
        on_full: OnFull,
        spill_dir: str | None,
        memory_bytes: int,
    ) -> None:
        self.rank = rank
        self.timeout_s = timeout_s
        self._options: dict[str, Any] = {
            "place": place,
            "rank": rank,
            "world_size": world_size,
            "timeout_s": timeout_s,
            "key_file": key_file,
            "on_full": on_full,
            "spill_dir": spill_dir,
            "memory_bytes": memory_bytes,
        }
        self._on_full = on_full
        self._link: Link | None = None
        self._spill: SpillFile | None = None
        self._closed = False

    # -- writing -------------------------------------------------------------------------------------------

    def append(self, name: str, rows: Any, *, key: Any = None) -> None:
        """Add rows to a dataset; the first ones create it.

        Parameters
        ----------
        name : str
            Parts between "/" are groups.
        rows : array_like, shape (n, ...)
            The leading axis counts rows; a single number or str is one row of shape (). The first rows that
            the collector hears of fix dtype and row shape. Later ones must have that shape and a dtype that
            casts to it without loss; plain Python numbers need only fit. Text is str.
        key : array_like of int, shape (n,), optional
            The numbers of these rows in a dataset declared with ``rows=N``. Each row is written once.

        Raises
        ------
        SchemaError
            Rows or name do not fit; nothing was added.
        CollectorError
            What the collector said about earlier rows; or it does not get on and `timeout_s` is over.

        Notes
        -----
        The rows are copied; nothing waits for the collector but the first rows of each dataset.
        """
        link = self._link
        if link is None:
            link = self._use()
        with link.lock:
            pen = link.pens.get(name)
            if pen is not None and key is None and not link.trouble:
                fill = pen.fill
                if type(rows) in pen.scalars:
                    try:
                        pen.array[fill] = rows
                    except OverflowError:
                        raise SchemaError(
                            f"dataset {name!r} has {pen.schema.dtype}: {rows} does not fit"
                        ) from None
                    pen.fill = fill + 1
                    if fill == 0:
                        link.dirty[name] = pen
                        link.begin_linger()
                    if fill + 1 == pen.capacity:
                        self._seal(link)
                    return
                if (
                    type(rows) is np.ndarray
                    and rows.dtype is pen.accepted
                    and rows.shape[1:] == pen.row_shape
                ):
                    after = fill + len(rows)
                    if after < pen.capacity:
                        pen.array[fill:after] = rows
                        pen.fill = after
                        if fill == 0 and after:
                            link.dirty[name] = pen
                            link.begin_linger()
                        return
            self._append(link, name, pen, rows, key)

    def declare(
        self,
        name: str,
        dtype: Any,
        row_shape: tuple[int, ...] = (),
        *,
        rows: int | None = None,
        chunk_rows: int | None = None,
        compression: str | None = None,
        compression_level: int | None = None,
        shuffle: bool | None = None,
        attributes: dict[str, Any] | None = None,
    ) -> None:
        """Make a dataset before its first rows, in another way than they would.

        Parameters
        ----------
        name, dtype, row_shape
            As rows would give them; ``str`` is text.
        rows : int, optional
            Makes a dataset of exactly that many rows, to be written in any order with ``key=``. Rows that
            nobody writes are zeros.
        chunk_rows : int, optional
            512 KiB of rows without it.
        compression, compression_level, shuffle
            As of `WorkerFile.declare`. The rows of an unfinished chunk are in the
            file when the collector ends.
        attributes : dict, optional
            Of the dataset.

        Raises
        ------
        SchemaError
            It cannot be made, or is there and differs in dtype or row shape.

        Notes
        -----
        Every rank may declare the same; the first one counts.
        """
        from shardkeep.hdf5.collect.declaring import make_schema

        schema = make_schema(
            name, dtype, row_shape, rows, chunk_rows, compression, compression_level, shuffle, attributes
        )
        link = self._use()
        with link.lock:
            known = self._declare(link, schema).schema
        if not known.fits(schema):
            from shardkeep.hdf5.rows import describe

            have, wanted = describe(known.dtype, known.row_shape), describe(schema.dtype, schema.row_shape)
            raise SchemaError(
                f"dataset {name!r} has {have}, and is declared with {wanted}: declare the same everywhere"
            )

    def flush(self, timeout_s: float | None = None) -> None:
        """Return when every row that was appended before is durable.

        Raises
        ------
        CollectorError
            Not within `timeout_s` (that of `connect` without it); the message says what is wrong. The rows
            are kept, and sent as soon as that is possible.
        """
        link = self._use()
        with link.lock:
            link.seal()
            target = link.want_durable()
            self._wait(link, lambda: link.outbox.durable >= target, timeout_s, "make the rows durable")
            self._raise_trouble(link)

    def close(self) -> None:
        """Make everything durable and leave.

        Raises
        ------
        CollectorError
            As `flush`. The client has left all the same.
        """
        link = self._link
        if link is None:
            self._closed = True
            return
        try:
            self.flush()
        finally:
            self._shut(link)

    # -- what is there -------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where the collector is."""
        link = self._link
        return str(self._options["place"]) if link is None else link.address

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        with contextlib.suppress(ShardkeepError):
            self.close()

    def __del__(self) -> None:
        link = getattr(self, "_link", None)
        if link is not None:
            self._shut(link)

    def __reduce__(self) -> Any:
        return _rebuild, (self._options,)

    def __repr__(self) -> str:
        return f"<Client of rank {self.rank}, collector {self.address!r}>"

    # -- inside --------------------------------------------------------------------------------------------

    def _use(self) -> Link:
        """Return the link; make one in a forked or unpickled client."""
        if self._closed:
            raise CollectorError(f"the client of rank {self.rank} is closed: connect again")
        link = self._link
        if link is not None:
            return link
        options = self._options
        outbox = Outbox(options["memory_bytes"])
        identity = None
        if options["spill_dir"] is not None:
            self._spill = outbox.spill = SpillFile(options["spill_dir"], os.urandom(16), self.rank)
            identity = self._spill.identity
            outbox.adopt(self._spill.left)
        finder = Finder(options["place"], options["key_file"])
        link = Link(finder, finder.what, self.rank, options["world_size"], outbox, _LINGER_S, identity)
        self._link = link
        _alive.add(self)
        if self._on_full != "spill":
            try:
                with link.lock:
                    self._wait(link, lambda: link.is_ready, None, "answer")
            except BaseException:
                self._shut(link)
                self._closed = False
                raise
        return link

    def _append(self, link: Link, name: str, pen: Pen | None, rows: Any, key: Any) -> None:
        self._raise_trouble(link)
        if link.ended is not None:
            raise link.ended
        array = rows if getattr(rows, "shape", None) or isinstance(rows, (list, tuple)) else _one_row(rows)
        if pen is None:
            if key is not None:
                raise SchemaError(
                    f"dataset {name!r} has no known length: declare(…, rows=N) it before append(key=)"
                )
            first = as_first_rows(name, array)
            check_name(name, link.pens)
            shape = first.shape[1:]
            check_length(name, first, link.largest)
            pen = self._declare(
                link, Schema(name, first.dtype, shape, chunk_rows_of(first.dtype, shape) % (1 << 40))
            )
        schema = pen.schema
        new = as_more_rows(name, array, schema.dtype, schema.row_shape)
        text_bytes = check_length(name, new, link.largest)
        if (schema.rows is None) != (key is None):
            placed = "by number: give key=" if key is None else "in the order of their coming: give no key="
            raise SchemaError(f"dataset {name!r} has rows that are placed {placed}")
        if key is not None:
            self._append_keyed(link, schema, new, key)
            return
        if type(rows) is np.ndarray and new.dtype is rows.dtype:
            pen.accepted = rows.dtype
        start = 0
        while start < len(new):
            count = min(len(new) - start, pen.capacity - pen.fill)
            pen.array[pen.fill : pen.fill + count] = new[start : start + count]
            if pen.fill == 0:
                link.dirty[name] = pen
                link.begin_linger()
            pen.fill += count
            start += count
            if pen.fill == pen.capacity:
                self._seal(link)
        pen.text_bytes += text_bytes
        if pen.text_bytes >= SLOT_BYTES:
            self._seal(link)

    def _append_keyed(self, link: Link, schema: Schema, rows: np.ndarray[Any, Any], key: Any) -> None:
        keys = np.atleast_1d(np.asarray(key))
        if keys.shape != rows.shape[:1] or keys.dtype.kind not in "iu":
            message = f"dataset {schema.name!r}: {len(rows)} rows need {len(rows)} whole numbers as key="
            raise SchemaError(f"{message}, not {keys.dtype} of shape {keys.shape}")
        keys = keys.astype("<i8")
        step = max(SLOT_BYTES // max(schema.row_bytes + 8, 1), 1)
        for start in range(0, len(rows), step):
            self._wait_for_room(link)
            one, its = rows[start : start + step], keys[start : start + step]
            data = np.concatenate([its.view(np.uint8), encode_rows(one)])
            link.outbox.add([Rows(schema.name, len(one), data, keyed=True)])
        link.wake()

    def _declare(self, link: Link, schema: Schema) -> Pen:
        check_name_length(schema.name)
        if self._on_full == "spill" and not link.is_ready:
            pen = link.pens[schema.name] = Pen(schema)
            return pen
        known = link.pens.get(schema.name)
        request = link.request(schema)
        try:
            self._wait(
                link, lambda: link.replies[request] is not None, None, f"answer about dataset {schema.name!r}"
            )
        finally:
            reply = link.replies.pop(request)
        if isinstance(reply, ShardkeepError):
            raise reply
        assert reply is not None
        if known is None:
            known = link.pens.get(schema.name)
        if known is None:
            known = link.pens[schema.name] = Pen(reply)
        return known

    def _seal(self, link: Link) -> None:
        self._wait_for_room(link)
        link.ask_for_slots()
        link.seal()
        link.wake()
        if self._on_full != "spill":
            # Shared memory that is free in a moment is better than a way through the socket.
            self._wait(link, link.has_slots, None, "take more rows", patient=True)

    def _wait_for_room(self, link: Link) -> None:
        outbox = link.outbox
        if not outbox.is_full or self._on_full == "spill":
            return
        link.wake()
        self._wait(link, lambda: not outbox.is_full, None, "take more rows", patient=self._on_full == "block")

    def _wait(
        self, link: Link, done: Any, timeout_s: float | None, what: str, *, patient: bool = False
    ) -> None:
        """Wait for the link's thread; the lock is held, and free while waiting."""
        limit = self.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit
        durable = link.outbox.durable
        while not done():
            if link.ended is not None:
                raise link.ended
            if link.trouble:
                self._raise_trouble(link)
            if patient and link.outbox.durable != durable:
                durable, deadline = link.outbox.durable, time.monotonic() + limit
            left = deadline - time.monotonic()
            if left <= 0:
                why = f" ({link.silence})" if link.silence else ""
                message = f"the collector at {link.address} did not {what} within {limit:g} s{why}"
                raise CollectorError(f"{message}: see that it runs (shardkeep collect)")
            link.changed.wait(left)

    def _raise_trouble(self, link: Link) -> None:
        if link.trouble:
            raise link.trouble.popleft()

    def _shut(self, link: Link) -> None:
        self._closed = True
        self._link = None
        _alive.discard(self)
        link.leave(2.0)
        spill, self._spill = self._spill, None
        if spill is not None:
            spill.close()


def _one_row(value: Any) -> Any:
    return np.asarray(value)[None] if isinstance(value, np.generic) else [value]


def _rebuild(options: dict[str, Any]) -> Client:
    return Client(**options)


_alive: weakref.WeakSet[Client] = weakref.WeakSet()
# Sockets of a parent process are never closed in a child: their threads are not there.
_inherited: list[Link] = []


def _after_fork() -> None:
    for one in list(_alive):
        link, one._link = one._link, None
        one._spill = None
        if link is not None:
            _inherited.append(link)
    _alive.clear()


@atexit.register
def _close_all() -> None:
    for one in list(_alive):
        try:
            one.close()
        except (ShardkeepError, OSError) as error:
            warnings.warn(
                f"rows of rank {one.rank} may be lost at exit: {error}", RuntimeWarning, stacklevel=2
            )


os.register_at_fork(after_in_child=_after_fork)
