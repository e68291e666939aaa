"""The child process that reads a damaged file; a new one after an object that HDF5 does not survive."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shardkeep.files.child_python import child_python, read_line
from shardkeep.files.durable import durability_error
from shardkeep.jobs.salvage.hdf5.superblock import Superblock
from shardkeep.jobs.salvage.report import RepairedPart

__all__ = ["Copied", "Reader"]

# A child reports progress every few megabytes; its own limit is for processor time (`findings`).
_SILENT_S = 300.0
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


class Reader:
    """Child process that reads one damaged file; started when needed, and again after it died.

    Parameters
    ----------
    path : str
    tick : callable
        Called with numbers of bytes that were read.
    """

    def __init__(self, path: str, tick: Callable[[int], None]) -> None:
        self._path, self._tick = os.path.abspath(path), tick
        self._child: subprocess.Popen[str] | None = None

    def copy(self, block: Superblock, target: str | None = None, *, salvages: bool) -> Copied:
        """Copy everything that can be read.

        Parameters
        ----------
        block : Superblock
        target : str, optional
            The new file; without it nothing is written.
        salvages : bool
            False to stop at the first part that is lost, and to read only what HDF5 reads.

        Raises
        ------
        OSError, DurabilityError
            The file cannot be read, or the target cannot be written.
        """
        skipped: list[str] = []
        request = {
            "path": self._path,
            "offset_bytes": block.offset_bytes,
            "superblock": block.data.hex(),
            "target": target,
            "salvages": salvages,
            "is_as_stored": not block.changes,
            "skipped": skipped,
        }
        while True:
            answer = _Answer()
            self._receive(request, answer)
            if answer.error is not None:
                error = OSError(*answer.error)
                raise error if target is None else durability_error("write", target, error)
            if answer.done is not None:
                return Copied(tuple(_joined(answer.parts)), answer.done["failure"], answer.done["kind"])
            if answer.current is None or answer.current in skipped or len(skipped) >= _MOST_DEATHS:
                return Copied((), "HDF5 does not survive reading it")
            skipped.append(answer.current)

    @staticmethod
    def start() -> subprocess.Popen[str]:
        """Start a child."""
        return subprocess.Popen(
            child_python("shardkeep.jobs.salvage.hdf5.child", "main()"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def _receive(self, request: dict[str, Any], answer: _Answer) -> None:
        """Send a request, and receive all messages; the child is ended unless the answer is complete."""
        child = self._child = self._child or self.start()
        assert child.stdin is not None
        try:
            child.stdin.write(json.dumps(request) + "\n")
            child.stdin.flush()
            while answer.done is None and answer.error is None:
                line = read_line(child, _SILENT_S)
                if not line.endswith("\n"):
                    break
                self._tick(answer.take(json.loads(line)))
        except BrokenPipeError:
            pass
        finally:
            if answer.done is None:
                self._end()

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()


class _Answer:
    """Messages of the child to one request."""

    def __init__(self) -> None:
        self.parts: list[dict[str, Any]] = []
        self.current: str | None = None
        self.done: dict[str, str] | None = None
        self.error: tuple[int, str] | None = None

    def take(self, message: dict[str, Any]) -> int:
        """Add a message; return the number of bytes that it reports."""
        self.current = message.get("object", self.current)
        self.done = message.get("done")
        if "part" in message:
            self.parts.append(message["part"])
        if "error" in message:
            number, text = message["error"]
            self.error = number, text
        return int(message.get("bytes", 0))


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
