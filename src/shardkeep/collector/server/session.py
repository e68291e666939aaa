"""`Session`: one client while it is connected, and the datasets that it has declared on this connection.

`Sessions`: all of them. No call takes longer with more clients, apart from those that it returns.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from shardkeep.collector.protocol.limits import check_chunk
from shardkeep.collector.protocol.messages import Message
from shardkeep.collector.protocol.schema import Schema
from shardkeep.collector.protocol.slots import ServerSlots
from shardkeep.collector.store.client_table import ClientEntry
from shardkeep.collector.store.store import Store
from shardkeep.errors import CollectorError, MissingExtraError, SchemaError
from shardkeep.files.owner import Owner
from shardkeep.hdf5.storage.dtypes import describe

__all__ = ["SILENT_S", "DeclaredDatasets", "Session", "Sessions", "parse_hello"]

SILENT_S = 10.0
# Also how long a client is silent before it is checked whether its process has ended.
_CHECK_EVERY_S = 1.0
_CHECKS_PER_STEP = 256


class DeclaredDatasets:
    """The datasets that one client has declared on one connection.

    A client declares all its datasets again on each connection before it sends rows. A dataset may have been
    created with another type in between, after a collector was killed before the commit of the first
    declaration; then the rows are refused, since their bytes would be read as other values.
    """

    def __init__(self) -> None:
        self._faults: dict[str, str | None] = {}

    def declare(self, message: Message, store: Store, memory_bytes: int) -> tuple[Schema, bool]:
        """Process a DECLARE; return the schema of the dataset, and whether it was created.

        Raises
        ------
        CollectorError, SchemaError, MissingExtraError
            The declaration is not valid, or the dataset cannot be created.
        """
        wanted = Schema.from_json(message.json())
        name = wanted.name
        is_new = store.schema(name) is None
        try:
            check_chunk(wanted, memory_bytes)
            known = store.declare(wanted)
        except (CollectorError, ValueError, MissingExtraError) as error:
            if message.parts:
                self._faults[name] = str(error)
            raise
        if not message.parts:
            # The client casts its rows to the schema of the answer.
            self._faults.setdefault(name, None)
        elif known.fits(wanted):
            self._faults[name] = None
        else:
            mine, its = describe(known.dtype, known.row_shape), describe(wanted.dtype, wanted.row_shape)
            self._faults[name] = f"dataset {name!r} was created again, with {mine} instead of {its}"
        return known, is_new

    def check(self, name: str, rows: int) -> None:
        """Raise `SchemaError` for rows of a dataset that was not declared in their form."""
        fault = self._faults.get(name, f"dataset {name!r} was not declared")
        if fault is not None:
            raise SchemaError(f"{fault}; {rows} rows of this client are not stored: connect again")


@dataclass
class Session:
    """One client while it is connected.

    Attributes
    ----------
    route : bytes
        Address of the client in ZeroMQ.
    label : str
        The client in messages for people.
    durable : int
        Sequence number up to which all its batches are durable.
    owner : Owner or None
        Its process, if known: a client whose process on this host has ended is not waited for.
    claims : dict of int to int
        The last batch that used each slot of its shared memory.
    returns : int
        How often it gave credit back: it ignores limits that were sent before.
    sent_limit : int
        The limit of its credit that was sent to it last.
    state_due : bool
        Whether to send it a STATE.
    """

    route: bytes
    entry: ClientEntry
    label: str
    durable: int
    slots: ServerSlots | None = None
    seen: float = field(default_factory=time.monotonic)
    state_due: bool = False
    owner: Owner | None = None
    returns: int = 0
    sent_limit: int = 0
    claims: dict[int, int] = field(default_factory=dict)
    declared: DeclaredDatasets = field(default_factory=DeclaredDatasets)

    def is_silent(self, now: float, *, more: bool = False) -> bool:
        """Return whether the client has ended, or sent nothing for long; an idle one sends every 2 s.

        With `more`, messages wait to be received, and its own may be among them.
        """
        silent_s = now - self.seen
        has_ended = self.owner is not None and silent_s > _CHECK_EVERY_S and self.owner.is_gone()
        return has_ended or (silent_s > SILENT_S and not more)


class Sessions:
    """The connected clients, by their routes and by their identities."""

    def __init__(self) -> None:
        self.by_route: dict[bytes, Session] = {}
        self.by_client: dict[bytes, Session] = {}
        self._changed: list[Session] = []
        self._checks: deque[tuple[float, Session]] = deque()

    def __len__(self) -> int:
        """Return the number of clients."""
        return len(self.by_route)

    def __iter__(self) -> Iterator[Session]:
        """Return an iterator of a copy: sessions may be removed meanwhile."""
        return iter(list(self.by_route.values()))

    def __contains__(self, session: object) -> bool:
        """Return whether this is the session of its client now."""
        return isinstance(session, Session) and self.by_route.get(session.route) is session

    def add(self, session: Session) -> None:
        """Add a client that has connected."""
        self.by_route[session.route] = self.by_client[session.entry.id] = session
        self._checks.append((session.seen + _CHECK_EVERY_S, session))

    def remove(self, session: Session) -> None:
        """Remove a client."""
        if session in self:
            del self.by_route[session.route]
        if self.by_client.get(session.entry.id) is session:
            del self.by_client[session.entry.id]

    def mark_changed(self, session: Session) -> None:
        """Record that a client has sent something, or has new durable batches."""
        self._changed.append(session)

    def take_changed(self) -> list[Session]:
        """Return the clients that were marked since the last call and are still connected."""
        changed, self._changed = self._changed, []
        return [one for one in changed if one in self]

    def silent(self, now: float, *, more: bool) -> list[Session]:
        """Return clients that are silent; `more` as in `Session.is_silent`.

        Each client is checked once a second, some in each call.
        """
        found = []
        for _ in range(_CHECKS_PER_STEP):
            if not self._checks or self._checks[0][0] > now:
                break
            session = self._checks.popleft()[1]
            if session in self:
                self._checks.append((now + _CHECK_EVERY_S, session))
                if session.is_silent(now, more=more):
                    found.append(session)
        return found


def parse_hello(data: dict[str, object]) -> tuple[bytes, int, int, str, Owner | None]:
    """Return client id, rank, world size, label, and process of a HELLO.

    Raises
    ------
    CollectorError
        A value is missing or out of range.
    """
    try:
        identity = bytes.fromhex(str(data["id"]))
        rank, size = data["rank"], data["world_size"]
        if type(rank) is not int or type(size) is not int or not 0 <= rank < size < 1 << 31:
            raise ValueError("numbers out of range")
        pid, host = int(str(data["pid"])), str(data["host"])[:64]
        if len(identity) != 16 or not 0 <= pid < 1 << 31:
            raise ValueError("an id or a process number out of range")
        owner = data.get("owner")
        process = Owner.from_json(owner) if isinstance(owner, dict) else None
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        message = f"the HELLO of a client makes no sense ({error})"
        raise CollectorError(f"{message}: use the same Shardkeep on both sides") from None
    return identity, rank, size, f"rank {rank} (pid {pid} on {host!r})", process
