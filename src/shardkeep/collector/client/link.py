"""`Link`: the thread that brings a client's rows to the collector.

The thread owns socket and outbox. It picks up what the calls left on the tray, sends as far as the
credit goes, hears what is durable, and after any interruption says HELLO again and sends once more
what the collector lacks. It does not know the client: when that is dropped, it goes on until all is
durable, or the time for that is over.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict

from shardkeep.collector.client.connection import Connection
from shardkeep.collector.client.hearing import Hearing
from shardkeep.collector.client.loss_report import tell_losses
from shardkeep.collector.client.outbox import Outbox
from shardkeep.collector.client.pen import Rows, Sheet, has_large_rows
from shardkeep.collector.client.tray import Tray
from shardkeep.collector.protocol.messages import Kind, pack
from shardkeep.collector.protocol.zeromq import Target
from shardkeep.errors import CollectorError, InternalError, ShardkeepError
from shardkeep.files.owner import this_process

__all__ = ["Link"]

_HELLO_EVERY_S = 0.5
_PING_EVERY_S = 2.0
_GOODBYE_S = 1.0
_WANT_EVERY_S = 1.0
_SLOTS_EVERY_S = 5.0
_GRACE_S = 0.5
# What may lie on the tray of a client that spills: the thread writes it to the disk.
_MOST_SHEETS = 8


class Link:
    """The connection of one client.

    Parameters
    ----------
    find : callable
        Returns the `Target`, or None while there is none; asked again after an interruption.
    what : str
        What `find` looks for, for messages.
    rank, world_size : int
    outbox : Outbox
    linger_s : float
        How long rows may wait for more before they are sent.
    timeout_s : float
        How long a call may wait, and how long it may try to deliver what is left when the process ends.

    Attributes
    ----------
    tray : Tray
        Where calls lay down what the thread is to do.
    leave_by : float or None
        Until when it may try to deliver what is left.
    quiet : bool
        Whether somebody was told already that rows may be lost.
    """

    def __init__(
        self,
        find: Callable[[], Target | None],
        what: str,
        rank: int,
        world_size: int,
        outbox: Outbox,
        linger_s: float,
        timeout_s: float,
        identity: bytes | None = None,
    ) -> None:
        self.rank = rank
        self.timeout_s = timeout_s
        self.outbox = outbox
        self.leave_by: float | None = None
        self.quiet = False
        self._connection = Connection(find, what)
        self.tray = Tray(rank, linger_s, self._connection.wake, outbox.pens)
        self._hearing = Hearing(self.tray, outbox, self._connection)
        self._hello = {
            "id": (identity or secrets.token_bytes(16)).hex(),
            "rank": rank,
            "world_size": world_size,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "owner": asdict(this_process()),
        }
        self._flush_wanted = self._ticket_taken = 0
        self._tickets: deque[tuple[int, int]] = deque()
        self._slots_at = 0.0
        self._has_drained = False
        self._thread = threading.Thread(target=self._run, name=f"shardkeep-rank-{rank}", daemon=True)
        self._thread.start()

    # -- for the client ------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where it is, or would be, connected to."""
        return self._connection.address

    @property
    def is_ready(self) -> bool:
        """Whether the collector knows this client now."""
        return self._hearing.is_ready

    @property
    def silence(self) -> str | None:
        """Why nothing is heard, in words."""
        return self._hearing.silence

    @property
    def largest(self) -> int:
        """Bytes of the longest message that the collector takes; 0 if that is not known yet."""
        return self._hearing.largest

    def has_room(self) -> bool:
        """Whether more rows may be handed over."""
        full = self.tray.full
        if self.outbox.spill is not None:
            return len(full) < _MOST_SHEETS and self.outbox.spill_failure is None
        return self.outbox.bytes + self.tray.full_bytes < self.outbox.most_bytes

    def has_slots(self) -> bool:
        """Whether there is a free slot, or none that will become free: pens of other datasets keep theirs."""
        slots = self.outbox.slots
        if slots is None or slots.is_free:
            return True
        return not self.outbox.uses_slots and all(one.slot is None for one in self.tray.full)

    def leave(self, timeout_s: float) -> None:
        """Deliver what is left within a time, say goodbye, and end; does not wait, takes no lock."""
        leave_by = time.monotonic() + timeout_s
        self.leave_by = leave_by if self.leave_by is None else min(self.leave_by, leave_by)
        self.tray.wake()

    def join(self) -> bool:
        """Wait for the end, after `leave`; False if it does not come in time."""
        assert self.leave_by is not None
        self._thread.join(max(self.leave_by - time.monotonic(), 0.0) + _GRACE_S)
        return not self._thread.is_alive()

    def tell(self) -> None:
        """Tell, once, what is lost or refused and no call has raised."""
        tray = self.tray
        lost = self.outbox.undelivered()
        for one in (*tray.full, *(pen.sheet for pen in list(tray.dirty.values()))):
            if one.rows or isinstance(one, Rows):
                lost[one.name] = lost.get(one.name, 0) + one.rows
        trouble = [str(one) for one in tray.trouble]
        quiet, self.quiet = self.quiet, True
        if not quiet and (lost or trouble):
            why = self._hearing.failure or self.silence or "not in time"
            tell_losses(self.rank, self.address, lost, trouble, str(why))

    # -- the thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        hearing, tray = self._hearing, self.tray
        try:
            while hearing.failure is None and not tray.do(self._is_over):
                self._turn()
            if self.is_ready or self._has_drained:
                self._say_goodbye()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
            message = f"the link to {self._connection.what} broke ({text})"
            tray.do(hearing.fail, InternalError(message))
        finally:
            tray.do(self._put_down)
            self._connection.end()
            if self.leave_by is not None:
                self.tell()

    def _is_over(self) -> bool:
        """Whether it was told to leave, and has delivered everything or has no time left."""
        if self.leave_by is None:
            return False
        tray = self.tray
        if tray.ended is None:
            tray.ended = CollectorError(f"the client of rank {self.rank} is closed: connect again")
            tray.attention = True
            tray.tell()
        if time.monotonic() >= self.leave_by:
            return True
        self._seal(everything=True)
        self._flush_wanted = self.outbox.sequence
        return self.outbox.all_durable

    def _put_down(self) -> None:
        """What is left is for the next client of this rank, or lost."""
        self._hearing.is_ready = False
        self._seal(everything=True)
        self.outbox.keep()
        if not self.outbox.undelivered():
            self.tray.durable_ticket = sys.maxsize
        if self.outbox.spill is not None:
            self.outbox.spill.close()
        self.tray.tell()

    def _say_goodbye(self) -> None:
        """Leave, and wait a moment until that was heard: the process may end before ZeroMQ has sent it."""
        self._connection.send(pack(Kind.BYE, sequence=self.outbox.sequence))
        deadline = time.monotonic() + _GOODBYE_S
        if self.leave_by is not None:
            deadline = min(deadline, max(self.leave_by, time.monotonic() + _GRACE_S / 2))
        while (left_s := deadline - time.monotonic()) > 0:
            frames = self._connection.receive(left_s)
            if frames is None or self._hearing.is_farewell(frames):
                return

    def _turn(self) -> None:
        connection, hearing = self._connection, self._hearing
        if not connection.is_open:
            try:
                connection.open()
            except ShardkeepError as error:
                self.tray.do(hearing.fail, error)
                return
            hearing.hello_at = 0.0
        wait_s = self.tray.do(self._do_what_is_due)
        if hearing.failure is not None:
            return
        if connection.wait(wait_s):
            for _ in range(64):
                frames = connection.receive()
                if frames is None:
                    break
                self.tray.do(hearing.take, frames)
        elif connection.is_open and (why := connection.fault()) is not None:
            self.tray.do(hearing.lose, why)
            connection.close(linger_ms=0)

    def _do_what_is_due(self) -> float:
        """Pick up and send; return how long nothing more will be due."""
        now = time.monotonic()
        tray, outbox = self.tray, self.outbox
        self._pick_up(now)
        if not self._connection.is_open:
            return 0.05
        wait_s = self._send_what_is_due(now)
        if tray.linger_at is not None and not self._must_hold_back():
            wait_s = min(wait_s, tray.linger_at - now)
        if self.leave_by is not None:
            wait_s = min(wait_s, self.leave_by - now)
        if outbox.all_durable and self._hearing.stopping is not None and self.is_ready and not tray.dirty:
            self._has_drained = True
            message = f"the collector at {self.address} has stopped ({self._hearing.stopping})"
            self._hearing.fail(CollectorError(f"{message}, all rows are stored"))
        return wait_s

    def _pick_up(self, now: float) -> None:
        """Make batches of what lies on the tray, and note what was asked for."""
        tray, outbox = self.tray, self.outbox
        asked = tray.tickets > self._ticket_taken or self._hearing.stopping is not None
        lingered = tray.linger_at is not None and now >= tray.linger_at and not self._must_hold_back()
        if outbox.spill_failure is not None and (tray.retry or not outbox.is_full):
            outbox.spill_again()
        if tray.retry:
            tray.retry = False
            tray.tell()
        self._seal(everything=asked or lingered)
        if not outbox.is_full:
            outbox.spill_failure = None  # it is in memory, where there is room
        if tray.tickets > self._ticket_taken:
            self._ticket_taken = tray.tickets
            self._flush_wanted = outbox.sequence
            self._tickets.append((tray.tickets, outbox.sequence))
        while self._tickets and self._tickets[0][1] <= outbox.durable:
            tray.durable_ticket = self._tickets.popleft()[0]
            tray.tell()
        tray.slots = outbox.slots
        tray.attention = bool(tray.trouble) or tray.ended is not None or outbox.spill_failure is not None
        if outbox.slots is not None and outbox.all_durable and not tray.full:
            held = [pen.sheet.slot for pen in tray.pens.values() if pen.sheet.slot is not None]
            outbox.slots.reclaim(held)

    def _must_hold_back(self) -> bool:
        """Whether rows stay on their sheets, which are bounded, as there is no room for more batches."""
        outbox = self.outbox
        return outbox.is_full and (outbox.spill is None or outbox.spill_failure is not None)

    def _seal(self, *, everything: bool) -> None:
        """Make batches of what was handed over, or of all rows."""
        tray = self.tray
        if not tray.full and not (everything and tray.dirty):
            return
        given, tray.full = tray.full, []
        if everything:
            given += [pen.sheet for pen in tray.dirty.values() if not any(pen.sheet is one for one in given)]
            tray.dirty = {}
            tray.linger_at = None
        rows: list[Rows] = []
        for one in given:
            rows += one.take() if isinstance(one, Sheet) else [one]
        self.outbox.add_all(rows)
        tray.tell()

    # -- sending -------------------------------------------------------------------------------------------

    def _send_what_is_due(self, now: float) -> float:
        hearing, outbox, connection = self._hearing, self.outbox, self._connection
        if not hearing.is_ready or outbox.is_at_gap:
            if now >= hearing.hello_at + _HELLO_EVERY_S:
                hearing.hello_at = now
                hearing.silence = connection.trouble() or hearing.silence
                connection.send(pack(Kind.HELLO, sequence=outbox.introduce(), data=self._hello))
            return hearing.hello_at + _HELLO_EVERY_S - now
        if hearing.asking.send():
            self._send_batches()
        self._ask_for_commits()
        self._ask_for_slots(now)
        every_s = _PING_EVERY_S if outbox.all_durable and not hearing.asking.is_waiting else _HELLO_EVERY_S
        if now >= connection.spoke + every_s:
            connection.send(pack(Kind.PING))
        return connection.spoke + every_s - now

    def _ask_for_commits(self) -> None:
        hearing, outbox = self._hearing, self.outbox
        if not outbox.all_sent or outbox.all_durable:
            return
        wanted, newest = self._flush_wanted, outbox.sequence
        if hearing.stopping is not None:
            wanted = newest
        if wanted > max(hearing.flush_sent, outbox.durable):
            hearing.flush_sent = hearing.room_asked = wanted
            self._connection.send(pack(Kind.FLUSH, sequence=wanted))
        elif outbox.is_short and outbox.durable >= hearing.room_asked:
            hearing.room_asked = newest
            self._connection.send(pack(Kind.FLUSH, sequence=newest, value=1))

    def _send_batches(self) -> None:
        credit, connection = self._hearing.credit, self._connection
        while (batch := self.outbox.next_to_send()) is not None:
            if not credit.covers(batch.cost):
                now = time.monotonic()
                if credit.asked_for != batch.sequence or now >= credit.asked_at + _WANT_EVERY_S:
                    credit.asked_for, credit.asked_at = batch.sequence, now
                    connection.send(pack(Kind.WANT, value=credit.missing(batch.cost)))
                return
            if not connection.send(batch.frames()):
                return
            credit.sent += batch.cost
            self.outbox.sent()

    def _ask_for_slots(self, now: float) -> None:
        if self.outbox.slots is not None or now < self._slots_at or not self._connection.is_local:
            return
        # Also while the first large rows wait for their dataset: the next ones are for slots.
        asked = self._hearing.asking.schemas
        if any(pen.has_many for pen in self.tray.pens.values()) or any(map(has_large_rows, asked)):
            self._slots_at = now + _SLOTS_EVERY_S
            self._connection.send(pack(Kind.SLOTS))
