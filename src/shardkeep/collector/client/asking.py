"""`Asking`: the datasets that a client wants of its collector, and those that it tells it of again."""

from __future__ import annotations

from collections import deque

from shardkeep.collector.client.connection import Connection
from shardkeep.collector.client.pen import Pen
from shardkeep.collector.client.tray import Request, Tray
from shardkeep.collector.protocol.messages import Kind, pack
from shardkeep.collector.protocol.schema import Schema
from shardkeep.errors import SchemaError, ShardkeepError
from shardkeep.hdf5.storage.dtypes import describe

__all__ = ["Asking"]

# Fewer than ZeroMQ keeps for one that does not take them: it drops the rest without a word.
_MOST_UNANSWERED = 256


class Asking:
    """Declarations on their way; for the link's thread, which holds the tray.

    On each new connection every dataset that the client may have rows of is declared before any row is
    sent: a collector that was killed may have lost it.
    """

    def __init__(self, tray: Tray, connection: Connection) -> None:
        self._tray = tray
        self._connection = connection
        self._numbers = 0
        self._to_send: deque[Request] = deque()
        self._sent: dict[int, Request] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether there will be an answer."""
        return bool(self._sent or self._to_send)

    @property
    def schemas(self) -> list[Schema]:
        """Of the datasets that there is no answer about yet."""
        return [one.schema for one in (*self._sent.values(), *self._to_send)]

    def send(self) -> bool:
        """Send what may be sent now; return whether that was all, so that rows may follow."""
        while self._tray.requests:
            self._to_send.append(self._tray.requests.popleft())
        while self._to_send and len(self._sent) < _MOST_UNANSWERED:
            request = self._to_send[0]
            number = self._numbers + 1
            frames = pack(
                Kind.DECLARE, value=number, parts=request.pen is not None, data=request.schema.to_json()
            )
            if not self._connection.send(frames):
                return False
            self._sent[number] = self._to_send.popleft()
            self._numbers = number
        return not self._to_send

    def begin_anew(self) -> None:
        """The collector has just heard who this is, and may be another one."""
        asked = [one for one in (*self._sent.values(), *self._to_send) if one.pen is None]
        self._sent = {}
        self._to_send = deque(Request(pen.schema, pen) for pen in self._tray.pens.values())
        self._to_send += asked

    def declared(self, number: int, schema: Schema) -> None:
        """Hear what a dataset is."""
        request = self._sent.pop(number, None)
        if request is None:
            return
        name, wanted = request.schema.name, request.schema
        if request.pen is None:
            # Here and not by the call that waits: the pen is known if the connection is lost in between.
            request.pen = self._tray.pens.setdefault(name, Pen(schema))
        elif not schema.fits(wanted):
            what, its = describe(schema.dtype, schema.row_shape), describe(wanted.dtype, wanted.row_shape)
            message = f"dataset {name!r} of {self._connection.address} has become another one, with {what}"
            self._tray.trouble.append(
                SchemaError(f"{message}, while {its} of this client were on their way: connect again")
            )

    def refused(self, number: int, error: ShardkeepError) -> None:
        """Hear that there will be no such dataset."""
        request = self._sent.pop(number, None)
        if request is not None and request.pen is None:
            request.error = error
        elif request is not None:
            self._tray.trouble.append(error)
