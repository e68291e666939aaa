"""The thread that sends the rows of a client to the collector.

The thread owns the connection and the outbox. It makes batches of what the calls submit, sends as many as the
credit covers, and notes what has become durable. After an interruption it sends HELLO, and then every batch
again that the collector lacks. It holds no reference to the client: when that is dropped, the thread
continues until everything is durable, or its time is over.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
import time
from collections import deque
from dataclasses import asdict

from shardkeep.collector.client.buffers import ChunkBuffer, Payload, has_large_rows
from shardkeep.collector.client.connection import Connection
from shardkeep.collector.client.message_handler import MessageHandler
from shardkeep.collector.client.state import SenderState
from shardkeep.collector.protocol.messages import BadMessage, Kind, pack, unpack
from shardkeep.errors import CollectorError, InternalError, ShardkeepError
from shardkeep.files.owner import this_process

__all__ = ["Sender"]

_GOODBYE_S = 1.0
_SLOTS_EVERY_S = 5.0
_GRACE_S = 0.5
_MOST_MESSAGES = 64


class Sender:
    """A thread that sends the rows of one client."""

    def __init__(self, state: SenderState, connection: Connection, world_size: int) -> None:
        self.state = state
        self._connection = connection
        self._handler = MessageHandler(state, connection)
        spill = state.outbox.spill
        self._hello = {
            "id": (secrets.token_bytes(16) if spill is None else spill.identity).hex(),
            "rank": state.rank,
            "world_size": world_size,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "owner": asdict(this_process()),
        }
        self._stop_at: float | None = None
        self._flush_wanted = self._ticket_taken = 0
        self._tickets: deque[tuple[int, int]] = deque()
        self._slots_at = 0.0
        self._has_drained = False
        self._thread = threading.Thread(target=self._run, name=f"shardkeep-rank-{state.rank}", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Have the thread deliver the rest within a time, and end; takes no lock and does not wait."""
        stop_at = time.monotonic() + timeout_s
        self._stop_at = stop_at if self._stop_at is None else min(self._stop_at, stop_at)
        self.state.wake()

    def join(self) -> bool:
        """Wait for the end of the thread, after `stop`; return whether it has ended in time."""
        assert self._stop_at is not None
        self._thread.join(max(self._stop_at - time.monotonic(), 0.0) + _GRACE_S)
        return not self._thread.is_alive()

    # -- the thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        state = self.state
        try:
            while state.failure is None and not state.run(self._is_done):
                self._step()
            if state.is_ready or self._has_drained:
                self._say_goodbye()
        except BaseException as error:
            message = f"the sender to {self._connection.description} failed ({type(error).__name__}: {error})"
            state.run(state.fail, InternalError(message))
        finally:
            state.run(self._keep_undelivered)
            self._connection.end()
            if self._stop_at is not None:
                state.report_losses()

    def _is_done(self) -> bool:
        """Whether the thread was stopped, and has delivered everything or has no time left."""
        if self._stop_at is None:
            return False
        state = self.state
        if state.closed_error is None:
            state.close(CollectorError(f"the client of rank {state.rank} is closed: connect again"))
        if time.monotonic() >= self._stop_at:
            return True
        self._make_batches(everything=True)
        self._flush_wanted = state.outbox.sequence
        return state.outbox.all_durable

    def _keep_undelivered(self) -> None:
        """Write what is not durable into the spill file, for the next client of this rank."""
        state, outbox = self.state, self.state.outbox
        state.is_ready = False
        self._make_batches(everything=True)
        outbox.spill_undelivered()
        if not outbox.has_undelivered:
            state.durable_ticket = sys.maxsize
        if outbox.spill is not None:
            outbox.spill.close()
        state.notify()

    def _say_goodbye(self) -> None:
        """Send BYE and wait for the answer: the process may end before ZeroMQ has sent the message."""
        self._connection.send(pack(Kind.BYE, sequence=self.state.outbox.sequence))
        deadline = time.monotonic() + _GOODBYE_S
        if self._stop_at is not None:
            deadline = min(deadline, max(self._stop_at, time.monotonic() + _GRACE_S / 2))
        while (left_s := deadline - time.monotonic()) > 0:
            frames = self._connection.receive(left_s)
            if frames is None or _is_goodbye(frames):
                return

    def _step(self) -> None:
        """Do what is due, then wait for messages and act on them."""
        connection, state = self._connection, self.state
        if not connection.is_open:
            try:
                connection.open()
            except ShardkeepError as error:
                state.run(state.fail, error)
                return
            self._handler.hello_at = 0.0
        wait_s = state.run(self._do_what_is_due)
        if state.failure is not None:
            return
        if connection.wait(wait_s):
            for _ in range(_MOST_MESSAGES):
                frames = connection.receive()
                if frames is None:
                    break
                state.run(self._handler.handle, frames)
        elif connection.is_open and (reason := connection.fault()) is not None:
            state.run(state.disconnect, reason)
            connection.close(linger_ms=0)

    def _do_what_is_due(self) -> float:
        """Drain what the calls submitted, and send; return the seconds until the next work is due."""
        now = time.monotonic()
        state, outbox = self.state, self.state.outbox
        self._drain(now)
        if not self._connection.is_open:
            return 0.05
        wait_s = self._send(now)
        if state.linger_at is not None and not self._must_hold_back():
            wait_s = min(wait_s, state.linger_at - now)
        if self._stop_at is not None:
            wait_s = min(wait_s, self._stop_at - now)
        if outbox.all_durable and state.stopping is not None and state.is_ready and not state.dirty:
            self._has_drained = True
            message = f"the collector at {state.address} has stopped ({state.stopping})"
            state.fail(CollectorError(f"{message}, all rows are stored"))
        return wait_s

    # -- from the calls to the outbox ----------------------------------------------------------------------

    def _drain(self, now: float) -> None:
        """Make batches of submitted rows, and note flushes that were requested or are complete."""
        state, outbox = self.state, self.state.outbox
        is_flushed = state.flush_tickets > self._ticket_taken or state.stopping is not None
        has_lingered = state.linger_at is not None and now >= state.linger_at and not self._must_hold_back()
        if outbox.spill_failure is not None and (state.retries_spill or not outbox.is_full):
            outbox.retry_spill()
        if state.retries_spill:
            state.retries_spill = False
            state.notify()
        self._make_batches(everything=is_flushed or has_lingered)
        if not outbox.is_full:
            outbox.spill_failure = None  # memory has room for the batch
        if state.flush_tickets > self._ticket_taken:
            self._ticket_taken = state.flush_tickets
            self._flush_wanted = outbox.sequence
            self._tickets.append((state.flush_tickets, outbox.sequence))
        while self._tickets and self._tickets[0][1] <= outbox.durable:
            state.durable_ticket = self._tickets.popleft()[0]
            state.notify()
        state.has_notice = (
            bool(state.errors) or state.closed_error is not None or outbox.spill_failure is not None
        )
        if outbox.slots is not None and outbox.all_durable and not state.submitted:
            outbox.slots.reclaim(
                [one.chunk.slot for one in state.datasets.values() if one.chunk.slot is not None]
            )

    def _must_hold_back(self) -> bool:
        """Whether rows stay in their buffers, which are bounded, until batches have room."""
        outbox = self.state.outbox
        return outbox.is_full and (outbox.spill is None or outbox.spill_failure is not None)

    def _make_batches(self, *, everything: bool) -> None:
        """Make batches of what was submitted, or of all rows."""
        state = self.state
        if not state.submitted and not (everything and state.dirty):
            return
        drained, state.submitted = state.submitted, []
        if everything:
            chunks = [dataset.chunk for dataset in state.dirty.values()]
            drained += [chunk for chunk in chunks if not any(chunk is one for one in drained)]
            state.dirty = {}
            state.linger_at = None
        payloads: list[Payload] = []
        for one in drained:
            payloads += one.drain() if isinstance(one, ChunkBuffer) else [one]
        state.outbox.add_all(payloads)
        state.notify()

    # -- from the outbox to the collector ------------------------------------------------------------------

    def _send(self, now: float) -> float:
        """Send what is due; return the seconds until the next message is due."""
        state, handler, connection = self.state, self._handler, self._connection
        if not state.is_ready or state.outbox.is_at_gap:
            if now >= handler.hello_at + connection.ping_every_s(is_idle=False):
                handler.hello_at = now
                state.silence = connection.handshake_problem() or state.silence
                connection.send(pack(Kind.HELLO, sequence=state.outbox.announce_first(), data=self._hello))
            return connection.search_every_s
        if handler.declarations.send():
            handler.send_batches(want_credit=True)
        self._request_flush()
        self._request_slots(now)
        is_idle = state.outbox.all_durable and not handler.declarations.is_pending
        every_s = connection.ping_every_s(is_idle=is_idle)
        if now >= connection.sent_at + every_s:
            connection.send(pack(Kind.PING))
        due_s = connection.sent_at + every_s - now
        return due_s if is_idle else min(due_s, connection.search_every_s)

    def _request_flush(self) -> None:
        session, state, outbox = self._handler.session, self.state, self.state.outbox
        if not outbox.all_sent or outbox.all_durable:
            return
        wanted = self._flush_wanted if state.stopping is None else outbox.sequence
        if wanted > max(session.flush_sent, outbox.durable):
            session.flush_sent = session.room_requested = wanted
            self._connection.send(pack(Kind.FLUSH, sequence=wanted))
        elif outbox.is_short and outbox.durable >= session.room_requested:
            session.room_requested = outbox.sequence
            self._connection.send(pack(Kind.FLUSH, sequence=outbox.sequence, value=1))

    def _request_slots(self, now: float) -> None:
        state = self.state
        if state.outbox.slots is not None or now < self._slots_at or not self._connection.is_local:
            return
        # Also while the first large rows wait for their dataset: the next ones use slots.
        pending = self._handler.declarations.pending_schemas
        if any(one.uses_slots for one in state.datasets.values()) or any(map(has_large_rows, pending)):
            self._slots_at = now + _SLOTS_EVERY_S
            self._connection.send(pack(Kind.SLOTS))


def _is_goodbye(frames: list[bytes]) -> bool:
    """Whether a message answers BYE."""
    try:
        return unpack(frames).kind in (Kind.GOODBYE, Kind.UNKNOWN)
    except BadMessage:
        return False
