"""`Intake`: the way of a batch into the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shardkeep.collector.protocol.messages import BadMessage, Message, Part, unpack_parts
from shardkeep.collector.protocol.slots import SLOT_BYTES
from shardkeep.collector.server.kept_errors import without_frames
from shardkeep.errors import CollectorError, SchemaError, ShardkeepError

if TYPE_CHECKING:
    from shardkeep.collector.server.committer import Committer
    from shardkeep.collector.server.credits import CreditPool
    from shardkeep.collector.server.events import Events
    from shardkeep.collector.server.sessions import Session

__all__ = ["MESSAGE_OVERHEAD_BYTES", "Intake", "LostStepError"]

# Beside rows: what ZeroMQ and Python keep of a message.
MESSAGE_OVERHEAD_BYTES = 1024


class LostStepError(Exception):
    """Something before this batch was lost on the way: the client has to begin anew."""


class Intake:
    """Takes batches, each one once and in order.

    Parameters
    ----------
    disk : Committer
    credits : CreditPool
    events : Events
    """

    def __init__(self, disk: Committer, credits: CreditPool, events: Events) -> None:
        self._disk = disk
        self._credits = credits
        self._events = events

    def take(self, session: Session, message: Message) -> list[ShardkeepError]:
        """Store a batch, or find that it was stored before; return why parts of it cannot be.

        Raises
        ------
        BadMessage, LostStepError
            Nothing was stored.
        DurabilityError
            The file has to be given up.
        """
        entry = session.entry
        parts = unpack_parts(message)
        inline = sum(part.bytes for part, frame in parts if frame is not None) + MESSAGE_OVERHEAD_BYTES
        if inline > self._credits.largest + MESSAGE_OVERHEAD_BYTES:
            raise BadMessage(f"a batch of {inline:,} bytes, where {self._credits.largest:,} are allowed")
        if message.sequence > entry.sequence + 1:
            raise LostStepError
        if not self._credits.take(session.route, inline):
            self._events.refused(session.who, "a batch without credit for it")
        if message.sequence <= entry.sequence:
            session.state_due = True
            self._events.repeated(session.who)
            return []
        claimed = _claim(session, [part for part, frame in parts if frame is None])
        data_of = [
            frame if frame is not None else self._in_slots(session, part.offset, part.bytes)
            for part, frame in parts
        ]
        session.claims |= dict.fromkeys(claimed, message.sequence)
        refusals: list[ShardkeepError] = []
        for (part, _), data in zip(parts, data_of, strict=True):
            try:
                if part.is_value:
                    self._disk.store.store_value(data)
                else:
                    self._store(session, part.name, part.rows, data, keyed=part.keyed)
            except (CollectorError, SchemaError) as error:
                # It counts as taken: sent again it would be refused again.
                refusals.append(without_frames(error))
        entry.sequence = message.sequence
        self._disk.store.clients.update(entry)
        self._disk.note(entry)
        return refusals

    def _in_slots(self, session: Session, offset: int | None, size: int) -> memoryview:
        try:
            if session.slots is None or offset is None:
                raise IndexError("there is no shared memory")
            return session.slots.read(offset, size)
        except IndexError as error:
            # Shared memory of an earlier connection: the rows come again.
            raise LostStepError from error

    def _store(self, session: Session, name: str, rows: int, data: memoryview, *, keyed: bool) -> None:
        store = self._disk.store
        session.forms.check(name, rows)
        if keyed:
            if len(data) < 8 * rows:
                raise CollectorError("a batch with fewer bytes than keys")
            keys = np.frombuffer(data[: 8 * rows], "<i8")
            store.put(name, data[8 * rows :], keys, session.entry.rank)
        else:
            store.append(name, data, rows)
        session.entry.rows += rows
        self._disk.count(rows, len(data))


def _claim(session: Session, parts: list[Part]) -> set[int]:
    """Return the slots that a batch lies in: each belongs to one part until that part is durable.

    The memory of a slot is its credit, so one that was claimed twice would be rows that nothing was paid for.

    Raises
    ------
    LostStepError
        A slot is claimed again, or a part lies in two of them.
    """
    claimed: set[int] = set()
    for part in parts:
        slot, inside = divmod(part.offset or 0, SLOT_BYTES)
        if (
            inside
            or part.bytes > SLOT_BYTES
            or slot in claimed
            or session.claims.get(slot, 0) > session.durable
        ):
            raise LostStepError
        claimed.add(slot)
    return claimed
