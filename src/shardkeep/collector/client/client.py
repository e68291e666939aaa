"""`Client`: how a worker sends rows to a collector."""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from shardkeep.collector.client import shutdown
from shardkeep.collector.client.discovery import Finder
from shardkeep.collector.client.link import Link
from shardkeep.collector.client.outbox import Outbox
from shardkeep.collector.client.spill import SpillFile
from shardkeep.collector.client.steps import Steps
from shardkeep.collector.client.tray import Tray
from shardkeep.collector.client.writing import OnFull, Writing
from shardkeep.collector.protocol.settings import check_seconds
from shardkeep.errors import CollectorError, SchemaError, ShardkeepError

__all__ = ["Client", "OnFull"]

_LINGER_S = 0.05
_ndarray = np.ndarray


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

    **The end.** `close` makes everything durable. A client that is dropped without it goes on in the
    background; so does each one when the program ends, also by an exception or as a child of
    ``multiprocessing``, for `timeout_s` at most. What was not stored by then is told by one line on stderr
    and a `ResourceWarning`. After ``os._exit`` and signals that kill, only what was flushed is certain.

    **Processes.** After ``fork``, in the child, and when it is unpickled, it is a client of its own with the
    same rank; what was appended before belongs to the parent. Threads may share it; the rows of each thread
    are in the order of its calls.

    **Signal handlers** may use it while another call of it waits. In the middle of one `close` happens in
    the background, any other call is refused with a `LockError`. A handler that raises, as that of
    Ctrl-C does, leaves the client usable; the rows of the call that it ended were all added or none, or, of
    more than the 512 KiB of a batch, a first part of them.
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
        self._link: Link | None = None
        self._writing: Writing | None = None
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
        self._tray: Tray | None = None
        self._answered: Link | None = None
        self._closed = False
        self._opening = Steps(rank)
        _alive.add(self)

    @property
    def timeout_s(self) -> float:
        """How long a call may wait, in seconds; may be changed at any time."""
        return self._timeout_s

    @timeout_s.setter
    def timeout_s(self, seconds: float) -> None:
        self._timeout_s = seconds = check_seconds("timeout_s", seconds)
        if self._link is not None:
            self._link.timeout_s = seconds

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
        DurabilityError
            There is no room for more, and the disk of `spill_dir` is full too. Append these rows again when
            there is: the client goes on, and nothing that was added before is lost.
        LockError
            From a signal handler in the middle of another call.

        Notes
        -----
        The rows are copied; nothing waits for the collector but the first rows of each dataset. If there was
        no room nothing was added; with ``on_full="block"`` a first part of rows of more than 512 KiB may be.
        """
        tray = self._tray
        if tray is None:
            tray = self._use().tray
        # As `Tray.do`, without a call.
        with tray.lock:
            if tray.busy:
                raise tray.interrupted()
            tray.busy = True
            try:
                pen = tray.pens.get(name)
                if pen is not None and key is None and not tray.attention:
                    sheet = pen.sheet
                    fill = sheet.fill
                    if type(rows) in pen.scalars or (
                        pen.largest and type(rows) is float and -pen.largest <= rows <= pen.largest
                    ):
                        if fill < sheet.limit:
                            if fill == 0:
                                tray.mark(pen)
                            try:
                                sheet.array[fill] = rows
                            except OverflowError:
                                raise SchemaError(
                                    f"dataset {name!r} has {pen.schema.dtype}: {rows} does not fit"
                                ) from None
                            sheet.fill = fill + 1
                            if fill + 1 == sheet.limit:
                                tray.hand_over(sheet)
                            return
                    elif (
                        type(rows) is _ndarray
                        and rows.dtype is pen.accepted
                        and rows.shape[1:] == pen.row_shape
                        and rows.ndim
                    ):
                        after = fill + len(rows)
                        if fill < after <= sheet.limit:
                            if fill == 0:
                                tray.mark(pen)
                            sheet.array[fill:after] = rows
                            sheet.fill = after
                            if after == sheet.limit:
                                tray.hand_over(sheet)
                            return
            finally:
                tray.busy = False
        self._calls().append(name, rows, key)

    def declare(
        self,
        name: str | Iterable[str],
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
        """Make a dataset before its first rows, in another way than they would, or many at once.

        Parameters
        ----------
        name : str or iterable of str
            Several are made alike, without waiting for the answer about each.
        dtype, row_shape
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
            Of the dataset, as by `set_attribute`; those that it has already stay as they are.

        Raises
        ------
        SchemaError
            It cannot be made, or is there and differs in dtype or row shape (others of `name` were made); or
            an attribute is none that HDF5 keeps (nothing was made).
        CollectorError, DurabilityError, LockError
            As of `append`.

        Notes
        -----
        Every rank may declare the same; the first one counts. This waits for the answer and not for the
        disk: the dataset is durable with whatever is flushed after it, and a second later. A collector that
        is killed before, and started again, is told of it again before any row. Should somebody else have
        made another dataset of that name by then, the rows of this client are refused by a `SchemaError`
        that says so.
        """
        from shardkeep.collector.client.declaring import make_schema
        from shardkeep.collector.protocol.values import pack_attribute

        names = [name] if isinstance(name, str) else list(name)
        how = chunk_rows, compression, compression_level, shuffle
        schemas = [make_schema(one, dtype, row_shape, rows, *how) for one in names]
        values = [
            (one, pack_attribute(key, value, one, if_none=True))
            for one in names
            for key, value in (attributes or {}).items()
        ]
        self._calls().declare(schemas, values)

    def put(self, name: str, value: Any) -> None:
        """Write a scalar or an array once, without a row axis; it is durable when this returns.

        Parameters
        ----------
        name : str
            Parts between "/" are groups.
        value : array_like or str

        Raises
        ------
        SchemaError
            Somebody put another value under that name (every rank may put the same one), it is a dataset
            with rows, HDF5 has no such type, or it is too long for a message of the collector.
        CollectorError, DurabilityError, LockError
            As of `append`.

        Notes
        -----
        With ``on_full="spill"``, while there is no collector, it does not wait; an error then comes later.
        """
        from shardkeep.collector.protocol.values import pack_put

        self._calls().put(name, pack_put(name, value), f"value {name!r}")

    def set_attribute(self, name: str, value: Any, *, on: str = "/") -> None:
        """Set an attribute; it is durable when this returns. The last one that is set holds.

        Parameters
        ----------
        name : str
        value : array_like, str or h5py.Empty
            Of any type that HDF5 keeps in an attribute.
        on : str
            The dataset, value or group that has it; "/" is the whole file. It may be made later; what is
            nothing of that when the collector ends becomes a group.

        Raises
        ------
        SchemaError
            Name or type are none that HDF5 keeps, or it is too long for a message of the collector.
        CollectorError, DurabilityError, LockError
            As of `append`.
        """
        from shardkeep.collector.protocol.values import pack_attribute

        self._calls().put(on, pack_attribute(name, value, on), f"attribute {name!r} of {on!r}")

    def flush(self, timeout_s: float | None = None) -> None:
        """Return when every row that was appended before is durable.

        Raises
        ------
        CollectorError
            Not within `timeout_s` (that of `connect` without it); the message says what is wrong. The rows
            are kept, and sent as soon as that is possible.
        LockError
            From a signal handler in the middle of another call.
        """
        self._calls().flush(None if timeout_s is None else check_seconds("timeout_s", timeout_s))

    def close(self) -> None:
        """Make everything durable and leave.

        Raises
        ------
        CollectorError
            As `flush`. The client has left all the same.
        """
        self._leave(raises=True)

    # -- what is there -------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where the collector is."""
        link = self._link
        return str(self._options["place"]) if link is None else link.address

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self.close()
            return
        with contextlib.suppress(ShardkeepError):
            self._leave(raises=False)

    def __del__(self) -> None:
        if hasattr(self, "_closed"):
            self._drop()

    def __reduce__(self) -> Any:
        return _rebuild, (self._options,)

    def __repr__(self) -> str:
        return f"<Client of rank {self.rank}, collector {self.address!r}>"

    # -- inside --------------------------------------------------------------------------------------------

    def _use(self) -> Link:
        """Return the link, once somebody answers; make it in a forked or unpickled client."""
        link = self._link
        if link is None:
            link = self._opening.do(self._open)
            if self._closed:  # by a signal handler that came in between
                self._drop()
                raise self._is_closed()
        if link is not self._answered and self._options["on_full"] != "spill":
            try:
                Writing(link, "block").wait(lambda: link.is_ready, None, "answer")
            except BaseException:
                self._opening.do(self._give_up, link)
                raise
            self._answered = link
        return link

    def _open(self) -> Link:
        if self._closed:
            raise self._is_closed()
        if self._link is not None:
            return self._link
        options = self._options
        outbox = Outbox(options["memory_bytes"])
        identity = None
        if options["spill_dir"] is not None:
            spill = SpillFile(options["spill_dir"], os.urandom(16), self.rank)
            identity = spill.identity
            outbox.adopt(spill)
        finder = Finder(options["place"], options["key_file"])
        size = options["world_size"]
        link = Link(finder, finder.what, self.rank, size, outbox, _LINGER_S, self.timeout_s, identity)
        shutdown.register(link)
        self._writing = Writing(link, options["on_full"])
        self._link, self._tray = link, link.tray
        return link

    def _calls(self) -> Writing:
        self._use()
        writing = self._writing
        if writing is None:
            raise self._is_closed()
        return writing

    def _is_closed(self) -> CollectorError:
        return CollectorError(f"the client of rank {self.rank} is closed: connect again")

    def _leave(self, *, raises: bool) -> None:
        link, writing = self._link, self._writing
        if link is None or writing is None:
            self._closed = True
            return
        if link.tray.is_interrupted():
            self._drop()
            return
        leave_by = time.monotonic() + self.timeout_s
        try:
            writing.flush(None)
        except ShardkeepError:
            # The error tells what may be lost; but an error about some rows leaves time for the others.
            left_s = max(leave_by - time.monotonic(), 0.0)
            link.quiet = raises and left_s == 0
            self._drop(left_s)
            shutdown.finish(link)
            raise
        except BaseException:
            self._drop()
            raise
        self._drop(max(leave_by - time.monotonic(), 0.0))
        shutdown.finish(link)

    def _drop(self, timeout_s: float | None = None) -> None:
        """Let the link deliver what is left in the background; takes no lock."""
        self._closed = True
        self._let_go(self.timeout_s if timeout_s is None else timeout_s)

    def _let_go(self, timeout_s: float) -> None:
        link, self._link = self._link, None
        self._tray = self._writing = self._answered = None
        if link is not None:
            link.leave(timeout_s)

    def _give_up(self, link: Link) -> None:
        if self._link is link:
            self._let_go(0.0)


def _rebuild(options: dict[str, Any]) -> Client:
    return Client(**options)


_alive: weakref.WeakSet[Client] = weakref.WeakSet()


def _after_fork() -> None:
    for one in list(_alive):
        # The rows are the parent's, and a thread that is not here may hold the lock.
        one._link = one._tray = one._writing = one._answered = None
        one._opening = Steps(one.rank)


os.register_at_fork(after_in_child=_after_fork)
