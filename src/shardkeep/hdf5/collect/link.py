"""`Link`: a client's connection, and the thread that keeps it.

The thread owns the socket. It sends what is in the outbox as far as the credit goes, hears what is
durable, and after any interruption says HELLO again and sends once more what the collector lacks.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from shardkeep import errors
from shardkeep.errors import CollectorError, ShardkeepError
from shardkeep.hdf5.collect.messages import BadMessage, Kind, Message, pack, unpack
from shardkeep.hdf5.collect.outbox import Outbox
from shardkeep.hdf5.collect.pen import Pen, Rows
from shardkeep.hdf5.collect.schema import Schema
from shardkeep.hdf5.collect.slots import ClientSlots
from shardkeep.hdf5.collect.wire import Target, open_dealer, zmq_module

__all__ = ["Link"]

_HELLO_EVERY_S = 0.5
_PING_EVERY_S = 2.0
_DEAD_AFTER_S = 6.0
_MOVED_AFTER_S = 0.6
_GOODBYE_S = 1.0
_WANT_EVERY_S = 1.0
_SLOTS_EVERY_S = 5.0
_AGAIN = (1 << 63) - 1
"""The request number of datasets that are declared again after an interruption."""


class Link:
    """The connection of one client.

    Parameters
    ----------
    find : callable
        Returns the `Target`, or None while there is none; asked again after an interruption.
    what : str
        What `find` looks for, for messages.
    rank, world_size : int
    outbox : Outbox
    linger_s : float
        How long rows may wait for more before they are sent.

    Attributes
    ----------
    lock : Lock
        Of all that follows; `changed` is its condition.
    pens : dict of str to Pen
    dirty : dict of str to Pen
        Those with rows in them.
    trouble : deque of ShardkeepError
        What the next call has to raise.
    is_ready : bool
        Whether the collector knows this client now.
    """

    def __init__(
        self,
        find: Callable[[], Target | None],
        what: str,
        rank: int,
        world_size: int,
        outbox: Outbox,
        linger_s: float,
        identity: bytes | None = None,
    ) -> None:
        self.what = what
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.pens: dict[str, Pen] = {}
        self.dirty: dict[str, Pen] = {}
        self.trouble: deque[ShardkeepError] = deque()
        self.outbox = outbox
        self.is_ready = False
        self.ended: ShardkeepError | None = None
        self.silence: str | None = None
        self.largest = 0
        self.replies: dict[int, Schema | ShardkeepError | None] = {}
        self.identity = identity or secrets.token_bytes(16)
        self._find = find
        self._hello = {
            "id": self.identity.hex(),
            "rank": rank,
            "world_size": world_size,
            "pid": os.getpid(),
            "host": socket.gethostname(),
        }
        self._linger_s = linger_s
        self._linger_at: float | None = None
        self._flush_wanted = self._flush_sent = 0
        self._leaving = False
        self._stopping: str | None = None
        self._limit = self._sent_bytes = 0
        self._asked_for = self._returns = 0
        self._asked_at = 0.0
        self._slots_at = 0.0
        self._orders: deque[list[Any]] = deque()
        self._requests = 0
        self._asked: dict[int, Schema] = {}
        self._socket: Any = None
        self._target: Target | None = None
        self._heard = self._spoke = self._hello_at = self._opened_at = self._looked_at = 0.0
        self._wakes, self._wake_end = os.pipe()
        os.set_blocking(self._wakes, False)
        os.set_blocking(self._wake_end, False)
        self._zmq = zmq_module()
        self._thread = threading.Thread(target=self._run, name=f"shardkeep-rank-{rank}", daemon=True)
        self._thread.start()

    # -- called by the client, with the lock held ----------------------------------------------------------

    def wake(self) -> None:
        """Have the thread look at what there is to do."""
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._wake_end, b".")

    def begin_linger(self) -> None:
        """Rows are waiting from now on."""
        if self._linger_at is None:
            self._linger_at = time.monotonic() + self._linger_s
            self.wake()

    def seal(self) -> None:
        """Make batches of all rows that are waiting, each one a message that any collector takes."""
        rows: list[Rows] = []
        for pen in self.dirty.values():
            rows += pen.take()
            if not len(pen.array):
                pen.renew(self.outbox.slots)
        self.dirty.clear()
        self._linger_at = None
        self.outbox.add_all(rows)

    def want_durable(self) -> int:
        """Ask for everything so far to become durable; return up to which batch."""
        self._flush_wanted = self.outbox.sequence
        self.wake()
        return self._flush_wanted

    def request(self, schema: Schema) -> int:
        """Declare a dataset; the answer will be in `replies` under the number returned."""
        self._requests += 1
        self.replies[self._requests] = None
        self._asked[self._requests] = schema
        self._orders.append(pack(Kind.DECLARE, value=self._requests, data=schema.to_json()))
        self.wake()
        return self._requests

    def ask_for_slots(self) -> None:
        """Ask for shared memory, now and then."""
        now = time.monotonic()
        local = self._target is not None and self._target.address.startswith("ipc://")
        if self.outbox.slots is None and self.is_ready and local and now >= self._slots_at:
            self._slots_at = now + _SLOTS_EVERY_S
            self._orders.append(pack(Kind.SLOTS))

    def has_slots(self) -> bool:
        """Whether there is a free slot, or none that will become free: pens of other datasets keep theirs."""
        slots = self.outbox.slots
        return slots is None or slots.is_free or not self.outbox.uses_slots

    def leave(self, timeout_s: float) -> None:
        """Say goodbye and end the thread. Without the lock."""
        with self.lock:
            self._leaving = True
            self.wake()
        self._thread.join(timeout_s)

    @property
    def address(self) -> str:
        """Where it is, or would be, connected to."""
        return self.what if self._target is None else self._target.address

    # -- the thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_over():
                self._turn()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
            with self.lock:
                self.ended = self.ended or errors.InternalError(f"the link to {self.what} broke ({text})")
        finally:
            with self.lock:
                self.is_ready = False
                self.changed.notify_all()
                os.close(self._wake_end)
                self._wake_end = -1  # a later `wake` finds nobody
            self._close_socket(linger_ms=1000)
            os.close(self._wakes)

    def _is_over(self) -> bool:
        with self.lock:
            if self.ended is not None:
                return True
            if not self._leaving:
                return False
            leaving = self.is_ready
        if leaving:
            self._say_goodbye()
        return True

    def _say_goodbye(self) -> None:
        """Leave, and wait a moment until that was heard: the process may end before ZeroMQ has sent it."""
        self._send(pack(Kind.BYE, sequence=self.outbox.sequence))
        deadline = time.monotonic() + _GOODBYE_S
        while (left_s := deadline - time.monotonic()) > 0 and self._socket.poll(left_s * 1000):
            with contextlib.suppress(BadMessage):
                if unpack(self._socket.recv_multipart()).kind in (Kind.GOODBYE, Kind.UNKNOWN):
                    return

    def _turn(self) -> None:
        zmq = self._zmq
        if self._socket is None:
            self._open_socket()
        now = time.monotonic()
        with self.lock:
            if self._linger_at is not None and now >= self._linger_at:
                self.seal()
            wait_s = self._send_what_is_due(now)
        poller = zmq.Poller()
        poller.register(self._wakes, zmq.POLLIN)
        if self._socket is not None:
            poller.register(self._socket, zmq.POLLIN)
        ready = dict(poller.poll(max(wait_s, 0.0) * 1000))
        if self._wakes in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wakes, 4096)
        if self._socket in ready:
            self._heard = time.monotonic()
            self._receive()
        elif self._socket is not None:
            self._look_after_it()

    def _send_what_is_due(self, now: float) -> float:
        """Send; return how long nothing more will be due."""
        if self._socket is None:
            return 0.05
        if not self.is_ready:
            if now >= self._hello_at + _HELLO_EVERY_S:
                self._hello_at = now
                self._send(pack(Kind.HELLO, sequence=self.outbox.first, data=self._hello))
            return self._hello_at + _HELLO_EVERY_S - now
        while self._orders:
            self._send(self._orders.popleft())
        self._send_batches()
        wanted = self._flush_wanted
        if self._stopping is not None or self.outbox.is_full or self._slots_are_short():
            wanted = self.outbox.sequence
        if wanted > self._flush_sent and wanted > self.outbox.durable and self.outbox.all_sent:
            self._flush_sent = wanted
            self._send(pack(Kind.FLUSH, sequence=wanted))
        if self._stopping is not None and not self.dirty and self.outbox.all_durable:
            self._say_goodbye()
            message = f"the collector at {self.address} has stopped ({self._stopping}), all rows are stored"
            self._end(CollectorError(message))
            return 0.0
        every_s = _PING_EVERY_S if self.outbox.all_durable and not self._asked else _HELLO_EVERY_S
        if now >= self._spoke + every_s:
            self._send(pack(Kind.PING))
        due = [self._spoke + every_s - now]
        if self._linger_at is not None:
            due.append(self._linger_at - now)
        return min(due)

    def _slots_are_short(self) -> bool:
        return self.outbox.slots is not None and self.outbox.slots.are_short

    def _send_batches(self) -> None:
        while (batch := self.outbox.next_to_send()) is not None:
            if self._sent_bytes + batch.cost > self._limit:
                now = time.monotonic()
                if self._asked_for != batch.sequence or now >= self._asked_at + _WANT_EVERY_S:
                    self._asked_for, self._asked_at = batch.sequence, now
                    self._send(
                        pack(Kind.WANT, value=self._sent_bytes + batch.cost - self._limit + batch.cost)
                    )
                return
            if not self._send(batch.frames()):
                return
            self._sent_bytes += batch.cost
            self.outbox.sent()

    def _send(self, frames: list[Any]) -> bool:
        try:
            self._socket.send_multipart(frames, self._zmq.NOBLOCK, copy=False)
        except self._zmq.Again:
            return False
        self._spoke = time.monotonic()
        return True

    # -- what comes ----------------------------------------------------------------------------------------

    def _receive(self) -> None:
        for _ in range(64):
            try:
                frames = self._socket.recv_multipart(self._zmq.NOBLOCK)
            except self._zmq.Again:
                return
            with self.lock:
                try:
                    self._take(unpack(frames))
                except BadMessage as error:
                    self._end(
                        CollectorError(
                            f"what answers at {self.address} is no collector of this version ({error})"
                        )
                    )
                self.changed.notify_all()
            if self._socket is None:
                return

    def _take(self, message: Message) -> None:
        kind = message.kind
        if kind is Kind.STATE:
            if self.is_ready:
                if message.parts == self._returns:
                    self._limit = max(self._limit, message.value)
                self.outbox.note_durable(message.sequence)
        elif kind is Kind.WELCOME:
            self._welcome(message.json())
        elif kind is Kind.DECLARED:
            self._declared(message.value, Schema.from_json(message.json()))
        elif kind is Kind.REFUSED:
            self._refused(message)
        elif kind is Kind.UNKNOWN:
            self.is_ready = False
            self._hello_at = 0.0
        elif kind is Kind.STOPPING:
            self._stopping = str(message.json().get("reason"))
            self.seal()
        elif kind is Kind.RECALL:
            # First what may go: a credit that was waited for is used before it is given back.
            if self.is_ready:
                self._send_batches()
            self._limit = self._sent_bytes
            self._asked_for = 0
            self._returns += 1
            self._send(pack(Kind.GIVE_BACK, value=self._sent_bytes))
        elif kind is Kind.SLOTS:
            address = message.json()
            if address and self.outbox.slots is None:
                with contextlib.suppress(OSError, KeyError, ValueError):
                    self.outbox.slots = ClientSlots(address)
        else:
            raise BadMessage(f"{kind.name} is not for clients")

    def _welcome(self, data: dict[str, Any]) -> None:
        received, durable = int(data["received"]), int(data["durable"])
        if received < self.outbox.durable:
            message = (
                f"the collector at {self.address} has {received} batches of this client, although "
                f"{self.outbox.durable} were acknowledged: its file {data['path']!r} is not the one that "
                "it had; start it on that one"
            )
            self._end(CollectorError(message, path=str(data["path"])))
            return
        self.largest = int(data["largest"])
        self.silence = None
        self._limit, self._sent_bytes, self._returns = int(data["limit"]), 0, 0
        self._asked_for = self._flush_sent = 0
        # The slots belonged to the connection, or to the process, that is gone.
        self.outbox.leave_slots()
        for pen in self.pens.values():
            pen.leave_slot()
        self._slots_at = 0.0
        self.outbox.resend_after(received, durable)
        self._orders.clear()
        for pen in self.pens.values():
            self._orders.append(pack(Kind.DECLARE, value=_AGAIN, data=pen.schema.to_json()))
        for request, schema in self._asked.items():
            self._orders.append(pack(Kind.DECLARE, value=request, data=schema.to_json()))
        self.is_ready = True

    def _declared(self, request: int, schema: Schema) -> None:
        if request == _AGAIN:
            mine = self.pens[schema.name].schema if schema.name in self.pens else schema
            if not schema.fits(mine):
                self._end(CollectorError(f"dataset {schema.name!r} of {self.address} has become another one"))
        elif self._asked.pop(request, None) is not None:
            self.replies[request] = schema

    def _refused(self, message: Message) -> None:
        data = message.json()
        kind = getattr(errors, str(data.get("error")), CollectorError)
        text = str(data.get("text"))
        if message.value and message.value != _AGAIN:
            good = isinstance(kind, type) and issubclass(kind, ShardkeepError)
            if self._asked.pop(message.value, None) is not None:
                self.replies[message.value] = kind(text) if good else CollectorError(text)
            return
        self.trouble.append(CollectorError(f"the collector at {self.address} says: {text}"))
        if not message.sequence and not message.value:
            self.silence = f"it says: {text}"
            self.is_ready = False
            self._hello_at = time.monotonic()
            while len(self.trouble) > 1:
                self.trouble.popleft()

    # -- the socket ----------------------------------------------------------------------------------------

    def _open_socket(self) -> None:
        try:
            self._target = target = self._find()
        except ShardkeepError as error:
            with self.lock:
                self._end(error)
            return
        if target is None:
            return
        try:
            self._socket = open_dealer(target)
        except CollectorError as error:
            with self.lock:
                self._end(error)
            return
        self._opened_at = self._heard = time.monotonic()
        self._hello_at = 0.0

    def _lose(self, why: str) -> None:
        with self.lock:
            self.is_ready = False
            self.silence = self.silence or why
            self.changed.notify_all()
        self._close_socket(linger_ms=0)

    def _look_after_it(self) -> None:
        """It is silent: has it moved, or died?"""
        now = time.monotonic()
        silent_s = now - max(self._heard, self._opened_at)
        if silent_s > _DEAD_AFTER_S:
            self._lose("it did not answer")
        elif silent_s > _MOVED_AFTER_S and now > self._looked_at + _HELLO_EVERY_S:
            self._looked_at = now
            with contextlib.suppress(ShardkeepError):
                found = self._find()
                if found is not None and found != self._target:
                    self._lose("it has moved")

    def _close_socket(self, *, linger_ms: int) -> None:
        one, self._socket = self._socket, None
        if one is not None:
            one.close(linger=linger_ms)

    def _end(self, error: ShardkeepError) -> None:
        self.ended = self.ended or error
        self.is_ready = False
        self.changed.notify_all()
