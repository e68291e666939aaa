"""`Outbox`: the batches of a client, from their making until they are durable."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, Any

from shardkeep.collector.client.pen import Pen, Rows
from shardkeep.collector.protocol.messages import Kind, Part, pack, pack_parts
from shardkeep.errors import DurabilityError, ShardkeepError

if TYPE_CHECKING:
    from shardkeep.collector.client.spill import SpillFile
    from shardkeep.collector.protocol.slots import ClientSlots

__all__ = ["Batch", "Outbox"]

_OVERHEAD_BYTES = 1024
# A collector with the least memory takes messages of 2 MB and 4,096 frames.
_BATCH_BYTES = 1 << 20
_BATCH_PARTS = 1000


class Batch:
    """Rows that go out, and are stored, together.

    Attributes
    ----------
    rows : list of Rows
        Empty while they are in the spill file.
    cost : int
        Bytes that count against the credit: those that are not in shared memory.
    size : int
        Bytes in memory of this process.
    """

    __slots__ = ("cost", "rows", "sequence", "size")

    def __init__(self, sequence: int, rows: list[Rows]) -> None:
        self.sequence = sequence
        self.rows = rows
        self.size = sum(len(one.data) for one in rows) + _OVERHEAD_BYTES
        self.cost = sum(len(one.data) for one in rows if one.slot is None) + _OVERHEAD_BYTES

    def frames(self) -> list[Any]:
        """Return the message."""
        parts = [
            Part(one.name, one.rows, len(one.data), one.slot, one.keyed, one.is_value) for one in self.rows
        ]
        head = pack(Kind.BATCH, sequence=self.sequence, value=self.cost, parts=len(parts))
        return [*head, pack_parts(parts), *(one.data for one in self.rows if one.slot is None)]


class Outbox:
    """Batches in order: first those that were sent and are not durable, then those to be sent.

    Parameters
    ----------
    most_bytes : int
        What may wait in memory.
    spill : SpillFile, optional
        Where batches go that find no room.

    Attributes
    ----------
    pens : dict of str to Pen
        The datasets that this client knows.
    spill_failure : DurabilityError or None
        Why batches that should be in the spill file are in memory.
    """

    def __init__(self, most_bytes: int, spill: SpillFile | None = None) -> None:
        self.most_bytes = most_bytes
        self.sequence = 0
        self.durable = 0
        self._before_own = 0
        self._told = self._expected = 1
        self.bytes = 0
        self.spill = spill
        self.pens: dict[str, Pen] = {}
        self.spill_failure: DurabilityError | None = None
        self.slots: ClientSlots | None = None
        self._sent: deque[Batch] = deque()
        self._waiting: deque[Batch] = deque()

    @property
    def is_full(self) -> bool:
        """Whether one more batch has to wait."""
        return self.bytes >= self.most_bytes

    @property
    def is_short(self) -> bool:
        """Whether room for more has to be made soon: by what is here becoming durable."""
        return self.is_full or (self.slots is not None and self.slots.are_short)

    @property
    def all_sent(self) -> bool:
        """Whether nothing waits that can be sent before the rest is durable."""
        return not self._waiting or self._is_next_behind_gap

    @property
    def all_durable(self) -> bool:
        """Whether everything is durable."""
        return self.durable >= self.sequence

    @property
    def uses_slots(self) -> bool:
        """Whether rows of a batch are in shared memory, which is free again once they are durable."""
        batches = itertools.chain(self._sent, self._waiting)
        return any(one.slot is not None for batch in batches for one in batch.rows)

    @property
    def first(self) -> int:
        """The number of the oldest batch that is still here; of the next one if there is none."""
        for queue in (self._sent, self._waiting):
            if queue:
                return queue[0].sequence
        return max(self.sequence, self._before_own) + 1

    # Where a client took over from one that died there is a gap in the numbers (see `SpillFile`). The
    # collector hears of it in a HELLO, once it has all that lies before it.

    @property
    def is_at_gap(self) -> bool:
        """Whether nothing can be sent before a HELLO told that there is a gap."""
        return not self._sent and self._is_next_behind_gap

    @property
    def _is_next_behind_gap(self) -> bool:
        return bool(self._waiting) and self._waiting[0].sequence > self._expected

    def introduce(self) -> int:
        """Return the number that goes into a HELLO: of the oldest batch that is still here."""
        self._told = self.first
        return self._told

    def add(self, rows: list[Rows]) -> Batch:
        """Make a batch."""
        self.sequence = max(self.sequence, self._before_own) + 1
        batch = Batch(self.sequence, rows)
        self.bytes += batch.size
        self._waiting.append(batch)
        if self.spill is not None and (self.is_full or self.spill.is_used) and self.spill_failure is None:
            self._spill(batch)
        return batch

    def spill_again(self) -> None:
        """Try once more to write what the disk had no room for, unless there is room in memory now."""
        assert self.spill is not None
        self.spill_failure = None
        if self.is_full:
            for batch in self._waiting:
                if batch.rows and self.spill_failure is None:
                    self._spill(batch)

    def keep(self) -> None:
        """Write all that is not durable into the spill file, for the next client of this rank."""
        if self.spill is not None:
            self.spill_failure = None
            for batch in (*self._sent, *self._waiting):
                if batch.rows and self.spill_failure is None:
                    self._spill(batch)

    def undelivered(self) -> dict[str, int]:
        """Return how many rows of which dataset would die with this process."""
        found: dict[str, int] = {}
        for batch in (*self._sent, *self._waiting):
            if self.spill is None or batch.sequence not in self.spill:
                for one in batch.rows:
                    found[one.name] = found.get(one.name, 0) + one.rows
        return found

    def refuse(self, sequence: int, error: ShardkeepError) -> bool:
        """Note an error about a batch; False if nobody waits for it."""
        for batch in (*self._sent, *self._waiting):
            if batch.sequence == sequence and batch.rows:
                batch.rows[0].error = error
                return batch.rows[0].is_awaited
        return False

    def _spill(self, batch: Batch) -> None:
        assert self.spill is not None
        try:
            if batch.sequence not in self.spill:
                self.spill.write(batch, self.pens)
        except DurabilityError as error:
            self.spill_failure = error
            return
        self._free(batch)
        self.bytes -= batch.size
        batch.rows = []
        batch.size = 0

    def add_all(self, rows: list[Rows]) -> None:
        """Make batches of rows, each one a message that any collector takes."""
        batch: list[Rows] = []
        size = 0
        for one in rows:
            inline = len(one.data) if one.slot is None else 0
            # What may be refused goes alone: the rest of its batch would be refused with it.
            alone = one.keyed or one.is_value
            if batch and (alone or size + inline > _BATCH_BYTES or len(batch) == _BATCH_PARTS):
                self.add(batch)
                batch, size = [], 0
            if alone:
                self.add([one])
                continue
            batch.append(one)
            size += inline
        if batch:
            self.add(batch)

    def adopt(self, spill: SpillFile) -> None:
        """Take over what is in the spill file of a client that died, and keep one's own there."""
        self.spill = spill
        self.pens.update((name, Pen(schema)) for name, schema in spill.schemas.items())
        for batch in spill.left:
            self._waiting.append(batch)
            self.sequence = batch.sequence
        self._before_own = spill.first_sequence - 1

    def next_to_send(self) -> Batch | None:
        """Return the next one, with its rows in memory; None if there is none."""
        if self.all_sent:
            return None
        batch = self._waiting[0]
        if not batch.rows:
            assert self.spill is not None
            batch.rows = self.spill.read(batch.sequence)
            batch.size = sum(len(one.data) for one in batch.rows) + _OVERHEAD_BYTES
            batch.cost = batch.size
            self.bytes += batch.size
        return batch

    def sent(self) -> None:
        """Note that the next one was sent."""
        self._sent.append(self._waiting.popleft())
        self._expected = max(self._expected, self._sent[-1].sequence + 1)

    def resend_after(self, received: int, durable: int) -> None:
        """Note what the collector has; everything after it goes out again."""
        self.note_durable(durable)
        while self._sent and self._sent[-1].sequence > received:
            self._waiting.appendleft(self._sent.pop())
        # What was received before it was sent: by a client of this identity that died.
        while self._waiting and self._waiting[0].sequence <= received:
            self._sent.append(self._waiting.popleft())
        self._expected = max(received + 1, self._told)

    def note_durable(self, sequence: int) -> bool:
        """Forget batches up to `sequence`; return whether there were some."""
        if sequence <= self.durable:
            return False
        self.durable = sequence
        for queue in (self._sent, self._waiting):
            while queue and queue[0].sequence <= sequence:
                self._free(batch := queue.popleft())
                self.bytes -= batch.size
        if self.spill is not None:
            self.spill.forget(sequence)
        return True

    def leave_slots(self) -> None:
        """Copy what is in shared memory out of it: the collector that had it is gone."""
        for batch in (*self._sent, *self._waiting):
            for one in batch.rows:
                one.leave_slot()
            batch.cost = batch.size
        self.slots = None

    def _free(self, batch: Batch) -> None:
        for one in batch.rows:
            if one.slot is not None and self.slots is not None:
                self.slots.give_back(one.slot)
