"""Salvage of the file of a collector that was killed: its redo log is applied to a copy.

Opening the file, or starting a collector on it, applies the log in place; here the file and its log are
only read, and a log that is damaged is applied as far as it is valid. The copy is then ended as the collector
would have ended it (`collected_child`). If HDF5 cannot read the copy, its objects and chunks are salvaged.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from shardkeep.errors import (
    CorruptDataError,
    FormatError,
    InternalError,
    MissingExtraError,
    UntrustedFileError,
)
from shardkeep.files.child_python import Children
from shardkeep.files.leftovers import temporary_name
from shardkeep.files.publish import Exists, publish_path
from shardkeep.hdf5.journal.paths import log_path, readers_path
from shardkeep.hdf5.journal.recovery import LoggedCommits, salvage_commits
from shardkeep.jobs.salvage.file_copy import copy_into
from shardkeep.jobs.salvage.hdf5.salvage import salvage_hdf5
from shardkeep.jobs.salvage.report import RepairedFile, RepairedPart
from shardkeep.quantities import counted

__all__ = ["salvage_collected"]


@dataclass(frozen=True)
class _Log:
    """The redo log: its valid commits, and the parts and notes about it."""

    commits: LoggedCommits | None
    parts: tuple[RepairedPart, ...] = ()
    notes: tuple[str, ...] = ()


def salvage_collected(
    path: str, output: str | None, *, exists: Exists = "fail", tick: Callable[[int], None]
) -> RepairedFile:
    """Write the file of a killed collector with all commits in its redo log; see `shardkeep.jobs.salvage`.

    With ``output=None`` a copy in the folder of temporary files is examined, and removed.

    Raises
    ------
    MissingExtraError
        Rows are compressed by a filter that is not installed.
    CorruptDataError
        A process changed the file.
    ExistsError, DurabilityError, OSError
        The output cannot be written, or the file cannot be read.
    """
    size_bytes = os.path.getsize(path)
    log = _read_log(path)
    if log.commits is not None and log.commits.file_bytes < 0:
        text = "the collector was killed before its first commit: the file has no rows"
        parts = (RepairedPart("lost", text, offset_bytes=0, bytes=size_bytes), *log.parts)
        return RepairedFile(path, None, "collected", size_bytes, parts, log.notes)
    folder = tempfile.gettempdir() if output is None else os.path.dirname(output) or "."
    with _scratch(folder, path) as copy:
        _recover_copy(path, copy, log.commits, tick)
        with Children("shardkeep.jobs.salvage.collected_child") as children:
            answer = children.ask(os.path.abspath(copy), lambda _: tick(0))
        if answer.get("is_missing_extra"):
            raise MissingExtraError(answer["error"], path=path)
        damage = _damage(answer)
        if damage is None:
            _publish(copy, output, exists)
            rows = tuple(_row_parts(answer))
            return RepairedFile(path, output, "collected", size_bytes, (*rows, *log.parts), log.notes)
        _recover_copy(path, copy, log.commits, lambda _: tick(0))
        with _scratch(folder, path) as new:
            result = _salvage(copy, new, tick)
            written = output if os.path.exists(new) else None
            if written is not None:
                _publish(new, output, exists)
            found = [replace(one, reason=one.reason.replace(copy, path)) for one in result.parts]
            notes = (*log.notes, f"HDF5 cannot read the whole file: {damage.replace(copy, path)}")
            return RepairedFile(path, written, "collected", size_bytes, (*found, *log.parts), notes)


def _read_log(path: str) -> _Log:
    name = log_path(path)
    try:
        with open(path, "rb", buffering=0) as file:
            commits, scan = salvage_commits(path, file.fileno())
            file_bytes = os.fstat(file.fileno()).st_size
    except (FormatError, CorruptDataError, UntrustedFileError) as error:
        return _Log(None, (RepairedPart("lost", f"the redo log is not used: {error}"),))
    if scan is None:
        return _Log(None)
    parts: list[RepairedPart] = []
    notes: list[str] = []
    if commits is not None and commits.records:
        applied = f"{counted(len(commits.records), 'commit')} of the redo log applied"
        parts.append(RepairedPart("repaired", applied))
    if scan.lost_commits:
        lost = f"{counted(scan.lost_commits, 'commit')} in the damaged part of the redo log {name!r}"
        parts.append(RepairedPart("lost", lost, bytes=scan.rest_bytes))
    elif scan.rest_bytes and scan.header is not None:
        notes.append(
            "the redo log ends inside a commit: one that was being written, unless the log was cut off"
        )
    if scan.header is None:
        which = "its commits are used" if scan.records else "nothing in it is used"
        notes.append(f"the start of the redo log {name!r} is damaged; {which}")
    if commits is not None and commits.after_power_cut:
        notes.append("the power failed after the last commit, which was not synced (--durability flush)")
    if commits is not None and 0 <= commits.file_bytes < file_bytes:
        dropped = counted(file_bytes - commits.file_bytes, "byte")
        notes.append(f"{dropped} after the last commit, of rows that no flush had confirmed, are left out")
    return _Log(commits, tuple(parts), tuple(notes))


@contextlib.contextmanager
def _scratch(folder: str, path: str) -> Iterator[str]:
    """Yield a temporary path in a folder; remove the file, and those that a collector keeps next to it."""
    name = os.path.join(folder, temporary_name(os.path.basename(path)))
    try:
        yield name
    finally:
        for one in (name, log_path(name), readers_path(name), f"{name}.lock", f"{readers_path(name)}.lock"):
            with contextlib.suppress(OSError):
                os.unlink(one)


def _recover_copy(path: str, copy: str, commits: LoggedCommits | None, tick: Callable[[int], None]) -> None:
    for leftover in (copy, log_path(copy)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(leftover)
    with open(copy, "x+b", buffering=0) as file:
        copy_into(path, file, tick)
        if commits is not None:
            commits.write_to(file.fileno())


def _damage(answer: dict[str, Any]) -> str | None:
    if "died" in answer:
        code = answer["died"]
        if code >= 0:
            raise InternalError(f"the process that read a collector's file ended with exit code {code}")
        return f"it crashes HDF5 ({signal.Signals(-code).name})"
    if "error" in answer:
        return str(answer["error"])
    return answer["findings"][0] if answer["findings"] else None


def _row_parts(answer: dict[str, Any]) -> Iterator[RepairedPart]:
    for name, count in answer["rows"].items():
        yield RepairedPart("unchecked", "rows, of which the file has no checksum", count, dataset=name)
    missing = answer["expected"] - sum(answer["rows"].values())
    if missing > 0:
        yield RepairedPart("lost", "rows that clients had sent and that are not there", missing)


def _salvage(copy: str, new: str, tick: Callable[[int], None]) -> RepairedFile:
    try:
        return salvage_hdf5(copy, new, tick=lambda _: tick(0))
    except FormatError as error:
        return RepairedFile(copy, None, "collected", 0, (RepairedPart("lost", str(error)),))


def _publish(finished: str, output: str | None, exists: Exists) -> None:
    if output is not None:
        with publish_path(output, exists=exists) as temporary:
            shutil.copymode(temporary, finished)
            os.replace(finished, temporary)
