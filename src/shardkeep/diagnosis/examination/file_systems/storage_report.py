"""Report of a bench of a storage."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from shardkeep._summary import summary

__all__ = ["StorageReport", "StorageTrial", "StorageUse"]


@dataclass(frozen=True)
class StorageTrial:
    """One operation that was tried: its name, the result in one line, and the raw result.

    `is_ok` is False if the storage does not do what it must. `between_hosts` is True if the other process was
    started by `shardkeep bench --second-host`.
    """

    operation: str
    name: str
    value: str
    is_ok: bool
    between_hosts: bool
    measured: Any

    __repr__ = summary


@dataclass(frozen=True)
class StorageUse:
    """A use of the storage, the functions that rely on it, whether it is safe, and the reason if not."""

    name: str
    functions: str
    is_safe: bool
    reason: str

    __repr__ = summary


@dataclass(frozen=True)
class StorageReport:
    """Report of `shardkeep.bench`.

    Attributes
    ----------
    storage : str
        The folder.
    file_system : str
        Type, source, mount point and options; empty where the system does not list its mounts.
    second_host : str or None
        Name of the second host.
    trials : tuple of StorageTrial
        All operations, in the order in which they were tried.
    uses : tuple of StorageUse
        For each use whether it is safe.
    settings : tuple of str
        Settings to use on this storage, one line each.
    seconds : float
        Duration.
    """

    storage: str
    file_system: str
    second_host: str | None
    trials: tuple[StorageTrial, ...]
    uses: tuple[StorageUse, ...]
    settings: tuple[str, ...]
    seconds: float

    __repr__ = summary

    @property
    def ok(self) -> bool:
        """True if every use is safe."""
        return all(one.is_safe for one in self.uses)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as types that JSON supports."""
        return {"ok": self.ok, **asdict(self)}
