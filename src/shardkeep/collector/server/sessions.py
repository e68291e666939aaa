"""Who is connected: clients as the collector sees them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from shardkeep.collector.protocol.slots import ServerSlots
from shardkeep.collector.server.declared import Forms
from shardkeep.collector.store.client_table import ClientEntry
from shardkeep.errors import CollectorError
from shardkeep.files.owner import Owner

__all__ = ["SILENT_S", "Session", "parse_hello"]

SILENT_S = 10.0
_LOOK_AFTER_S = 1.0


@dataclass
class Session:
    """One client while it is connected.

    Attributes
    ----------
    route : bytes
        Where ZeroMQ sends answers.
    durable : int
        Sequence number up to which its batches survive anything.
    flush : int
        Up to where it asked for that.
    leaving : bool
        It said BYE.
    owner : Owner or None
        Its process, if it said so: nobody waits for one of this host that has ended.
    claims : dict of int to int
        The batch that each slot of its shared memory was used for last.
    forms : Forms
        The datasets that it has declared.
    returns : int
        How often it gave credit back: it believes no limit that was sent before.
    told_limit : int
        How many bytes it was last told that it may have sent in all.
    state_due : bool
        It is to be told where it stands.
    """

    route: bytes
    entry: ClientEntry
    who: str
    durable: int
    flush: int = 0
    leaving: bool = False
    slots: ServerSlots | None = None
    seen: float = field(default_factory=time.monotonic)
    state_due: bool = False
    owner: Owner | None = None
    returns: int = 0
    told_limit: int = 0
    claims: dict[int, int] = field(default_factory=dict)
    forms: Forms = field(default_factory=Forms)

    def is_silent(self, now: float) -> bool:
        """Whether it was not heard of for long; a client that is at rest says something every 2 s."""
        silent_s = now - self.seen
        return silent_s > SILENT_S or (silent_s > _LOOK_AFTER_S and self._is_gone())

    def _is_gone(self) -> bool:
        return self.owner is not None and self.owner.is_gone()


def parse_hello(data: dict[str, object]) -> tuple[bytes, int, int, str, Owner | None]:
    """Return client id, rank, world size, who that is for people, and its process.

    Raises
    ------
    CollectorError
        Values that make no sense.
    """
    try:
        identity = bytes.fromhex(str(data["id"]))
        rank, size = data["rank"], data["world_size"]
        if (
            len(identity) != 16
            or type(rank) is not int
            or type(size) is not int
            or not 0 <= rank < size < 1 << 31
        ):
            raise ValueError("numbers out of range")
        pid, host = int(str(data["pid"])), str(data["host"])[:64]
        if not 0 <= pid < 1 << 31:
            raise ValueError("a process number out of range")
        owner = data.get("owner")
        process = Owner.from_json(owner) if isinstance(owner, dict) else None
        who = f"rank {rank} (pid {pid} on {host!r})"
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CollectorError(f"a client introduced itself in a way that makes no sense ({error})") from None
    return identity, rank, size, who, process
