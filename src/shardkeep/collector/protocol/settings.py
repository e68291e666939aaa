"""What a collector is started with."""

from __future__ import annotations

import numbers
import os
from dataclasses import asdict, dataclass
from typing import Any, Literal

from shardkeep.errors import PlanError
from shardkeep.hdf5.journal.paths import real_name

__all__ = ["DEFAULT_MEMORY_BYTES", "LONGEST_S", "Durability", "Settings", "check_memory", "check_seconds"]

Durability = Literal["fsync", "flush"]

DEFAULT_MEMORY_BYTES = 256 << 20
SMALLEST_MEMORY_BYTES = 16 << 20
LONGEST_S = 30 * 24 * 3600


@dataclass(frozen=True)
class Settings:
    """Options of a collector.

    Attributes
    ----------
    path : str
        The HDF5 file.
    address : str
        Where to listen.
    key_file : str or None
        Of the collector; needed for tcp.
    memory_bytes : int
        Most memory for rows that are on their way.
    durability : {"fsync", "flush"}
        Whether a commit survives a power cut, or the death of processes only.
    drain_s : float
        How long clients may take to leave after it was told to stop.
    until_done : bool
        Whether it ends when every rank of the world has left.
    """

    path: str
    address: str
    key_file: str | None = None
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    durability: Durability = "fsync"
    drain_s: float = 10.0
    until_done: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", real_name(os.path.abspath(self.path)))
        if self.durability not in ("fsync", "flush"):
            raise PlanError(f'durability={self.durability!r} means nothing here: use "fsync" or "flush"')
        object.__setattr__(self, "drain_s", check_seconds("drain_s", self.drain_s))
        object.__setattr__(self, "memory_bytes", check_memory("memory_bytes", self.memory_bytes))
        if self.memory_bytes < SMALLEST_MEMORY_BYTES:
            least = SMALLEST_MEMORY_BYTES >> 20
            raise PlanError(
                f"a collector cannot work in {self.memory_bytes} bytes: give it {least} MB at least"
            )

    def to_json(self) -> dict[str, Any]:
        """Return what another process needs."""
        return asdict(self)


def check_seconds(what: str, value: Any) -> float:
    """Return a time that something may take; raises `PlanError` for what is none, or longer than `LONGEST_S`.

    Examples
    --------
    >>> check_seconds("timeout_s", 2)
    2.0
    """
    # Not-a-number is neither more nor less than anything: a deadline that never comes.
    if not (isinstance(value, numbers.Real) and 0 <= float(value) <= LONGEST_S):
        raise PlanError(f"{what}={value!r} is no time to wait: give seconds from 0 to {LONGEST_S:,}")
    return float(value)


def check_memory(what: str, value: Any) -> int:
    """Return a number of bytes; raises `PlanError` for what is none."""
    if not (isinstance(value, numbers.Integral) and 0 < int(value) < 1 << 62):
        raise PlanError(f"{what}={value!r} is no size of memory: give a whole number of bytes, 1 or more")
    return int(value)
