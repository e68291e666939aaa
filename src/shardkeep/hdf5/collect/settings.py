"""What a collector is started with."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass
from typing import Any, Literal

from shardkeep.errors import PlanError
from shardkeep.hdf5.live_view import real_name

__all__ = ["DEFAULT_MEMORY_BYTES", "Durability", "Settings"]

Durability = Literal["fsync", "flush"]

DEFAULT_MEMORY_BYTES = 256 << 20
SMALLEST_MEMORY_BYTES = 16 << 20


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
        if not (isinstance(self.drain_s, (int, float)) and 0 <= self.drain_s < math.inf):
            raise PlanError(f"drain_s={self.drain_s!r} is no time: give seconds, 0 or more")
        if not isinstance(self.memory_bytes, int):
            raise PlanError(f"memory_bytes={self.memory_bytes!r} is no number of bytes: give a whole one")
        if self.memory_bytes < SMALLEST_MEMORY_BYTES:
            least = SMALLEST_MEMORY_BYTES >> 20
            raise PlanError(
                f"a collector cannot work in {self.memory_bytes} bytes: give it {least} MB at least"
            )

    def to_json(self) -> dict[str, Any]:
        """Return what another process needs."""
        return asdict(self)
