"""Check of HDF5 files in child processes, because a malformed file can crash HDF5."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from shardkeep.files.child_python import Children
from shardkeep.jobs.verification.finding import Finding, with_next
from shardkeep.jobs.verification.report import VerifiedFile

__all__ = ["CHILD", "check_hdf5"]

CHILD = "shardkeep.jobs.verification.hdf5_child"
"""The module of the child processes."""


def check_hdf5(
    path: str, size_bytes: int, children: Children, tick: Callable[[int], None]
) -> tuple[VerifiedFile, str | None]:
    """Check one file; return the result and, of a segment, the record of its commit."""
    left = size_bytes

    def count(message: dict[str, Any]) -> None:
        nonlocal left
        done = min(message["bytes"], left)
        left -= done
        tick(done)

    answer = children.ask(os.path.abspath(path), count)
    tick(left)
    if "died" in answer:
        return VerifiedFile(path, "hdf5", size_bytes, 0, (_died(path, answer["died"]),)), None
    if "error" in answer:
        kind, message = answer["error"]
        return VerifiedFile(path, "hdf5", size_bytes, 0, (with_next(Finding(kind, message, path)),)), None
    verdict = answer["verdict"]
    findings = [with_next(Finding("damage", text, path)) for text in verdict["findings"]]
    findings += [Finding("unsupported", text, path) for text in verdict["unreadable"]]
    notes = tuple(verdict["notes"])
    found = VerifiedFile(path, verdict["kind"], size_bytes, verdict["rows"], tuple(findings), notes)
    return found, verdict["record"]


def _died(path: str, code: int) -> Finding:
    if code >= 0:
        text = f"the process that read it ended with exit code {code}, a bug of Shardkeep; please report it"
        return Finding("unreadable", f"{path}: {text}", path)
    text = f"it crashes HDF5 ({signal.Signals(-code).name})"
    if code == -signal.SIGKILL:
        text = "HDF5 did not finish reading it, or was killed for its memory use"
    text += ": the file is malformed; do not open it, restore it from a copy"
    return with_next(Finding("damage", f"{path}: {text}", path))
