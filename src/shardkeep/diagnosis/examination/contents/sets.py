"""Check that the shards of a job are all there, each once."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator

from shardkeep._paths_in_messages import as_argument
from shardkeep.diagnosis.examination.contents.data_files import Contents, DataFile, Reads
from shardkeep.diagnosis.examination.contents.listing import Identity, by_folder, plain_path
from shardkeep.diagnosis.examination.contents.wording import named
from shardkeep.diagnosis.examination.report import Fact, Problem
from shardkeep.jobs.verification.inventory import Task
from shardkeep.jobs.verification.shard_sets import ADVICE, check_sets
from shardkeep.quantities import counted, human_bytes

__all__ = ["check_shard_sets"]

_MOST_COMPARED = 512
_COMPARED_BYTES = 4096


def check_shard_sets(contents: Contents) -> Iterator[Problem | Fact]:
    """Find incomplete and mixed sets, empty shards, shards with two names, copies, unfinished downloads."""
    data = [one for one in contents.data if one.expected is not None]
    tasks = [Task(one.path, one.expected, named=one.entry.is_named) for one in data]
    for file in check_sets(tasks, set(map(plain_path, contents.subject.paths))):
        for finding in file.findings:
            advice = ADVICE[finding.kind]
            evidence = finding.message.removesuffix(f"; {advice}").removeprefix(f"{finding.path}: ")
            command = f"shardkeep info {as_argument(os.path.dirname(finding.path) or os.curdir)}"
            yield Problem("error", "sets", evidence, advice, command, finding.path)
    yield from _empty(data)
    yield from _several_names(data)
    yield from _copies(contents)
    yield from _unfinished(contents)


def _empty(data: Iterable[DataFile]) -> Iterator[Problem]:
    for folder, found in by_folder(one.entry for one in data if one.entry.size_bytes == 0):
        paths = [entry.path for entry in found]
        of = "the file has no bytes" if len(paths) == 1 else f"{counted(len(paths), 'file')} have no bytes"
        evidence = f"{of}: the writer was killed, or the copy failed: {named(paths)}"
        path = paths[0] if len(paths) == 1 else folder
        yield Problem("warning", "sets", evidence, "write or fetch what is empty again", _list(paths), path)


def _several_names(data: Iterable[DataFile]) -> Iterator[Problem]:
    names: defaultdict[Identity, list[str]] = defaultdict(list)
    for one in data:
        # Stores that keep equal contents once link all empty shards to one file.
        if one.entry.size_bytes:
            names[one.entry.identity].append(one.path)
    several = [paths for paths in names.values() if len(paths) > 1]
    if several:
        evidence = f"{counted(len(several), 'file')} with more than one name, so that it is read twice: "
        evidence += " = ".join(several[0][:3]) + (" and others" if len(several) > 1 else "")
        fix = "pass only one of the names, or move the links away"
        command = f"ls -li {' '.join(map(as_argument, several[0][:3]))}"
        yield Problem("error", "sets", evidence, fix, command, several[0][0])


def _copies(contents: Contents) -> Iterator[Problem]:
    """Find shards of one size with equal bytes at both ends; of many equal sizes only some are compared."""
    sizes: defaultdict[int, dict[Identity, str]] = defaultdict(dict)
    for one in contents.shards:
        if one.entry.size_bytes:
            sizes[one.entry.size_bytes].setdefault(one.entry.identity, one.path)
    reads = Reads(_MOST_COMPARED, contents.subject)
    copies: list[list[str]] = []
    for files in sorted(sizes.values(), key=len):
        ends: defaultdict[bytes, list[str]] = defaultdict(list)
        for path in files.values() if len(files) > 1 else ():
            if not reads.take():
                break
            ends[_ends(path)].append(path)
        copies += [paths for key, paths in ends.items() if key and len(paths) > 1]
    if copies:
        first, second = copies[0][:2]
        more = sum(map(len, copies)) - 2
        evidence = f"it has the size and the first and last bytes of {second}: perhaps a copy"
        evidence += f"; {counted(more, 'other file')} likewise" if more else ""
        command = f"cmp {as_argument(first)} {as_argument(second)}"
        yield Problem("note", "sets", evidence, "compare them, and move copies away", command, first)


def _ends(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            head = file.read(_COMPARED_BYTES)
            file.seek(-min(len(head), _COMPARED_BYTES), os.SEEK_END)
            return head + file.read(_COMPARED_BYTES)
    except OSError:
        return b""


def _unfinished(contents: Contents) -> Iterator[Problem]:
    """Find unfinished downloads in folders of shards."""
    folders = {one.entry.folder for one in contents.shards}
    left = (entry for entry in contents.listing.files if entry.is_unfinished and entry.folder in folders)
    for folder, files in by_folder(left):
        paths = [entry.path for entry in files]
        total = human_bytes(sum(entry.size_bytes for entry in files))
        evidence = f"{counted(len(paths), 'unfinished file')} of a download or copy ({total}): {named(paths)}"
        fix = "finish it before the job starts, or remove what is left of it"
        yield Problem("warning", "sets", evidence, fix, _list(paths), folder)


def _list(paths: list[str]) -> str:
    return f"ls -l {' '.join(map(as_argument, paths[:3]))}"
