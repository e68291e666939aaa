"""Check which process holds which file of a job."""

from __future__ import annotations

import os
from collections.abc import Iterator

from shardkeep._paths_in_messages import as_argument
from shardkeep.diagnosis.examination.contents.data_files import Contents, DataFile
from shardkeep.diagnosis.examination.report import Fact, Problem
from shardkeep.files.owner import command_of
from shardkeep.hdf5.journal.paths import log_path
from shardkeep.hdf5.locking.holders import Holder, kernel_locks
from shardkeep.quantities import counted, human_bytes, listed

__all__ = ["check_holders"]

_DELETED_BYTES = 1 << 30
_MOST_FACTS = 10


def check_holders(contents: Contents) -> Iterator[Problem | Fact]:
    """Find files that are being written while the job would read them, and deleted ones that take space."""
    locks = kernel_locks()
    facts: list[Fact] = []
    for one in contents.data:
        if one.expected is None or one.is_events:
            continue
        holders = contents.open_files.holders.get(one.entry.identity, [])
        writers = [holder for holder in holders if holder.writes]
        if len(writers) > 1:
            yield _several(one, writers)
        elif writers and os.path.lexists(log_path(one.path)):
            facts.append(Fact("holders", one.path, f"a collector writes it: {writers[0]}"))
        elif writers:
            yield _written(one, writers[0])
        elif holders:
            facts.append(Fact("holders", one.path, f"open for reading by {_processes(holders)}"))
        else:
            unseen = [pid for pid, lock in locks.get(one.entry.identity, ()) if lock == "exclusive"]
            if unseen:
                yield _locked(one, unseen[0])
    yield from facts[:_MOST_FACTS]
    yield from _deleted(contents)
    if not contents.open_files.is_complete:
        evidence = "there are too many processes and open files to examine all of them in time"
        fix = "ask for one file; lsof may need several minutes"
        yield Problem("note", "holders", evidence, fix, "lsof PATH")


def _processes(holders: list[Holder]) -> str:
    pids = listed((holder.pid for holder in holders[:3]), len(holders))
    return f"{'process' if len(holders) == 1 else 'processes'} {pids}"


def _several(one: DataFile, writers: list[Holder]) -> Problem:
    evidence = f"{len(writers)} processes have it open for writing: {writers[0]}; {writers[1]}"
    fix = "end all but one of them, then check the file; a forked process counts, since it shares the handle"
    return Problem("error", "holders", evidence, fix, f"shardkeep verify {as_argument(one.path)}", one.path)


def _written(one: DataFile, writer: Holder) -> Problem:
    if one.expected == "tfrecord":
        evidence = f"it is being written by {writer}: its end may be half a record"
        fix = "wait until that process has ended, or read it as it grows"
        return Problem(
            "error", "holders", evidence, fix, f"shardkeep follow {as_argument(one.path)}", one.path
        )
    evidence = f"it is open for writing by {writer}: other programs cannot open it, or read half a change"
    fix = "wait until that process has closed it"
    return Problem("warning", "holders", evidence, fix, _show(writer.pid), one.path)


def _locked(one: DataFile, pid: int) -> Problem:
    evidence = f"process {pid} ({command_of(pid) or 'of another user'}) has an exclusive lock on it"
    return Problem("warning", "holders", evidence, "wait until it has ended", _show(pid), one.path)


def _deleted(contents: Contents) -> Iterator[Problem]:
    for pid, files in contents.open_files.deleted.items():
        total = sum(files.values())
        if total >= _DELETED_BYTES:
            evidence = (
                f"{command_of(pid)!r}, pid {pid}, has {counted(len(files), 'deleted file')} open, which take"
            )
            evidence += f" {human_bytes(total)} of the file system until it closes them"
            command = f"ls -l /proc/{pid}/fd | grep deleted"
            yield Problem("warning", "holders", evidence, "end or restart that process", command)


def _show(pid: int) -> str:
    return f"ps -o pid,user,lstart,args -p {pid}"
