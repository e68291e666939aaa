"""Contents of a folder, summed up by kind."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from shardkeep._summary import summary
from shardkeep.errors import ShardkeepError
from shardkeep.files.kinds.kind import FileKind, identify
from shardkeep.files.leftovers import find_companion
from shardkeep.files.paths import size_of
from shardkeep.files.threads.work import Work
from shardkeep.jobs.inspection.workers import WorkerInfo, workers_of
from shardkeep.jobs.verification.expectation import Member, expected_kinds
from shardkeep.jobs.verification.inventory import Task, task_of
from shardkeep.progress import ticking
from shardkeep.tfrecord import Reader
from shardkeep.tfrecord.index.index import find_index
from shardkeep.tfrecord.index.scan import processors, scan_in_parts
from shardkeep.tfrecord.shard_names import find_set_faults

__all__ = ["FileEntry", "FolderInfo", "KindInfo", "folder_info"]


@dataclass(frozen=True)
class FileEntry:
    """One entry of a folder.

    Attributes
    ----------
    name : str
    described : str
        Description of its kind.
    file_bytes : int
        Size; 0 for a folder.
    records : int or None
        Number of records of a TFRecord file; None for other files, and if they cannot be counted.
    fault : str or None
        The reason why a data file cannot be read, or why a file should be one.
    """

    name: str
    described: str
    file_bytes: int
    records: int | None = None
    fault: str | None = None

    __repr__ = summary


@dataclass(frozen=True)
class KindInfo:
    """The files of one kind: its description, their number, their size, and the number of their records."""

    described: str
    files: int
    file_bytes: int
    records: int | None = None

    __repr__ = summary


@dataclass(frozen=True)
class FolderInfo:
    """Contents of a folder, without those of its sub-folders.

    Attributes
    ----------
    path : str
    files : tuple of FileEntry
        Entries in the order of their names.
    workers : tuple of WorkerInfo
        Commits of each rank, if the folder is that of a run.
    kinds : tuple of KindInfo
        Number and size of the files of each kind, the kind with most bytes first.
    records : int
        Number of records of all TFRecord files that can be read.
    findings : tuple of str
        Shards ``-00003-of-00008`` that are missing, and sets of different sizes with one name.
    """

    path: str
    files: tuple[FileEntry, ...]
    workers: tuple[WorkerInfo, ...]
    kinds: tuple[KindInfo, ...] = ()
    records: int = 0
    findings: tuple[str, ...] = ()

    __repr__ = summary

    def to_dict(self) -> dict[str, Any]:
        """Return the contents as types that JSON supports, with their ``kind``."""
        return {"kind": "folder"} | asdict(self)


def folder_info(path: str, progress: Callable[[int, int], object] | None = None) -> FolderInfo:
    """Return the contents of a folder.

    Records are counted from stored indexes and from the headers; payloads are not checked.

    Parameters
    ----------
    path : str
    progress : callable, optional
        Called as ``progress(done_bytes, total_bytes)`` while records are counted.
    """
    names = sorted(os.listdir(path))
    kinds = {name: _kind(os.path.join(path, name)) for name in names}
    members = [
        Member(os.path.join(path, name), kind)
        for name, kind in kinds.items()
        if isinstance(kind, FileKind) and kind.name != "folder"
    ]
    expected = zip(members, expected_kinds(members), strict=True)
    tasks = {one.path: task_of(one.path, one.kind, kind) for one, kind in expected if kind is not None}
    shards = [task for task in tasks.values() if task.finding is None and task.expected == "tfrecord"]
    work = Work(progress, sum(task.size_bytes for task in shards))
    counted = work.run(_count, shards, processors())
    records = {task.path: count for task, count in zip(shards, counted, strict=True)}
    files = [
        _entry(os.path.join(path, name), kind, tasks.get(os.path.join(path, name)), records)
        for name, kind in kinds.items()
    ]
    faults = find_set_faults(os.path.basename(one) for one in tasks)
    return FolderInfo(
        path=path,
        files=tuple(entry for entry, _ in files),
        workers=workers_of(path),
        kinds=_kinds(files),
        records=sum(entry.records or 0 for entry, _ in files),
        findings=tuple(f"{fault.pattern}: {fault.text}" for fault in faults),
    )


def _kind(path: str) -> FileKind | str:
    """Return the kind of a file, or a description of one that holds no data or cannot be read."""
    companion = find_companion(os.path.basename(path))
    if companion is not None:
        return companion
    try:
        return identify(path)
    except FileNotFoundError:
        return "a broken link" if os.path.islink(path) else "removed during the inspection"
    except OSError as error:
        return f"not readable: {error.strerror or error}"


def _count(task: Task, tick: Callable[[int], None]) -> int | str:
    """Return the number of records, or the error of the first that is damaged."""
    try:
        if task.kind is not None and task.kind.compression is not None:
            return sum(1 for _ in ticking(Reader(task.path, verify=False), len, task.size_bytes, tick))
        starts = find_index(task.path)
        if starts is None:
            starts, _ = scan_in_parts(task.path, None, verify=False, tick=tick)
        else:
            tick(task.size_bytes)
        return len(starts) - 1
    except (ShardkeepError, OSError) as error:
        return str(error)


def _entry(
    path: str, kind: FileKind | str, task: Task | None, counted: dict[str, int | str]
) -> tuple[FileEntry, str]:
    """Return the entry of a file, and the kind under which it is summed up."""
    described, group = (kind, kind) if isinstance(kind, str) else (kind.described, kind.group)
    records = counted.get(path)
    fault = task.finding.message if task is not None and task.finding is not None else None
    if isinstance(records, str):
        records, fault = None, records
    size_bytes = 0 if described == "a folder" else size_of(path)
    entry = FileEntry(os.path.basename(path), described, size_bytes, records, fault)
    return entry, group if fault is None else "a data file that cannot be read"


def _kinds(files: list[tuple[FileEntry, str]]) -> tuple[KindInfo, ...]:
    groups: dict[str, list[FileEntry]] = {}
    for entry, group in files:
        groups.setdefault(group, []).append(entry)
    kinds = []
    for group, entries in groups.items():
        counts = [entry.records for entry in entries if entry.records is not None]
        size_bytes = sum(entry.file_bytes for entry in entries)
        kinds.append(KindInfo(group, len(entries), size_bytes, sum(counts) if counts else None))
    return tuple(sorted(kinds, key=lambda one: (-one.file_bytes, one.described)))
