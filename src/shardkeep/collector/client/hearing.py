"""`Hearing`: what the collector says to a client, and what follows from it."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import Any

from shardkeep import errors
from shardkeep.collector.client.asking import Asking
from shardkeep.collector.client.connection import Connection
from shardkeep.collector.client.outbox import Outbox
from shardkeep.collector.client.tray import Tray
from shardkeep.collector.protocol.messages import BadMessage, Kind, Message, pack, unpack
from shardkeep.collector.protocol.schema import Schema
from shardkeep.collector.protocol.slots import ClientSlots
from shardkeep.errors import CollectorError, ShardkeepError

__all__ = ["Hearing", "SpentCredit"]


@dataclass
class SpentCredit:
    """The client's side of `shardkeep.collector.server.credits`.

    Attributes
    ----------
    limit : int
        Bytes that may be sent in all on this connection.
    sent : int
    returns : int
        How often credit was given back; a limit from before that counts no more.
    asked_for : int
        The batch that more credit was asked for.
    """

    limit: int = 0
    sent: int = 0
    returns: int = 0
    asked_for: int = 0
    asked_at: float = 0.0

    def covers(self, count: int) -> bool:
        """Whether so many bytes more may be sent."""
        return self.sent + count <= self.limit

    def missing(self, count: int) -> int:
        """Return what to ask for, to send so many bytes twice."""
        return self.sent + count - self.limit + count

    def give_back(self) -> None:
        """Use no more of it."""
        self.limit = self.sent
        self.asked_for = 0
        self.returns += 1


class Hearing:
    """What is known of the collector; for the link's thread, which holds the tray.

    Attributes
    ----------
    is_ready : bool
        Whether the collector knows this client now.
    failure : ShardkeepError or None
        Why nothing more can come of this.
    silence : str or None
        Why nothing is heard, in words.
    stopping : str or None
        Why the collector is about to end.
    asking : Asking
        The datasets that are declared.
    """

    def __init__(self, tray: Tray, outbox: Outbox, connection: Connection) -> None:
        self.is_ready = False
        self.failure: ShardkeepError | None = None
        self.silence: str | None = None
        self.stopping: str | None = None
        self.largest = 0
        self.credit = SpentCredit()
        self.flush_sent = self.room_asked = 0
        self.hello_at = 0.0
        self.asking = Asking(tray, connection)
        self._of_all = CollectorError("nothing yet")
        self._tray = tray
        self._outbox = outbox
        self._connection = connection

    def fail(self, error: ShardkeepError) -> None:
        """Give up: every call from now on raises that."""
        self.failure = self.failure or error
        self._tray.ended = self._tray.ended or error
        self._tray.attention = True
        self.is_ready = False
        self._tray.tell()

    def lose(self, why: str) -> None:
        """Note that the connection is no more."""
        self.is_ready = False
        self.silence = self.silence or why
        self._tray.tell()

    def is_farewell(self, frames: list[bytes]) -> bool:
        """Whether that answers a goodbye."""
        with contextlib.suppress(BadMessage):
            return unpack(frames).kind in (Kind.GOODBYE, Kind.UNKNOWN)
        return False

    def take(self, frames: list[bytes]) -> None:
        """Hear a message."""
        try:
            self._take(unpack(frames))
        except BadMessage as error:
            message = f"what answers at {self._connection.address} is no collector of this version"
            self.fail(CollectorError(f"{message} ({error})"))
        self._tray.attention = self._tray.attention or bool(self._tray.trouble)
        self._tray.tell()

    def _take(self, message: Message) -> None:
        kind = message.kind
        if kind is Kind.STATE:
            if self.is_ready:
                if message.parts == self.credit.returns:
                    self.credit.limit = max(self.credit.limit, message.value)
                self._outbox.note_durable(message.sequence)
        elif kind is Kind.WELCOME:
            self._welcome(message.json())
        elif kind is Kind.DECLARED:
            self.asking.declared(message.value, Schema.from_json(message.json()))
        elif kind is Kind.REFUSED:
            self._refused(message)
        elif kind is Kind.UNKNOWN:
            self.is_ready = False
            self.hello_at = 0.0
        elif kind is Kind.STOPPING:
            self.stopping = str(message.json().get("reason"))
        elif kind is Kind.RECALL:
            self._recalled()
        elif kind is Kind.SLOTS:
            address = message.json()
            if address and self._outbox.slots is None:
                with contextlib.suppress(OSError, KeyError, TypeError, ValueError, OverflowError):
                    self._outbox.slots = self._tray.slots = ClientSlots(address)
            if self._outbox.slots is not None:
                for pen in self._tray.pens.values():
                    pen.leave_sheet()
        elif kind is not Kind.GOODBYE:
            raise BadMessage(f"{kind.name} is not for clients")

    def _recalled(self) -> None:
        # First what may go: a credit that was waited for is used before it is given back.
        if self.is_ready and self.asking.send():
            while (batch := self._outbox.next_to_send()) is not None and self.credit.covers(batch.cost):
                if not self._connection.send(batch.frames()):
                    break
                self.credit.sent += batch.cost
                self._outbox.sent()
        self.credit.give_back()
        self._connection.send(pack(Kind.GIVE_BACK, value=self.credit.sent))

    def _welcome(self, data: dict[str, Any]) -> None:
        received, durable = int(data["received"]), int(data["durable"])
        if received < self._outbox.durable:
            address = self._connection.address
            message = (
                f"the collector at {address} has {received} batches of this client, although "
                f"{self._outbox.durable} were acknowledged: its file {data['path']!r} is not the one that "
                "it had; start it on that one"
            )
            self.fail(CollectorError(message, path=str(data["path"])))
            return
        self.largest = int(data["largest"])
        self.silence = None
        self._connection.greet()
        self.credit = SpentCredit(limit=int(data["limit"]))
        self.flush_sent = self.room_asked = 0
        self._leave_slots()
        self._outbox.resend_after(received, durable)
        self.asking.begin_anew()
        self.is_ready = True

    def _leave_slots(self) -> None:
        """They belonged to the connection, or to the process, that is gone."""
        self._outbox.leave_slots()
        self._tray.slots = None
        for pen in self._tray.pens.values():
            pen.sheet.leave_slot()
        for one in self._tray.full:
            one.leave_slot()

    def _refused(self, message: Message) -> None:
        data = message.json()
        kind = getattr(errors, str(data.get("error")), CollectorError)
        text = str(data.get("text"))
        if not (isinstance(kind, type) and issubclass(kind, ShardkeepError)):
            kind = CollectorError
        if message.value:
            self.asking.refused(message.value, kind(text))
            return
        says = f"the collector at {self._connection.address} says: {text}"
        if message.sequence:
            if not self._outbox.refuse(message.sequence, kind(text)):
                self._tray.trouble.append(kind(says))
            return
        if self._of_all in self._tray.trouble:
            self._tray.trouble.remove(self._of_all)
        self._of_all = CollectorError(says)
        self._tray.trouble.append(self._of_all)
        self.silence = f"it says: {text}"
        self.is_ready = False
        self.hello_at = time.monotonic()
