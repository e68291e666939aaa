"""The child process that reads a damaged file; a new one after an object that HDF5 does not survive."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shardkeep.files.child_python import Children
from shardkeep.files.durable import durability_error
from shardkeep.jobs.salvage.hdf5.superblock import Superblock
from shardkeep.jobs.salvage.report import RepairedPart

__all__ = ["CHILD", "Copied", "copy_objects"]

CHILD = "shardkeep.jobs.salvage.hdf5.child"
"""The module of the child process."""
_MOST_DEATHS = 100


@dataclass(frozen=True)
class Copied:
    """Result of a copy of all objects.

    Attributes
    ----------
    parts : tuple of RepairedPart
    failure : str
        The reason if HDF5 cannot open the file; otherwise empty.
    kind : str
        "segment" or "hdf5".
    """

    parts: tuple[RepairedPart, ...]
    failure: str = ""
    kind: str = "hdf5"

    @property
    def is_whole(self) -> bool:
        """True if nothing is lost."""
        return not self.failure and all(part.outcome != "lost" for part in self.parts)


def copy_objects(
    children: Children,
    path: str,
    block: Superblock,
    target: str | None = None,
    *,
    salvages: bool,
    tick: Callable[[int], None],
) -> Copied:
    """Copy everything that can be read.

    Parameters
    ----------
    children : Children
        Of the module `CHILD`.
    path : str
    block : Superblock
    target : str, optional
        The new file; without it nothing is written.
    salvages : bool
        False to stop at the first part that is lost, and to read only what HDF5 reads.
    tick : callable
        Called with numbers of bytes that were read.

    Raises
    ------
    OSError, DurabilityError
        The file cannot be read, or the target cannot be written.
    """
    parts: list[dict[str, Any]] = []
    current: str | None = None

    def take(message: dict[str, Any]) -> None:
        nonlocal current
        current = message.get("object", current)
        if "part" in message:
            parts.append(message["part"])
        tick(message["bytes"])

    skipped: list[str] = []
    request = {
        "path": os.path.abspath(path),
        "offset_bytes": block.offset_bytes,
        "superblock": block.data.hex(),
        "target": None if target is None else os.path.abspath(target),
        "salvages": salvages,
        "is_as_stored": not block.changes,
        "skipped": skipped,
    }
    while True:
        parts, current = [], None
        answer = children.ask(request, take)
        if "error" in answer:
            error = OSError(*answer["error"])
            raise error if target is None else durability_error("write", target, error)
        if "done" in answer:
            return Copied(tuple(_joined(parts)), answer["done"]["failure"], answer["done"]["kind"])
        if current is None or current in skipped or len(skipped) >= _MOST_DEATHS:
            return Copied((), "HDF5 does not survive reading it")
        skipped.append(current)


def _joined(found: list[dict[str, Any]]) -> list[RepairedPart]:
    """Return parts; neighbours of one dataset with one outcome and reason are one part."""
    parts: list[dict[str, Any]] = []
    for one in found:
        last = parts[-1] if parts else None
        if last is not None and all(last[key] == one[key] for key in ("outcome", "reason", "dataset")):
            last["items"] += one["items"]
            if _end(last) is None or _end(last) != one.get("offset_bytes"):
                last["offset_bytes"] = last["bytes"] = None
            else:
                last["bytes"] += one["bytes"]
        else:
            parts.append(one)
    for one in parts:
        if one.get("chunk") is not None:
            one["chunk"] = tuple(one["chunk"])
    return [RepairedPart(**one) for one in parts]


def _end(part: dict[str, Any]) -> int | None:
    offset, size = part.get("offset_bytes"), part.get("bytes")
    return None if offset is None or size is None else offset + size
