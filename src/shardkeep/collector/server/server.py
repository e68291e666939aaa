"""`Server`: the loop of a collector, in one thread; a second thread syncs the file.

One step of the loop receives messages (`Receiver` stores rows), begins or ends commits (`Committer`), and
sends each client its new limit (`CreditPool`) and the number of its newest durable batch. So the answer to a
FLUSH follows the commit that made the rows durable (`shardkeep.hdf5.journal.live_file`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from shardkeep._paths_in_messages import shown
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
from shardkeep.collector.server.receiver import GapError, Receiver
from shardkeep.collector.server.router import failed_handshake, open_router, wanted_address
from shardkeep.collector.server.session import SILENT_S, Session, Sessions, parse_hello
from shardkeep.collector.store.client_table import LEFT, ClientEntry
from shardkeep.errors import CollectorError, MissingExtraError, ShardkeepError

__all__ = ["Server"]

_TAKEOVER_S = 1.0
# Limits of one step: a client that receives nothing for seconds takes the collector for dead.
_BYTES_PER_STEP = 2 << 20
_MESSAGES_PER_STEP = 256
_STEP_S = 0.1


class Server:
    """A collector that is listening.

    Attributes
    ----------
    address : str
    poller : zmq.Poller
        What `step` waits for; the caller may register more.
    world_size : int
        Number of ranks, as clients have sent it; 0 before the first client.

    Raises
    ------
    PlanError, CollectorError, LockTimeoutError, ExistsError
        The collector cannot start.
    """

    def __init__(self, settings: Settings, events: Events) -> None:
        zmq = self._zmq = zmq_module()
        self._settings = settings
        self._events = events
        address = wanted_address(settings)
        # Before the file is touched.
        self._key = None if settings.key_file is None else read_server_key(settings.key_file)
        self._sessions = Sessions()
        # Clients that a failure of the disk cut off: they come again with their rows, also during the drain.
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
            Kind.SLOTS: self._open_slots,
        }
        self._committer = Committer(settings, events)
        self._receiver = Receiver(self._committer, self._credits, events)
        self._context = zmq.Context()
        # Ranks that had left a collector that was killed.
        self._finished, self.world_size = self._committer.store.clients.finished()
        self._left_before = frozenset(self._finished)
        self._authenticator: ZapAuthenticator | None = None
        self._folder: SocketFolder | None = None
        try:
            if address is None:
                # Not before the lock of the file is held: another collector of it may use that folder.
                self._folder = SocketFolder(settings.path)
                address = self._folder.address
            self._listen(address)
        except BaseException:
            self._committer.close()
            self._context.destroy(linger=0)
            self._remove_folder()
            raise

    def _listen(self, address: str) -> None:
        zmq, key = self._zmq, self._key
        if key is not None:
            self._authenticator = ZapAuthenticator(self._context, key.clients, self._events.refused)
        router = self._router = open_router(self._context, address, key, self._credits.largest + (1 << 20))
        self.address: str = router.last_endpoint.decode().rstrip("\0")
        failures = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        self._monitor = router.get_monitor_socket(failures)
        self.poller = zmq.Poller()
        sockets = [self._authenticator.socket] if self._authenticator is not None else []
        for one in (router, self._monitor, self._committer.wake_fd, *sockets):
            self.poller.register(one, zmq.POLLIN)

    # -- the loop ------------------------------------------------------------------------------------------

    def step(self) -> set[Any]:
        """Wait for events, or until there is something to do, and do it; return what else was ready."""
        ready = dict(self.poller.poll(self._committer.idle_s() * 1000))
        if self._authenticator is not None and ready.pop(self._authenticator.socket, None):
            self._authenticator.answer()
        if ready.pop(self._monitor, None):
            self._events.refused("a stranger", failed_handshake(self._monitor))
        if ready.pop(self._committer.wake_fd, None):
            self._committer.drain_wake_fd()
        more = bool(ready.pop(self._router, None)) and self._receive()
        self._commit(more=more)
        self._drop_silent(more=more)
        self._events.progress(self._committer.counters, len(self._sessions), self._credits.reserved)
        self._send_states()
        return set(ready)

    @property
    def is_done(self) -> bool:
        """Whether the collector was stopped and all clients have left, or had the time to."""
        if self._stop_at is None:
            return False
        committer = self._committer
        waits = self._sessions or self._interrupted or committer.is_busy or committer.failure
        return not waits or time.monotonic() >= self._stop_at

    @property
    def is_finished(self) -> bool:
        """Whether each rank of the world was connected, and said goodbye."""
        return self.world_size > 0 and len(self._finished) >= self.world_size and not self._sessions

    def stop(self, reason: str) -> None:
        """Ask the clients to send what they have and to leave."""
        if self._stop_at is None:
            self._events.stopping(reason, len(self._sessions))
            self._stop_at = time.monotonic() + self._settings.drain_s
            self._stop_reason = reason
            for session in self._sessions:
                self._send(session, Kind.STOPPING, data={"reason": reason})

    def close(self) -> dict[str, Any]:
        """Store everything that was received, close file and sockets; return the final report."""
        try:
            report = self._committer.close()
            for session in self._sessions:
                session.durable = session.entry.sequence
                self._send_state(session)
            return report
        finally:
            for session in self._sessions:
                self._forget(session)
            self._router.disable_monitor()
            if self._authenticator is not None:
                self._authenticator.close()
            self._monitor.close(linger=0)
            self._router.close()
            self._context.term()
            self._remove_folder()

    def _receive(self) -> bool:
        """Process messages up to the limits of a step; return whether there may be more."""
        counters = self._committer.counters
        most = counters.bytes + _BYTES_PER_STEP
        until = time.monotonic() + _STEP_S
        for _ in range(_MESSAGES_PER_STEP):
            if counters.bytes >= most or time.monotonic() > until:
                break
            try:
                frames = self._router.recv_multipart(self._zmq.NOBLOCK, copy=False)
            except self._zmq.Again:
                return False
            route = frames[0].bytes
            with self._storage_errors():
                try:
                    self._process(route, unpack([frame.buffer for frame in frames[1:]]))
                except BadMessage as error:
                    self._events.refused(self._label(route), str(error))
        return True

    def _commit(self, *, more: bool = False) -> None:
        with self._storage_errors():
            durable = self._committer.work(is_draining=self._stop_at is not None, more=more)
            for identity, sequence in durable.items():
                session = self._sessions.by_client.get(identity)
                if session is not None:
                    session.durable = sequence
                    session.state_due = True
                    self._sessions.mark_changed(session)
        if self._committer.failure is None:
            self._events.working(self._committer.store, len(self._sessions))

    def _drop_silent(self, *, more: bool) -> None:
        now = time.monotonic()
        if self._committer.failure is not None:
            self._awaited_until = now + SILENT_S
        elif now > self._awaited_until:
            self._interrupted.clear()
        for session in self._sessions.silent(now, more=more):
            self._events.lost(session.label, len(self._sessions) - 1)
            self._forget(session)

    def _send_states(self) -> None:
        """Send limits and what is durable, in few messages, since each wakes a process."""
        self._credits.withhold(self._committer.excess_bytes)
        for session in self._sessions.take_changed():
            if session.state_due or self._credits.is_limit_due(session.route, session.sent_limit):
                self._send_state(session)
        for route in self._credits.grant():
            self._send_state(self._sessions.by_route[route])  # type: ignore[index]
        for route in self._credits.recall():
            self._send(self._sessions.by_route[route], Kind.RECALL)  # type: ignore[index]

    @contextlib.contextmanager
    def _storage_errors(self) -> Iterator[None]:
        """Abandon the file after any error of the body: its state in memory is unknown.

        The file is at its last commit, and is opened again every second. The clients get the error.
        """
        try:
            yield
        except Exception as cause:
            error = cause if isinstance(cause, ShardkeepError) else unknown_error(cause, self._settings.path)
            self._events.failed(error)
            self._committer.fail(error)
            for session in self._sessions:
                self._interrupted.add(session.entry.id)
                self._send(session, Kind.REFUSED, data=error_data(error))
                self._forget(session)

    # -- messages ------------------------------------------------------------------------------------------

    def _process(self, route: bytes, message: Message) -> None:
        if self._committer.failure is not None:
            self._send_to(route, Kind.REFUSED, data=error_data(self._committer.failure))
            return
        if message.kind is Kind.HELLO:
            self._hello(route, message)
            return
        session = self._sessions.by_route.get(route)
        handler = self._handlers.get(message.kind)
        if handler is None:
            raise BadMessage(f"{message.kind.name} is sent by collectors, not to them")
        if session is None:
            if message.kind is Kind.BATCH:
                self._events.unknown(self._label(route))
            self._send_to(route, Kind.UNKNOWN)
            return
        session.seen = time.monotonic()
        self._sessions.mark_changed(session)
        handler(session, message)

    def _hello(self, route: bytes, message: Message) -> None:
        try:
            identity, rank, size, label, owner = parse_hello(message.json())
            if self._stop_at is not None and identity not in self._interrupted:
                raise CollectorError("the collector is stopping and accepts no more clients")
            old = self._sessions.by_client.get(identity)
            if old is not None and old.route != route:
                if time.monotonic() - old.seen < _TAKEOVER_S:
                    # The client itself asks again; a stranger that replays a HELLO is kept out.
                    self._events.refused(old.label, "its identity on another connection")
                    return
                self._forget(old)
            if self.world_size not in (0, size) and self._sessions:
                self._events.warn(f"{label} has a world of {size} ranks, others have {self.world_size}")
        except CollectorError as error:
            self._events.refused(self._label(route), str(error))
            self._send_to(route, Kind.REFUSED, data=error_data(error))
            return
        entry, durable = self._admit(identity, rank, size)
        known = self._sessions.by_route.get(route)
        if known is not None:
            # The client begins again on this connection: its earlier datasets and shared memory are invalid.
            self._forget(known)
        session = Session(route, entry, label, durable, owner=owner)
        self._sessions.add(session)
        if known is None or known.entry.id != identity:
            self._events.joined(label, len(self._sessions))
        else:
            session.durable = max(durable, known.durable)
        session.sent_limit = self._credits.open(route)
        welcome = {
            "received": entry.sequence,
            "durable": session.durable,
            "limit": session.sent_limit,
            "largest": self._credits.largest,
            "path": shown(self._settings.path),
        }
        self._send(session, Kind.WELCOME, data=welcome)
        if self._stop_at is not None:
            self._send(session, Kind.STOPPING, data={"reason": self._stop_reason})
        if message.sequence > entry.sequence + 1:
            # It sends the spill file of a client that died, and whose memory is lost.
            entry.sequence = message.sequence - 1

    def _admit(self, identity: bytes, rank: int, size: int) -> tuple[ClientEntry, int]:
        """Return the entry of a client that connects, and up to which batch it is durable."""
        clients = self._committer.store.clients
        entry, durable = clients.find(identity), 0
        if entry is None:
            entry = ClientEntry(identity, rank, size)
            if self._left_before and clients.is_newcomer(entry):
                # Not a client that outlived the collector: the run itself began again, and all ranks come.
                self._finished -= self._left_before
                self._left_before = frozenset()
                clients.end_run()
        else:
            durable = self._committer.durable_sequence(entry)
        self._interrupted.discard(identity)
        if entry.closed:
            entry.closed = 0
            clients.update(entry)
            self._committer.mark_changed(entry)
        self.world_size = size
        self._finished.discard(rank)
        return entry, durable

    def _declare(self, session: Session, message: Message) -> None:
        store, memory_bytes = self._committer.store, self._settings.memory_bytes
        try:
            schema, is_new = session.declared.declare(message, store, memory_bytes)
        except (CollectorError, ValueError, MissingExtraError) as error:
            self._send(session, Kind.REFUSED, value=message.value, data=error_data(error))
            return
        if is_new:
            self._committer.mark_changed(session.entry)
        # Before there is a commit: rows that follow are in no earlier commit than their dataset.
        self._send(session, Kind.DECLARED, value=message.value, data=schema.to_json())

    def _batch(self, session: Session, message: Message) -> None:
        try:
            refusals = self._receiver.receive(session, message)
        except GapError:
            self._send(session, Kind.UNKNOWN)
            self._forget(session)
            return
        for refusal in refusals:
            self._send(session, Kind.REFUSED, sequence=message.sequence, data=refusal)
            self._events.refused(session.label, refusal["text"])

    def _flush(self, session: Session, message: Message) -> None:
        if session.durable >= min(message.sequence, session.entry.sequence):
            session.state_due = True
        else:
            self._committer.request_commit(waits=message.value == 0)

    def _bye(self, session: Session, message: Message) -> None:
        session.entry.closed = LEFT
        self._committer.store.clients.update(session.entry)
        self._committer.mark_changed(session.entry)
        self._finished.add(session.entry.rank)
        # Not before it is durable: a collector that is started again has to know the ranks that have left.
        self._committer.after_commit(lambda: self._send(session, Kind.GOODBYE))
        self._forget(session)
        self._events.left(session.label, len(self._sessions))

    def _ping(self, session: Session, message: Message) -> None:
        session.state_due = True

    def _want(self, session: Session, message: Message) -> None:
        self._credits.request(session.route, message.value)

    def _give_back(self, session: Session, message: Message) -> None:
        session.returns += 1
        self._credits.give_back(session.route, message.value)

    def _open_slots(self, session: Session, message: Message) -> None:
        if self.address.startswith("ipc://"):  # a client of another host could claim it, and never map it
            session.slots = session.slots or self._slots.open()
        address = {} if session.slots is None else session.slots.address
        self._send(session, Kind.SLOTS, data=address)

    # -- sessions ------------------------------------------------------------------------------------------

    def _remove_folder(self) -> None:
        if self._folder is not None:
            self._folder.close()

    def _forget(self, session: Session) -> None:
        if session in self._sessions:
            self._credits.close(session.route)
        self._sessions.remove(session)
        if session.slots is not None:
            self._slots.close(session.slots)
            session.slots = None

    def _label(self, route: bytes) -> str:
        session = self._sessions.by_route.get(route)
        return f"connection {route.hex()}" if session is None else session.label

    def _send_state(self, session: Session) -> None:
        session.state_due = False
        limit = session.sent_limit = self._credits.limit(session.route)
        self._send(session, Kind.STATE, sequence=session.durable, value=limit, parts=session.returns)

    def _send(self, session: Session, kind: Kind, **fields: Any) -> None:
        self._send_to(session.route, kind, **fields)

    def _send_to(self, route: bytes, kind: Kind, **fields: Any) -> None:
        # A client that does not read loses answers, and does not delay others: it will ask again.
        with contextlib.suppress(self._zmq.ZMQError):
            self._router.send_multipart([route, *pack(kind, **fields)], self._zmq.NOBLOCK)
