"""The answers of the collector to a client."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import Any

from shardkeep.collector.client.connection import Connection
from shardkeep.collector.client.declarations import DeclarationQueue
from shardkeep.collector.client.state import SenderState
from shardkeep.collector.protocol.messages import BadMessage, Kind, Message, error_from, pack, unpack
from shardkeep.collector.protocol.schema import Schema
from shardkeep.collector.protocol.slots import ClientSlots
from shardkeep.errors import CollectorError, ShardkeepError

__all__ = ["MessageHandler", "Session"]

_WANT_EVERY_S = 1.0


@dataclass
class Session:
    """Credit and flushes since the last WELCOME; see `shardkeep.collector.server.credits`.

    Attributes
    ----------
    limit : int
        Bytes that may be sent in all.
    sent : int
        Bytes that were sent.
    returns : int
        How often credit was given back; a limit from before that is not valid any more.
    wanted_for : int
        The batch that more credit was requested for, at `wanted_at`.
    flush_sent : int
        The batch up to which a flush was requested.
    room_requested : int
        The batch up to which a flush was requested, by a call or to make room.
    """

    limit: int = 0
    sent: int = 0
    returns: int = 0
    wanted_for: int = 0
    wanted_at: float = 0.0
    flush_sent: int = 0
    room_requested: int = 0

    def covers(self, count: int) -> bool:
        """Whether the credit covers `count` more bytes."""
        return self.sent + count <= self.limit

    def missing(self, count: int) -> int:
        """Return the credit to request, to send `count` bytes twice."""
        return self.sent + count - self.limit + count

    def give_back(self) -> None:
        """Use no more of the credit."""
        self.limit = self.sent
        self.wanted_for = 0
        self.returns += 1


class MessageHandler:
    """A handler of the messages that the collector sends; for the sender's thread, in the guard of the state.

    Attributes
    ----------
    session : Session
    declarations : DeclarationQueue
    hello_at : float
        When the last HELLO was sent; 0.0 if one must be sent now.
    """

    def __init__(self, state: SenderState, connection: Connection) -> None:
        self.session = Session()
        self.declarations = DeclarationQueue(state, connection)
        self.hello_at = 0.0
        self._refusal: ShardkeepError | None = None
        self._state = state
        self._connection = connection

    def handle(self, frames: list[bytes]) -> None:
        """Act on a message."""
        state = self._state
        try:
            self._handle(unpack(frames))
        except BadMessage as error:
            message = f"the answer from {self._connection.address} is not from a collector of this version"
            state.fail(CollectorError(f"{message} ({error}): use one version of Shardkeep everywhere"))
        state.has_notice = state.has_notice or bool(state.errors)
        state.notify()

    def send_batches(self, *, want_credit: bool) -> None:
        """Send all batches that the credit covers; with `want_credit`, request more for the next one."""
        session, outbox = self.session, self._state.outbox
        while (batch := outbox.next_to_send()) is not None:
            if not session.covers(batch.cost_bytes):
                now = time.monotonic()
                is_due = session.wanted_for != batch.sequence or now >= session.wanted_at + _WANT_EVERY_S
                if want_credit and is_due:
                    session.wanted_for, session.wanted_at = batch.sequence, now
                    self._connection.send(pack(Kind.WANT, value=session.missing(batch.cost_bytes)))
                return
            if not self._connection.send(batch.frames()):
                return
            session.sent += batch.cost_bytes
            outbox.note_sent()

    def _handle(self, message: Message) -> None:
        state, kind = self._state, message.kind
        if kind is Kind.STATE:
            if state.is_ready:
                if message.parts == self.session.returns:
                    self.session.limit = max(self.session.limit, message.value)
                state.outbox.note_durable(message.sequence)
        elif kind is Kind.WELCOME:
            self._welcome(message.json())
        elif kind is Kind.DECLARED:
            self.declarations.accept(message.value, Schema.from_json(message.json()))
        elif kind is Kind.REFUSED:
            self._refused(message)
        elif kind is Kind.UNKNOWN:
            state.is_ready = False
            self.hello_at = 0.0
        elif kind is Kind.STOPPING:
            state.stopping = str(message.json().get("reason"))
        elif kind is Kind.RECALL:
            # A client that waited for this credit uses it before it gives the rest back.
            if state.is_ready and self.declarations.send():
                self.send_batches(want_credit=False)
            self.session.give_back()
            self._connection.send(pack(Kind.GIVE_BACK, value=self.session.sent))
        elif kind is Kind.SLOTS:
            self._open_slots(message.json())
        elif kind is not Kind.GOODBYE:
            raise BadMessage(f"{kind.name} is not for clients")

    def _welcome(self, data: dict[str, Any]) -> None:
        state, outbox = self._state, self._state.outbox
        received, durable = int(data["received"]), int(data["durable"])
        if received < outbox.durable:
            message = (
                f"the collector at {self._connection.address} has {received} batches of this client, "
                f"although {outbox.durable} were acknowledged: its file {data['path']!r} is not the one that "
                "it had; start it on that one"
            )
            state.fail(CollectorError(message, path=str(data["path"])))
            return
        state.largest_bytes = int(data["largest"])
        state.silence = None
        self._connection.end_handshake()
        self.session = Session(limit=int(data["limit"]))
        # The slots belonged to a connection, or to a process, that has ended.
        outbox.drop_slots()
        for one in (*(dataset.chunk for dataset in state.datasets.values()), *state.submitted):
            one.copy_out_of_slot()
        outbox.resend_after(received, durable)
        self.declarations.restart()
        state.is_ready = True

    def _open_slots(self, address: dict[str, Any]) -> None:
        outbox = self._state.outbox
        if address and outbox.slots is None:
            with contextlib.suppress(OSError, KeyError, TypeError, ValueError, OverflowError):
                outbox.slots = ClientSlots(address)
        if outbox.slots is not None:
            for dataset in self._state.datasets.values():
                dataset.replace_empty_chunk()

    def _refused(self, message: Message) -> None:
        state, data = self._state, message.json()
        error = error_from(data)
        if message.value:
            self.declarations.reject(message.value, error)
            return
        report = f"the collector at {self._connection.address} reports: {error}"
        if message.sequence:
            if not state.outbox.set_error(message.sequence, error):
                state.errors.append(type(error)(report))
            return
        if self._refusal is not None and self._refusal in state.errors:
            state.errors.remove(self._refusal)
        self._refusal = CollectorError(report)
        state.errors.append(self._refusal)
        state.silence = f"it reports: {error}"
        state.is_ready = False
        self.hello_at = time.monotonic()
