"""Batches of a client, from their making until they are durable."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from shardkeep.collector.client.buffers import Payload
from shardkeep.collector.client.spill import SpillFile
from shardkeep.collector.protocol.messages import Kind, Part, pack, pack_parts
from shardkeep.collector.protocol.slots import ClientSlots
from shardkeep.errors import DurabilityError, ShardkeepError

__all__ = ["Batch", "Outbox"]

_OVERHEAD_BYTES = 1024
# A collector with the least memory accepts messages of 2 MB and 4,096 frames.
_BATCH_BYTES = 1 << 20
_BATCH_PARTS = 1000


class Batch:
    """Payloads that are sent, and stored, together.

    Attributes
    ----------
    payloads : list of Payload
        Empty while they are in the spill file.
    cost_bytes : int
        Bytes that count against the credit: those that are not in shared memory.
    size_bytes : int
        Bytes in memory of this process.
    """

    __slots__ = ("cost_bytes", "payloads", "sequence", "size_bytes")

    def __init__(self, sequence: int, payloads: list[Payload]) -> None:
        self.sequence = sequence
        self.payloads = payloads
        self.size_bytes = sum(one.size_bytes for one in payloads) + _OVERHEAD_BYTES
        self.cost_bytes = sum(one.size_bytes for one in payloads if one.slot is None) + _OVERHEAD_BYTES

    def frames(self) -> list[Any]:
        """Return the frames of the message."""
        parts = [
            Part(one.name, one.rows, one.size_bytes, one.slot, one.keyed, one.is_value)
            for one in self.payloads
        ]
        head = pack(Kind.BATCH, sequence=self.sequence, value=self.cost_bytes, parts=len(parts))
        return [*head, pack_parts(parts), *(one.data for one in self.payloads if one.slot is None)]


class Outbox:
    """A queue of batches: first those that were sent and are not durable, then those to be sent.

    A client that takes over the spill file of a killed one leaves a gap in the sequence numbers
    (`SpillFile`). A HELLO announces the gap to the collector, once everything before it is durable.

    Parameters
    ----------
    most_bytes : int
        The size of batches that may wait in memory.

    Attributes
    ----------
    sequence, durable : int
        The number of the newest batch, and of the newest one that is durable.
    bytes : int
        The size of the batches in memory.
    spill : SpillFile or None
        The file for batches that do not fit into memory.
    spill_failure : DurabilityError or None
        Why batches that belong into the spill file are in memory.
    slots : ClientSlots or None
        The memory shared with the collector.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.sequence = 0
        self.durable = 0
        self.bytes = 0
        self.spill: SpillFile | None = None
        self.spill_failure: DurabilityError | None = None
        self.slots: ClientSlots | None = None
        self._last_of_others = 0
        self._announced = self._expected = 1
        self._sent: deque[Batch] = deque()
        self._waiting: deque[Batch] = deque()

    @property
    def is_full(self) -> bool:
        """Whether batches in memory reach the limit."""
        return self.bytes >= self.most_bytes

    @property
    def is_short(self) -> bool:
        """Whether batches must become durable soon to make room."""
        return self.is_full or (self.slots is not None and self.slots.are_short)

    @property
    def all_sent(self) -> bool:
        """Whether no batch can be sent now."""
        return not self._waiting or self._is_gap_next

    @property
    def all_durable(self) -> bool:
        """Whether every batch is durable."""
        return self.durable >= self.sequence

    @property
    def uses_slots(self) -> bool:
        """Whether a batch is in shared memory, which is free again once the batch is durable."""
        return any(one.slot is not None for batch in self._batches() for one in batch.payloads)

    @property
    def is_at_gap(self) -> bool:
        """Whether a HELLO has to announce a gap before anything can be sent."""
        return not self._sent and self._is_gap_next

    @property
    def _is_gap_next(self) -> bool:
        return bool(self._waiting) and self._waiting[0].sequence > self._expected

    def announce_first(self) -> int:
        """Return the number for a HELLO: of the oldest batch here, or of the next one if there is none."""
        batches = self._batches()
        newest = max(self.sequence, self._last_of_others)
        self._announced = batches[0].sequence if batches else newest + 1
        return self._announced

    # -- making batches ------------------------------------------------------------------------------------

    def add_all(self, payloads: list[Payload]) -> None:
        """Make batches, each of which is a message that any collector accepts."""
        group: list[Payload] = []
        size = 0
        for one in payloads:
            inline = one.size_bytes if one.slot is None else 0
            # A payload that may be refused is sent alone: the rest of its batch would be refused with it.
            is_alone = one.keyed or one.is_value
            if group and (is_alone or size + inline > _BATCH_BYTES or len(group) == _BATCH_PARTS):
                self.add(group)
                group, size = [], 0
            if is_alone:
                self.add([one])
                continue
            group.append(one)
            size += inline
        if group:
            self.add(group)

    def add(self, payloads: list[Payload]) -> Batch:
        """Make a batch."""
        self.sequence = max(self.sequence, self._last_of_others) + 1
        batch = Batch(self.sequence, payloads)
        self.bytes += batch.size_bytes
        self._waiting.append(batch)
        if self.spill is not None and (self.is_full or self.spill.is_used) and self.spill_failure is None:
            self._spill(batch)
        return batch

    # -- spilling ------------------------------------------------------------------------------------------

    def use_spill(self, spill: SpillFile) -> None:
        """Take over the batches that a killed client left in a spill file, and spill into that file."""
        self.spill = spill
        for sequence in spill.left:
            batch = Batch(sequence, [])
            batch.size_bytes = 0
            self._waiting.append(batch)
            self.sequence = sequence
        self._last_of_others = spill.first_sequence - 1

    def retry_spill(self) -> None:
        """Try again to write batches to the spill disk, unless memory has room now."""
        self.spill_failure = None
        if self.is_full:
            self._spill_all(self._waiting)

    def spill_undelivered(self) -> None:
        """Write all batches that are not durable into the spill file, for the next client of this rank."""
        if self.spill is not None:
            self.spill_failure = None
            self._spill_all(self._batches())

    def undelivered(self) -> dict[str, int]:
        """Return the number of rows of each dataset, and the values, that would be lost with this process."""
        found: dict[str, int] = {}
        for one in self._kept_here():
            if one.rows or one.is_value:  # not what a flush sends after a declaration
                found[one.name] = found.get(one.name, 0) + one.rows
        return found

    @property
    def has_undelivered(self) -> bool:
        """Whether the collector has yet to store a payload that no spill file has, also one without rows."""
        return any(True for _ in self._kept_here())

    def _kept_here(self) -> Iterator[Payload]:
        for batch in self._batches():
            if self.spill is None or batch.sequence not in self.spill:
                yield from batch.payloads

    def _spill_all(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            if batch.payloads and self.spill_failure is None:
                self._spill(batch)

    def _spill(self, batch: Batch) -> None:
        assert self.spill is not None
        try:
            if batch.sequence not in self.spill:
                self.spill.write(batch.sequence, batch.payloads)
        except DurabilityError as error:
            self.spill_failure = error
            return
        self._free_slots(batch)
        self.bytes -= batch.size_bytes
        batch.payloads = []
        batch.size_bytes = 0

    # -- sending -------------------------------------------------------------------------------------------

    def next_to_send(self) -> Batch | None:
        """Return the next batch, with its payloads in memory; None if none can be sent."""
        if self.all_sent:
            return None
        batch = self._waiting[0]
        if not batch.payloads:
            assert self.spill is not None
            batch = self._waiting[0] = Batch(batch.sequence, self.spill.read(batch.sequence))
            self.bytes += batch.size_bytes
        return batch

    def note_sent(self) -> None:
        """Note that the next batch was sent."""
        self._sent.append(self._waiting.popleft())
        self._expected = max(self._expected, self._sent[-1].sequence + 1)

    def resend_after(self, received: int, durable: int) -> None:
        """Send every batch again that the collector has not received."""
        self.note_durable(durable)
        while self._sent and self._sent[-1].sequence > received:
            self._waiting.appendleft(self._sent.pop())
        # A killed client of this identity may have sent batches that it left in the spill file.
        while self._waiting and self._waiting[0].sequence <= received:
            self._sent.append(self._waiting.popleft())
        self._expected = max(received + 1, self._announced)

    def note_durable(self, sequence: int) -> None:
        """Forget batches up to `sequence`, which are durable."""
        if sequence <= self.durable:
            return
        self.durable = sequence
        for queue in (self._sent, self._waiting):
            while queue and queue[0].sequence <= sequence:
                self._free_slots(batch := queue.popleft())
                self.bytes -= batch.size_bytes
        if self.spill is not None:
            self.spill.forget(sequence)

    def set_error(self, sequence: int, error: ShardkeepError) -> bool:
        """Keep the error of a batch with its value; return whether a call waits for that."""
        for batch in self._batches():
            if batch.sequence == sequence and batch.payloads:
                batch.payloads[0].error = error
                return batch.payloads[0].is_awaited
        return False

    def drop_slots(self) -> None:
        """Copy batches out of shared memory: its collector, or the connection, has ended."""
        for batch in self._batches():
            for one in batch.payloads:
                one.copy_out_of_slot()
            batch.cost_bytes = batch.size_bytes
        self.slots = None

    def _batches(self) -> list[Batch]:
        # A copy: calls read it while the thread moves batches.
        return [*self._sent, *self._waiting]

    def _free_slots(self, batch: Batch) -> None:
        for one in batch.payloads:
            if one.slot is not None and self.slots is not None:
                self.slots.give_back(one.slot)
