"""Options of a collector, and checks of times and sizes."""

from __future__ import annotations

import numbers
import os
from dataclasses import dataclass
from typing import Any, Literal

from shardkeep.collector.protocol.remote_file import local_file
from shardkeep.errors import PlanError
from shardkeep.files.kinds.urls import display, is_url
from shardkeep.hdf5.journal.paths import real_name

__all__ = [
    "DEFAULT_MEMORY_BYTES",
    "LONGEST_S",
    "Durability",
    "Settings",
    "check_memory",
    "check_seconds",
]

Durability = Literal["fsync", "flush"]

DEFAULT_MEMORY_BYTES = 256 << 20
SMALLEST_MEMORY_BYTES = 16 << 20
LONGEST_S = 30 * 24 * 3600


@dataclass(frozen=True)
class Settings:
    """Options of a collector.

    Attributes
    ----------
    place : str
        The HDF5 file, or the URL of the object that it becomes.
    address : str
        The address to listen on; "" for a Unix socket with a name of the collector's choice.
    key_file : str or None
        The key file of the collector; needed for tcp.
    memory_bytes : int
        The memory for rows that are not durable.
    durability : {"fsync", "flush"}
        Whether a commit survives a power cut, or the death of processes only.
    drain_s : float
        The time that clients have to leave, after the collector was asked to stop.
    until_done : bool
        Whether the collector ends when every rank of the world has left.
    """

    place: str
    address: str
    key_file: str | None = None
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    durability: Durability = "fsync"
    drain_s: float = 10.0
    until_done: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.address, str):
            raise PlanError(f"address must be a str, such as tcp://host:port, not {self.address!r:.60}")
        if not is_url(self.place):
            object.__setattr__(self, "place", real_name(os.path.abspath(self.place)))
        elif self.place.startswith("memory:"):
            message = (
                f"{display(self.place)} is in the memory of one process, and the collector is another one"
            )
            raise PlanError(f"{message}: pass the URL of a store, or a path")
        if self.durability not in ("fsync", "flush"):
            raise PlanError(f'durability must be "fsync" or "flush", not {self.durability!r}')
        object.__setattr__(self, "drain_s", check_seconds("drain_s", self.drain_s))
        object.__setattr__(self, "memory_bytes", check_memory("memory_bytes", self.memory_bytes))
        if self.memory_bytes < SMALLEST_MEMORY_BYTES:
            least = SMALLEST_MEMORY_BYTES >> 20
            raise PlanError(
                f"memory_bytes must be at least {least << 20} ({least} MiB), not {self.memory_bytes}"
            )

    @property
    def path(self) -> str:
        """The file that the collector writes on this host."""
        return local_file(self.place)


def check_seconds(what: str, value: Any) -> float:
    """Return a time in seconds; raises `PlanError` if it is not between 0 and `LONGEST_S`.

    Examples
    --------
    >>> check_seconds("timeout_s", 2)
    2.0
    """
    # Comparisons with NaN are false: it would be a deadline that never comes.
    if not (isinstance(value, numbers.Real) and 0 <= float(value) <= LONGEST_S):
        raise PlanError(f"{what} must be a number of seconds from 0 to {LONGEST_S:,}, not {value!r}")
    return float(value)


def check_memory(what: str, value: Any) -> int:
    """Return a number of bytes; raises `PlanError` if it is not valid."""
    if not (isinstance(value, numbers.Integral) and 0 < int(value) < 1 << 62):
        raise PlanError(f"{what} must be a positive int of bytes, not {value!r}")
    return int(value)
