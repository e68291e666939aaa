"""Check for what crashed runs left: temporary files, lock files, redo logs, address files, spill files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from shardkeep._paths_in_messages import as_argument
from shardkeep.diagnosis.examination.contents.data_files import Contents
from shardkeep.diagnosis.examination.contents.listing import Entry, by_folder
from shardkeep.diagnosis.examination.contents.wording import arguments, named
from shardkeep.diagnosis.examination.report import Fact, Problem
from shardkeep.errors import ShardkeepError, UntrustedFileError
from shardkeep.files.leftovers import is_leftover, is_temporary
from shardkeep.files.locks.holder import describe_holder
from shardkeep.hdf5.journal.redo_log import read_log
from shardkeep.hdf5.segments.run_folder import is_rank_folder
from shardkeep.quantities import counted, human_bytes

__all__ = ["check_leftovers"]

_ADDRESS, _SPILL, _LOG = ".collector.json", ".spill", ".redo"
_DAY_S = 86_400.0
_LOG_BYTES = 64 << 20


def check_leftovers(contents: Contents) -> Iterator[Problem | Fact]:
    """Find the files of processes that have ended; those of a live process are not reported."""
    companions = contents.listing.companions
    yield from _temporaries(contents, [entry for entry in companions if is_temporary(entry.name)])
    yield from _logs(contents, [entry for entry in companions if entry.name.endswith(_LOG)])
    yield from _addresses(contents, [entry for entry in companions if entry.name.endswith(_ADDRESS)])
    yield from _spill_files(contents, [entry for entry in companions if entry.name.endswith(_SPILL)])
    yield from _locks(contents)


def _temporaries(contents: Contents, entries: list[Entry]) -> Iterator[Problem | Fact]:
    held = contents.open_files.holders
    in_use = [entry for entry in entries if entry.identity in held]
    others = [entry for entry in entries if entry.identity not in held]
    dead = [entry for entry in others if is_leftover(entry.folder, entry.name)]
    known = {entry.path for entry in dead}
    old_s = time.time() - _DAY_S
    old = [entry for entry in others if entry.path not in known and entry.status.st_mtime < old_s]
    for folder, files in by_folder(dead):
        in_rank = is_rank_folder(folder)
        what = "rows that were appended and never committed" if in_rank else "unfinished files"
        evidence = f"{_amount(files)} of processes that ended: {what}"
        fix = "the next writer in this folder removes them; until then they only take space"
        yield Problem("note", "leftovers", evidence, fix, _removal(folder, files), folder)
    for folder, files in by_folder(old):
        evidence = f"{_amount(files)} that no process of this host has open, unchanged for a day"
        fix = "if no process of another host writes them, remove them"
        yield Problem("note", "leftovers", evidence, fix, _removal(folder, files), folder)
    if in_use:
        yield Fact("leftovers", "temporary files of live processes", _amount(in_use))


def _amount(files: list[Entry]) -> str:
    total = human_bytes(sum(entry.size_bytes for entry in files))
    return f"{counted(len(files), 'temporary file')} ({total})"


def _removal(folder: str, files: list[Entry]) -> str:
    names = arguments([entry.path for entry in files])
    if names is not None:
        return f"rm -- {names}"
    code = f"from shardkeep.files import leftovers; leftovers.sweep({folder!r})"
    return f"python -c {as_argument(code)}"


def _logs(contents: Contents, entries: list[Entry]) -> Iterator[Problem]:
    for entry in entries:
        path = entry.path.removesuffix(_LOG)
        if contents.lock_files.is_held(path) or entry.identity in contents.open_files.holders:
            continue
        try:
            data = os.stat(path) if os.path.exists(path) else None
            found = read_log(entry.path, data) if entry.size_bytes <= _LOG_BYTES else None
            commits = "its last commits" if found is None else counted(len(list(found[1])), "commit")
        except (ShardkeepError, OSError) as error:
            fix = "keep both files, and find out which program wrote them"
            yield Problem("warning", "leftovers", str(error), fix, f"ls -l {as_argument(path)}*", path)
            continue
        if found is None and entry.size_bytes <= _LOG_BYTES:
            continue  # of another program, or without a complete header, and so without a commit
        size = human_bytes(entry.size_bytes)
        evidence = f"its collector was killed: {commits} in the redo log {entry.name} ({size})"
        evidence += ", without which other programs read an inconsistent file"
        fix = "restore the last commit; Shardkeep does it too, when it opens the file"
        command = f"shardkeep collect {as_argument(path)} --recover"
        yield Problem("warning", "leftovers", evidence, fix, command, path)


def _addresses(contents: Contents, entries: list[Entry]) -> Iterator[Problem]:
    if not entries:
        return
    from shardkeep.collector.protocol.address_file import read_address_file

    for entry in entries:
        path = entry.path.removesuffix(_ADDRESS)
        try:
            record = read_address_file(entry.path)
        except UntrustedFileError as error:
            fix = "remove it unless that user runs the collector of this job"
            yield Problem(
                "warning", "leftovers", str(error), fix, f"ls -l {as_argument(entry.path)}", entry.path
            )
            continue
        if record is None or contents.lock_files.is_held(path):
            continue
        if record.owner is not None and record.owner.is_gone():
            evidence = (
                "the address file of a collector that ended: clients of other hosts wait for it in vain"
            )
            evidence += f" (pid {record.pid} on host {record.host})"
            fix = "remove it, or start the collector again"
            yield Problem("note", "leftovers", evidence, fix, f"rm {as_argument(entry.path)}", entry.path)


def _spill_files(contents: Contents, entries: list[Entry]) -> Iterator[Problem]:
    if not entries:
        return
    from shardkeep.collector.client.spill import holds_batches

    unsent: list[Entry] = []
    for entry in entries:
        try:
            if not contents.lock_files.is_held(entry.path) and holds_batches(entry.path):
                unsent.append(entry)
        except (ShardkeepError, OSError) as error:
            fix = "its rows are not sent while it cannot be trusted or read"
            yield Problem(
                "warning", "leftovers", str(error), fix, f"ls -l {as_argument(entry.path)}", entry.path
            )
    for folder, files in by_folder(unsent):
        names = named([entry.path for entry in files])
        total = human_bytes(sum(entry.size_bytes for entry in files))
        evidence = f"{counted(len(files), 'spill file')} of clients that ended, with rows ({total}) that the"
        evidence += f" collector may not have: {names}"
        fix = f"start the collector, and connect as these ranks with spill_dir={folder!r}: the rows are sent"
        yield Problem("warning", "leftovers", evidence, fix, None, folder)


def _locks(contents: Contents) -> Iterator[Problem]:
    abandoned = contents.lock_files.abandoned()
    newest = {entry.path: holder for entry, holder in abandoned}
    for folder, files in by_folder(entry for entry, _ in abandoned):
        first = describe_holder(newest[files[0].path])
        evidence = f"{counted(len(files), 'lock file')} of processes that ended, which lock nothing: "
        evidence += f"{named([entry.path for entry in files])}; the first was taken {first}"
        fix = "nothing needs to be done: the next holder uses and removes them"
        yield Problem("note", "leftovers", evidence, fix, None, folder)
    for entry, holder in contents.lock_files.of_other_hosts():
        evidence = (
            f"it is locked {describe_holder(holder)}; whether that process runs cannot be seen from here"
        )
        fix = f"if it has ended on {holder['host']}, the lock is free, and nothing needs to be done"
        command = f"ssh {as_argument(holder['host'])} ps -o pid,lstart,args -p {holder['pid']}"
        yield Problem("note", "leftovers", evidence, fix, command, entry.path.removesuffix(".lock"))
