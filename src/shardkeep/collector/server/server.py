"""`Server`: the loop of a collector. Receives, stores, commits, answers; one thread and one for the disk."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

from shardkeep.collector.protocol.address import SocketFolder
from shardkeep.collector.protocol.keys import ZapAuthenticator, read_server_key
from shardkeep.collector.protocol.messages import (
    BadMessage,
    Kind,
    Message,
    error_data,
    pack,
    unknown_error,
    unpack,
)
from shardkeep.collector.protocol.settings import Settings
from shardkeep.collector.protocol.slots import SlotBudget
from shardkeep.collector.protocol.zeromq import zmq_module
from shardkeep.collector.server.committer import Committer
from shardkeep.collector.server.credits import CreditPool
from shardkeep.collector.server.events import Events
from shardkeep.collector.server.listening import failed_handshake, open_router, wanted_address
from shardkeep.collector.server.receiver import Intake, LostStepError
from shardkeep.collector.server.sessions import SILENT_S, Session, parse_hello
from shardkeep.collector.store.client_table import LEFT, ClientEntry
from shardkeep.errors import CollectorError, MissingExtraError, ShardkeepError

__all__ = ["Server"]

_TAKEOVER_S = 1.0
_BYTES_A_ROUND = 2 << 20
_MESSAGES_A_ROUND = 256
# A client that hears nothing for seconds takes the collector for dead; to make something takes milliseconds.
_ROUND_S = 0.1


class Server:
    """A collector that is listening.

    Parameters
    ----------
    settings : Settings
    events : Events
        Told everything that a person may want to see.

    Raises
    ------
    PlanError, CollectorError, LockTimeoutError, ExistsError
        It cannot begin.
    """

    def __init__(self, settings: Settings, events: Events) -> None:
        zmq = self._zmq = zmq_module()
        self._settings = settings
        self._events = events
        address = wanted_address(settings)
        # Before the file is touched.
        self._key = None if settings.key_file is None else read_server_key(settings.key_file)
        self._sessions: dict[bytes, Session] = {}
        self._by_client: dict[bytes, Session] = {}
        # Clients that a failure of the disk cut off: they come again with their rows, also while it stops.
        self._interrupted: set[bytes] = set()
        self._awaited_until = 0.0
        self._credits = CreditPool(settings.memory_bytes // 4)
        self._slots = SlotBudget(settings.memory_bytes // 4)
        self._stop_at: float | None = None
        self._stop_reason = ""
        self._handlers: dict[Kind, Callable[[Session, Message], None]] = {
            Kind.DECLARE: self._declare,
            Kind.BATCH: self._batch,
            Kind.FLUSH: self._flush,
            Kind.BYE: self._bye,
            Kind.PING: self._ping,
            Kind.WANT: self._want,
            Kind.GIVE_BACK: self._give_back,
            Kind.SLOTS: self._give_slots,
        }
        self._zap: ZapAuthenticator | None = None
        self._disk = Committer(settings, events)
        self._intake = Intake(self._disk, self._credits, events)
        self._context = zmq.Context()
        # Who had left before a collector that was killed was started again.
        self._finished, self.world_size = self._disk.store.clients.finished()
        self._left_before = frozenset(self._finished)
        self._place: SocketFolder | None = None
        try:
            if address is None:
                # Not before the lock of the file is held: whoever holds it may be in that place.
                self._place = SocketFolder(settings.path)
                address = self._place.address
            self._listen(address)
        except BaseException:
            self._disk.close()
            self._context.destroy(linger=0)
            self._leave_place()
            raise

    def _listen(self, address: str) -> None:
        zmq = self._zmq
        key = self._key
        if key is not None:
            self._zap = ZapAuthenticator(self._context, key.clients, self._events.refused)
        router = self._router = open_router(self._context, address, key, self._credits.largest + (1 << 20))
        self.address: str = router.last_endpoint.decode().rstrip("\0")
        failures = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        self._monitor = router.get_monitor_socket(failures)
        self._poller = zmq.Poller()
        for one in (router, self._monitor, self._disk.wakes, *([self._zap.socket] if self._zap else [])):
            self._poller.register(one, zmq.POLLIN)

    # -- the loop ------------------------------------------------------------------------------------------

    @property
    def poller(self) -> Any:
        """For one more thing to wait for."""
        return self._poller

    def step(self, timeout_s: float) -> set[Any]:
        """Wait for something, do it, and return what else was ready."""
        ready = dict(self._poller.poll(max(timeout_s, 0) * 1000))
        if self._zap is not None and ready.pop(self._zap.socket, None):
            self._zap.answer()
        if ready.pop(self._monitor, None):
            self._events.refused("a stranger", failed_handshake(self._monitor))
        if ready.pop(self._disk.wakes, None):
            self._disk.wake_up()
        self._tick(more=bool(ready.pop(self._router, None)) and self._receive())
        self._tell()
        return set(ready)

    @property
    def wait_s(self) -> float:
        """How long `step` may wait."""
        return self._disk.wait_s()

    @property
    def is_done(self) -> bool:
        """Whether it was told to stop and everybody has left, or had the time to."""
        if self._stop_at is None:
            return False
        everybody = not (self._sessions or self._interrupted or self._disk.is_busy or self._disk.failure)
        return everybody or time.monotonic() >= self._stop_at

    @property
    def everybody_has_left(self) -> bool:
        """Whether each rank of the world was there, and said goodbye."""
        return self.world_size > 0 and len(self._finished) >= self.world_size and not self._sessions

    def stop(self, reason: str) -> None:
        """Drain: tell the clients to send what they have and to leave."""
        if self._stop_at is None:
            self._events.stopping(reason, len(self._sessions))
            self._stop_at = time.monotonic() + self._settings.drain_s
            self._stop_reason = reason
            for session in self._sessions.values():
                self._send(session, Kind.STOPPING, data={"reason": reason})

    def close(self) -> dict[str, Any]:
        """Store everything that was received, close file and sockets; return what there is to report."""
        try:
            report = self._disk.close()
            for session in list(self._sessions.values()):
                session.durable = session.entry.sequence
                self._state(session)
            return report
        finally:
            for session in list(self._sessions.values()):
                self._forget(session)
            self._router.disable_monitor()
            if self._zap is not None:
                self._zap.close()
            self._monitor.close(linger=0)
            self._router.close()
            self._context.term()
            self._leave_place()

    # -- messages ------------------------------------------------------------------------------------------

    def _receive(self) -> bool:
        """Take what has come, up to some; return whether there may be more."""
        zmq = self._zmq
        most = self._disk.bytes + _BYTES_A_ROUND
        until = time.monotonic() + _ROUND_S
        for _ in range(_MESSAGES_A_ROUND):
            if self._disk.bytes >= most or time.monotonic() > until:
                break
            try:
                frames = self._router.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return False
            route = frames[0].bytes
            try:
                message = unpack([frame.buffer for frame in frames[1:]])
                self._take(route, message)
            except BadMessage as error:
                self._events.refused(self._who(route), str(error))
            except ShardkeepError as error:
                self._storage_failed(error)
            except Exception as error:
                self._storage_failed(unknown_error(error, self._settings.path))
        return True

    def _tell(self) -> None:
        """Tell clients what they may send and what is durable; in few messages, since each wakes somebody."""
        self._credits.withhold(self._disk.excess_bytes)
        for session in self._sessions.values():
            if session.state_due or self._credits.is_news(session.route, session.told_limit):
                self._state(session)
        for route in self._credits.grant():
            self._state(self._sessions[route])  # type: ignore[index]
        for route in self._credits.recall():
            self._send(self._sessions[route], Kind.RECALL)  # type: ignore[index]

    def _take(self, route: bytes, message: Message) -> None:
        if self._disk.failure is not None:
            self._send_to(route, Kind.REFUSED, data=error_data(self._disk.failure))
            return
        if message.kind is Kind.HELLO:
            self._hello(route, message)
            return
        session = self._sessions.get(route)
        handler = self._handlers.get(message.kind)
        if handler is None:
            raise BadMessage(f"{message.kind.name} is sent by collectors, not to them")
        if session is None:
            if message.kind is Kind.BATCH:
                self._events.unknown(self._who(route))
            self._send_to(route, Kind.UNKNOWN)
            return
        session.seen = time.monotonic()
        handler(session, message)

    def _hello(self, route: bytes, message: Message) -> None:
        try:
            identity, rank, size, who, owner = parse_hello(message.json())
            if self._stop_at is not None and identity not in self._interrupted:
                raise CollectorError("the collector is stopping: it takes no more clients")
            old = self._by_client.get(identity)
            if old is not None and old.route != route:
                if time.monotonic() - old.seen < _TAKEOVER_S:
                    # It asks again; a stranger that replays a HELLO does not get in.
                    self._events.refused(old.who, "its identity on another connection")
                    return
                self._forget(old)
            if self.world_size not in (0, size) and self._sessions:
                self._events.warn(f"{who} says there are {size} ranks, others said {self.world_size}")
        except CollectorError as error:
            self._events.refused(self._who(route), str(error))
            self._send_to(route, Kind.REFUSED, data=error_data(error))
            return
        store = self._disk.store
        entry = store.clients.find(identity)
        if entry is None:
            entry = ClientEntry(identity, rank, size)
            durable = 0
            if self._left_before and store.clients.is_newcomer(entry):
                # Not a client that outlived the collector: the run itself begins anew, and all come again.
                self._finished -= self._left_before
                self._left_before = frozenset()
                store.clients.end_run()
        else:
            durable = self._disk.durable_of(entry)
        self._interrupted.discard(identity)
        known = self._sessions.get(route)
        if known is not None:
            # It begins again on this connection: datasets and shared memory of before count no more.
            self._forget(known)
        session = self._sessions[route] = self._by_client[identity] = Session(
            route, entry, who, durable, owner=owner
        )
        if known is None or known.entry.id != identity:
            self._events.joined(who, len(self._sessions))
        else:
            session.durable = max(durable, known.durable)
        self._credits.open(route)
        if entry.closed:
            entry.closed = 0
            store.clients.update(entry)
            self._disk.note(entry)
        self.world_size = size
        self._finished.discard(rank)
        session.told_limit = self._credits.limit(route)
        welcome = {
            "received": entry.sequence,
            "durable": session.durable,
            "limit": session.told_limit,
            "largest": self._credits.largest,
            "path": os.path.abspath(self._settings.path),
        }
        self._send(session, Kind.WELCOME, data=welcome)
        if self._stop_at is not None:
            self._send(session, Kind.STOPPING, data={"reason": self._stop_reason})
        if message.sequence > entry.sequence + 1:
            # It goes on from the spill file of a client that died: what was only in its memory is gone.
            entry.sequence = message.sequence - 1

    def _declare(self, session: Session, message: Message) -> None:
        try:
            schema, is_new = session.forms.declare(message, self._disk.store, self._settings.memory_bytes)
        except (CollectorError, ValueError, MissingExtraError) as error:
            self._send(session, Kind.REFUSED, value=message.value, data=error_data(error))
            return
        if is_new:
            self._disk.note(session.entry)
        self._send(session, Kind.DECLARED, value=message.value, data=schema.to_json())

    def _batch(self, session: Session, message: Message) -> None:
        try:
            refusals = self._intake.take(session, message)
        except LostStepError:
            self._send(session, Kind.UNKNOWN)
            self._forget(session)
            return
        for refusal in refusals:
            self._send(session, Kind.REFUSED, sequence=message.sequence, data=error_data(refusal))
            self._events.refused(session.who, str(refusal))

    def _flush(self, session: Session, message: Message) -> None:
        session.flush = max(session.flush, min(message.sequence, session.entry.sequence))
        if session.durable >= session.flush:
            session.state_due = True
        else:
            self._disk.hurry(waits=message.value == 0)

    def _bye(self, session: Session, message: Message) -> None:
        session.entry.closed = LEFT
        self._disk.store.clients.update(session.entry)
        self._disk.note(session.entry)
        session.leaving = True
        self._finished.add(session.entry.rank)
        # Not before it is durable: a collector that is started again has to know who has left.
        self._disk.answer_after_commit(lambda: self._send(session, Kind.GOODBYE))
        self._forget(session)
        self._events.left(session.who, len(self._sessions))

    def _ping(self, session: Session, message: Message) -> None:
        session.state_due = True

    def _want(self, session: Session, message: Message) -> None:
        self._credits.want(session.route, message.value)

    def _give_back(self, session: Session, message: Message) -> None:
        session.returns += 1
        self._credits.give_back(session.route, message.value)

    def _give_slots(self, session: Session, message: Message) -> None:
        if self.address.startswith("ipc://"):  # a client of another host could claim it, and never map it
            session.slots = session.slots or self._slots.open()
        address = {} if session.slots is None else session.slots.address
        self._send(session, Kind.SLOTS, data=address)

    # -- time ----------------------------------------------------------------------------------------------

    def _tick(self, *, more: bool = False) -> None:
        try:
            for identity, sequence in self._disk.work(hurry=self._stop_at is not None, more=more).items():
                session = self._by_client.get(identity)
                if session is not None:
                    session.durable = sequence
                    session.state_due = True
        except ShardkeepError as error:
            self._storage_failed(error)
        except Exception as error:
            self._storage_failed(unknown_error(error, self._settings.path))
        now = time.monotonic()
        if self._disk.failure is not None:
            self._awaited_until = now + SILENT_S
        elif now > self._awaited_until:
            self._interrupted.clear()
        for session in [one for one in self._sessions.values() if one.is_silent(now)]:
            self._events.lost(session.who, len(self._sessions) - 1)
            self._forget(session)
        self._events.progress(self._disk, len(self._sessions), self._credits.reserved)

    def _storage_failed(self, error: ShardkeepError) -> None:
        """Tell everybody; the file is at its last commit, and is tried again."""
        self._events.failed(error)
        self._disk.fail(error)
        for session in list(self._sessions.values()):
            self._interrupted.add(session.entry.id)
            self._send(session, Kind.REFUSED, data=error_data(error))
            self._forget(session)

    # -- small things --------------------------------------------------------------------------------------

    def _leave_place(self) -> None:
        if self._place is not None:
            self._place.close()

    def _state(self, session: Session) -> None:
        session.state_due = False
        if session.route in self._sessions:
            limit = session.told_limit = self._credits.limit(session.route)
            self._send(session, Kind.STATE, sequence=session.durable, value=limit, parts=session.returns)

    def _forget(self, session: Session) -> None:
        if self._sessions.get(session.route) is session:
            del self._sessions[session.route]
            self._credits.close(session.route)
        if self._by_client.get(session.entry.id) is session:
            del self._by_client[session.entry.id]
        if session.slots is not None:
            self._slots.close(session.slots)
            session.slots = None

    def _who(self, route: bytes) -> str:
        session = self._sessions.get(route)
        return f"connection {route.hex()}" if session is None else session.who

    def _send(self, session: Session, kind: Kind, **fields: Any) -> None:
        self._send_to(session.route, kind, **fields)

    def _send_to(self, route: bytes, kind: Kind, **fields: Any) -> None:
        # A client that takes nothing loses answers, not others their time: it will ask again.
        with contextlib.suppress(self._zmq.ZMQError):
            self._router.send_multipart([route, *pack(kind, **fields)], self._zmq.NOBLOCK)
