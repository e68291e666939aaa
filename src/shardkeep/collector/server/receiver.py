"""`Receiver`: stores each batch once and in order.

Each batch of a client has a sequence number, which is stored in the same commit as its rows. A batch that was
stored before is recognised by it, also after a restart. After a missing batch (`GapError`) the client has to
introduce itself again; the answer says what was received, and the client sends the rest again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shardkeep.collector.protocol.messages import BadMessage, Message, Part, error_data, unpack_parts
from shardkeep.collector.protocol.slots import SLOT_BYTES
from shardkeep.errors import CollectorError, SchemaError

if TYPE_CHECKING:
    from shardkeep.collector.server.committer import Committer
    from shardkeep.collector.server.credits import CreditPool
    from shardkeep.collector.server.events import Events
    from shardkeep.collector.server.session import Session

__all__ = ["GapError", "Receiver"]

# Memory of ZeroMQ and Python for a message, without its rows.
_OVERHEAD_BYTES = 1024


class GapError(Exception):
    """An earlier batch, or the shared memory of this one, is missing: the client has to introduce itself."""


class Receiver:
    """The way of a batch into the store."""

    def __init__(self, committer: Committer, credits: CreditPool, events: Events) -> None:
        self._committer = committer
        self._credits = credits
        self._events = events

    def receive(self, session: Session, message: Message) -> list[dict[str, Any]]:
        """Store a batch that was not stored before; return the errors of the parts that were refused.

        Raises
        ------
        BadMessage, GapError
            Nothing was stored.
        DurabilityError
            The file has to be abandoned.
        """
        entry = session.entry
        parts = unpack_parts(message)
        inline = sum(part.bytes for part, frame in parts if frame is not None) + _OVERHEAD_BYTES
        if inline > self._credits.largest + _OVERHEAD_BYTES:
            raise BadMessage(f"a batch of {inline:,} bytes, where {self._credits.largest:,} are allowed")
        if message.sequence > entry.sequence + 1:
            raise GapError
        if not self._credits.receive(session.route, inline):
            self._events.refused(session.label, "a batch without credit for it")
        if message.sequence <= entry.sequence:
            session.state_due = True
            self._events.repeated()
            return []
        claimed = _claim(session, [part for part, frame in parts if frame is None])
        data = [_in_slots(session, part) if frame is None else frame for part, frame in parts]
        session.claims |= dict.fromkeys(claimed, message.sequence)
        refusals = []
        for (part, _), one in zip(parts, data, strict=True):
            try:
                self._store(session, part, one)
            except (CollectorError, SchemaError) as error:
                # The batch counts as received: sent again, it would be refused again. The error itself is not
                # kept: its traceback refers to shared memory.
                refusals.append(error_data(error))
        entry.sequence = message.sequence
        self._committer.store.clients.update(entry)
        self._committer.mark_changed(entry)
        return refusals

    def _store(self, session: Session, part: Part, data: memoryview) -> None:
        store, name, rows = self._committer.store, part.name, part.rows
        if part.is_value:
            store.store_value(data)
            return
        session.declared.check(name, rows)
        if part.keyed:
            if len(data) < 8 * rows:
                raise CollectorError("a batch with fewer bytes than keys")
            keys = np.frombuffer(data[: 8 * rows], "<i8")
            store.put(name, data[8 * rows :], keys, session.entry.rank, session.entry.world_size)
        else:
            store.append(name, data, rows)
        session.entry.rows += rows
        self._committer.count(rows, len(data))


def _in_slots(session: Session, part: Part) -> memoryview:
    """Return the rows of a part in shared memory; `GapError` if it is that of an earlier connection."""
    try:
        if session.slots is None or part.offset is None:
            raise GapError
        return session.slots.read(part.offset, part.bytes)
    except IndexError:
        raise GapError from None


def _claim(session: Session, parts: list[Part]) -> set[int]:
    """Return the slots of a batch: each belongs to one part until that part is durable.

    The memory of a slot is its credit. A slot that is claimed twice would be rows without credit.

    Raises
    ------
    GapError
        A slot is claimed again, or a part lies in two of them.
    """
    claimed: set[int] = set()
    for part in parts:
        slot, inside = divmod(part.offset or 0, SLOT_BYTES)
        is_in_use = slot in claimed or session.claims.get(slot, 0) > session.durable
        if inside or part.bytes > SLOT_BYTES or is_in_use:
            raise GapError
        claimed.add(slot)
    return claimed
