"""The client of a collector: the calls that a worker makes."""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardkeep.collector.client import shutdown
from shardkeep.collector.client.blocking_calls import BlockingCalls, OnFull
from shardkeep.collector.client.connection import Connection
from shardkeep.collector.client.discovery import Finder
from shardkeep.collector.client.outbox import Outbox
from shardkeep.collector.client.sender import Sender
from shardkeep.collector.client.spill import SpillFile
from shardkeep.collector.client.state import ReentrancyGuard, SenderState
from shardkeep.collector.protocol.settings import check_seconds
from shardkeep.errors import CollectorError, SchemaError, ShardkeepError
from shardkeep.hdf5.storage.compression import Compression

__all__ = ["Client", "ClientOptions", "OnFull"]

_ndarray = np.ndarray


@dataclass(frozen=True)
class ClientOptions:
    """Options of a client, as of `shardkeep.collector.client.connect.connect`."""

    place: str
    rank: int
    world_size: int
    timeout_s: float
    key_file: str | None
    on_full: OnFull
    spill_dir: str | None
    memory_bytes: int


class Client:
    """A client that sends the rows of one rank to a collector; `shardkeep.hdf5.connect` makes it.

    Notes
    -----
    **Order.** The rows of one client are in each dataset in the order of its calls. Runs of rows of several
    clients alternate.

    **Durability and crashes.** After `flush` returns, every row appended before it is in the file exactly
    once, after SIGKILL of any process at any instant, and after a power cut too if the collector has
    ``durability="fsync"``. Rows that were not flushed are sent within 50 ms and durable a second later. If
    the process of the client is killed before, they are lost, except those in a spill file.

    **Interruptions.** If the connection is cut or the collector restarted, the client connects again and
    sends what was not durable; each row is stored once. No call waits for longer than `timeout_s`.

    **The end.** `close` makes everything durable. A client that is dropped without it delivers its rows in
    the background, and so does each client when the program ends, also by an exception or as a child of
    ``multiprocessing``, for `timeout_s` at most. One line on stderr and a `ResourceWarning` report rows that
    were not stored by then. After ``os._exit`` and signals that kill, only flushed rows are certain.

    **Processes.** After ``fork``, in the child, and after unpickling, it is another client with the same
    rank; rows appended before belong to the parent. Threads may share it; the rows of each thread are in the
    order of its calls.

    **Signal handlers** may use it while another call of it waits. In the middle of another call, `close`
    happens in the background, and any other call is refused with a `LockError`. A handler that raises, as
    that of Ctrl-C does, leaves the client usable. The interrupted call has added all its rows or none; of
    more than the 512 KiB of a batch it may have added a first part.

    Examples
    --------
    >>> import os, tempfile, shardkeep as sk
    >>> path = os.path.join(tempfile.mkdtemp(), "all.h5")
    >>> with sk.hdf5.Collector(path) as collector:
    ...     with sk.hdf5.connect(path, sk.World(rank=0, size=1)) as client:
    ...         client.declare("loss", "f4")
    ...         client.append("loss", [0.5, 0.25])
    """

    def __init__(self, options: ClientOptions) -> None:
        self.rank = options.rank
        # Both are None before the first call, after a fork, and once the client is closed.
        self._calls: BlockingCalls | None = None
        self._state: SenderState | None = None
        self.timeout_s = options.timeout_s
        self._options = options
        self._is_closed = False
        self._opening = ReentrancyGuard(options.rank)
        _alive.add(self)

    @property
    def timeout_s(self) -> float:
        """The time that a call may wait, in seconds; may be changed at any time."""
        return self._timeout_s

    @timeout_s.setter
    def timeout_s(self, seconds: float) -> None:
        self._timeout_s = seconds = check_seconds("timeout_s", seconds)
        if self._state is not None:
            self._state.timeout_s = seconds

    def append(self, name: str, rows: Any, *, key: Any = None) -> None:
        """Add rows to a dataset; the first ones create it.

        Parameters
        ----------
        name : str
            The dataset; parts between "/" are groups.
        rows : array_like, shape (n, ...)
            The leading axis counts rows; a single number or str is one row of shape (). The first rows that
            the collector receives define dtype and row shape. Later ones must have that shape and a dtype
            that casts to it without loss; plain Python numbers need only fit. Text is str.
        key : array_like of int, shape (n,), optional
            The numbers of these rows in a dataset declared with ``rows=N``. Each row is written once.

        Raises
        ------
        SchemaError
            Rows or name do not fit; nothing was added.
        CollectorError
            The collector refused earlier rows, or nothing became durable for `timeout_s`.
        DurabilityError
            Memory and the disk of `spill_dir` are full. Append these rows again when the disk has room: the
            client stays usable, and rows that were added before are kept.
        LockError
            A signal handler called this in the middle of another call.

        Notes
        -----
        The rows are copied. Only the first rows of each dataset wait for the collector. If there was no room,
        nothing was added; with ``on_full="block"``, a first part of rows of more than 512 KiB may have been.
        """
        state = self._state
        if state is None:
            state = self._open_calls().state
        # As `ReentrancyGuard.run`, without a call.
        with state.lock:
            if state.is_busy:
                raise state.reentrancy_error()
            state.is_busy = True
            try:
                dataset = state.datasets.get(name)
                if dataset is not None and key is None and not state.has_notice:
                    chunk = dataset.chunk
                    count = chunk.rows
                    if type(rows) in dataset.scalar_types or (
                        dataset.largest_scalar
                        and type(rows) is float
                        and -dataset.largest_scalar <= rows <= dataset.largest_scalar
                    ):
                        if count < chunk.limit:
                            if count == 0:
                                state.mark_dirty(dataset)
                            try:
                                chunk.array[count] = rows
                            except OverflowError:
                                raise SchemaError(
                                    f"dataset {name!r} has {dataset.schema.dtype}: {rows} does not fit"
                                ) from None
                            chunk.rows = count + 1
                            if count + 1 == chunk.limit:
                                state.submit(dataset)
                            return
                    elif (
                        type(rows) is _ndarray
                        and rows.dtype is dataset.accepted_dtype
                        and rows.shape[1:] == dataset.row_shape
                        and rows.ndim
                    ):
                        after = count + len(rows)
                        if count < after <= chunk.limit:
                            if count == 0:
                                state.mark_dirty(dataset)
                            chunk.array[count:after] = rows
                            chunk.rows = after
                            if after == chunk.limit:
                                state.submit(dataset)
                            return
            finally:
                state.is_busy = False
        self._open_calls().append(name, rows, key)

    def declare(
        self,
        name: str | Iterable[str],
        dtype: Any,
        row_shape: tuple[int, ...] = (),
        *,
        rows: int | None = None,
        chunk_rows: int | None = None,
        compression: Compression | None = None,
        compression_level: int | None = None,
        shuffle: bool | None = None,
        attributes: dict[str, Any] | None = None,
    ) -> None:
        """Declare a dataset, or several, before the first rows: the type, and how it is stored.

        The same declaration again, also by another rank, changes nothing; the first one counts.

        Parameters
        ----------
        name : str or iterable of str
            The dataset; parts between "/" are groups. Several are declared alike, faster than one by one.
        dtype : dtype or what NumPy makes one of
            The type of one value; ``str`` is text.
        row_shape : tuple of int
            The shape of one row, without the leading axis that counts rows.
        rows : int, optional
            Makes a dataset of exactly that many rows, to be written in any order with ``append(key=)``. Rows
            that no client writes are zeros. Without it, rows are appended.
        chunk_rows : int, optional
            The rows of one chunk; without it as many as make 512 KiB.
        compression, compression_level, shuffle
            As of `shardkeep.hdf5.WorkerFile.declare`. An unfinished chunk is in the file at the end.
        attributes : dict, optional
            Attributes of the dataset, as by `set_attribute`; existing ones stay as they are.

        Raises
        ------
        SchemaError
            The dataset exists with another dtype or row shape, or cannot be made (others of `name` were
            made); or HDF5 cannot keep an attribute (nothing was made).
        PlanError
            Compression, level or `chunk_rows` are not valid.
        MissingExtraError
            zstd and blosc2 need the package hdf5plugin.
        CollectorError, DurabilityError, LockError
            As of `append`.

        Notes
        -----
        This waits for the answer and not for the disk: the dataset is durable with whatever is flushed after
        it, and a second later. If the collector is killed before and started again, the client declares the
        dataset again before it sends rows. If another client has made a different dataset of that name by
        then, the rows of this client are refused with a `SchemaError`.
        """
        from shardkeep.collector.client.declarations import make_schema
        from shardkeep.collector.protocol.values import pack_attribute

        names = [name] if isinstance(name, str) else list(name)
        storage = chunk_rows, compression, compression_level, shuffle
        schemas = [make_schema(one, dtype, row_shape, rows, *storage) for one in names]
        values = [
            (one, pack_attribute(key, value, one, if_none=True))
            for one in names
            for key, value in (attributes or {}).items()
        ]
        self._open_calls().declare(schemas, values)

    def put(self, name: str, value: Any) -> None:
        """Write a scalar or an array once, without a row axis; it is durable when this returns.

        Parameters
        ----------
        name : str
            The dataset; parts between "/" are groups.
        value : array_like or str
            The value.

        Raises
        ------
        SchemaError
            Another value has that name (every rank may put the same one), it is a dataset with rows, HDF5 has
            no such type, or the value is too long for a message of the collector.
        CollectorError, DurabilityError, LockError
            As of `append`.

        Notes
        -----
        With ``on_full="spill"`` and without a collector it does not wait; a later call raises an error.
        """
        from shardkeep.collector.protocol.values import pack_put

        self._open_calls().put(name, pack_put(name, value), f"value {name!r}")

    def set_attribute(self, name: str, value: Any, *, on: str = "/") -> None:
        """Set an attribute; it is durable when this returns. The last value that is set counts.

        Parameters
        ----------
        name : str
            The attribute.
        value : array_like, str or h5py.Empty
            A value of any type that HDF5 keeps in an attribute.
        on : str
            The dataset, value or group that has it; "/" is the whole file. It may be made later. If it is
            neither a dataset nor a value when the collector ends, it becomes a group.

        Raises
        ------
        SchemaError
            HDF5 cannot keep this name or type, or the value is too long for a message of the collector.
        CollectorError, DurabilityError, LockError
            As of `append`.
        """
        from shardkeep.collector.protocol.values import pack_attribute

        self._open_calls().put(on, pack_attribute(name, value, on), f"attribute {name!r} of {on!r}")

    def flush(self, timeout_s: float | None = None) -> None:
        """Return when every row that was appended before is durable.

        Parameters
        ----------
        timeout_s : float, optional
            The time that this may take; that of `connect` without it.

        Raises
        ------
        CollectorError
            It took longer; the message names the reason. The rows are kept, and sent as soon as possible.
        LockError
            A signal handler called this in the middle of another call.
        """
        self._open_calls().flush(None if timeout_s is None else check_seconds("timeout_s", timeout_s))

    def close(self) -> None:
        """Make everything durable and disconnect; a second call does nothing.

        Raises
        ------
        CollectorError
            As of `flush`. The client is closed all the same.
        """
        self._close(raises=True)

    @property
    def address(self) -> str:
        """Address of the collector; before the first answer, the place where it is searched for."""
        state = self._state
        return self._options.place if state is None else state.address

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self.close()
            return
        with contextlib.suppress(ShardkeepError):
            self._close(raises=False)

    def __del__(self) -> None:
        if hasattr(self, "_is_closed"):
            self._stop(self.timeout_s)

    def __reduce__(self) -> Any:
        return Client, (self._options,)

    def __repr__(self) -> str:
        return f"<Client of rank {self.rank}, collector {self.address!r}>"

    # -- opening and closing -------------------------------------------------------------------------------

    def _open_calls(self) -> BlockingCalls:
        """Return the calls once a collector has answered; make them in a forked or unpickled client."""
        calls = self._calls
        if calls is None:
            calls = self._opening.run(self._open)
            if self._is_closed:  # by a signal handler in between
                self._stop(self.timeout_s)
                raise self._closed_error()
        if not calls.has_answered:
            try:
                calls.wait(lambda: calls.state.is_ready, None, "answer")
            except BaseException:
                self._opening.run(self._give_up, calls)
                raise
            calls.has_answered = True
        if self._calls is None:
            raise self._closed_error()
        return calls

    def _open(self) -> BlockingCalls:
        if self._is_closed:
            raise self._closed_error()
        if self._calls is not None:
            return self._calls
        options = self._options
        finder = Finder(options.place, options.key_file)
        outbox = Outbox(options.memory_bytes)
        if options.spill_dir is not None:
            outbox.use_spill(SpillFile(options.spill_dir, os.urandom(16), self.rank))
        connection = Connection(finder, finder.description, options.world_size)
        state = SenderState(self.rank, self.timeout_s, outbox, connection)
        sender = Sender(state, connection, options.world_size)
        shutdown.register(sender)
        self._calls, self._state = BlockingCalls(sender, options.on_full), state
        return self._calls

    def _give_up(self, calls: BlockingCalls) -> None:
        if self._calls is calls:
            self._stop_sender(0.0)

    def _closed_error(self) -> CollectorError:
        return CollectorError(f"the client of rank {self.rank} is closed: connect again")

    def _close(self, *, raises: bool) -> None:
        calls = self._calls
        if calls is None or calls.state.is_interrupted():
            self._stop(self.timeout_s)
            return
        stop_at = time.monotonic() + self.timeout_s
        try:
            calls.flush(None)
        except ShardkeepError:
            # The error names the rows that may be lost. An error about some rows leaves time for the others.
            left_s = max(stop_at - time.monotonic(), 0.0)
            calls.state.is_loss_reported = raises and left_s == 0
            self._stop(left_s)
            shutdown.finish(calls.sender)
            raise
        except BaseException:
            self._stop(self.timeout_s)
            raise
        self._stop(max(stop_at - time.monotonic(), 0.0))
        shutdown.finish(calls.sender)

    def _stop(self, timeout_s: float) -> None:
        """Close, and let the sender deliver the rest in the background; takes no lock."""
        self._is_closed = True
        self._stop_sender(timeout_s)

    def _stop_sender(self, timeout_s: float) -> None:
        calls, self._calls, self._state = self._calls, None, None
        if calls is not None:
            calls.sender.stop(timeout_s)


def _after_fork() -> None:
    for one in list(_alive):
        # The rows are the parent's, and a thread that is not in this process may hold the lock.
        one._calls = one._state = None
        one._opening = ReentrancyGuard(one.rank)


_alive: weakref.WeakSet[Client] = weakref.WeakSet()
os.register_at_fork(after_in_child=_after_fork)
