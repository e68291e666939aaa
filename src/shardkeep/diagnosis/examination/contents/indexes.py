"""Check that stored indexes fit their shards."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator

from shardkeep._paths_in_messages import as_argument
from shardkeep.diagnosis.examination.contents.data_files import Contents, DataFile, Reads
from shardkeep.diagnosis.examination.contents.listing import Entry
from shardkeep.diagnosis.examination.contents.wording import arguments, named
from shardkeep.diagnosis.examination.report import Fact, Problem
from shardkeep.errors import PlanError, ShardkeepError
from shardkeep.quantities import counted
from shardkeep.tfrecord.index.state import stored_indexes
from shardkeep.tfrecord.index.text import find_text_index_fault
from shardkeep.tfrecord.index.together import NAME

__all__ = ["check_indexes"]

_INDEX, _TEXT_INDEX = ".skidx", ".idx"
_MOST_READ = 4096


def check_indexes(contents: Contents) -> Iterator[Problem | Fact]:
    """Find indexes in the folders of the shards that are stale, damaged, or without a shard.

    A reader of Shardkeep ignores an index that does not fit, and scans the shard. One of DALI's is used as it
    is, and leads to wrong bytes.
    """
    shards = {one.path: one for one in contents.data}
    reads = Reads(_MOST_READ, contents.subject)
    stale: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    alone: defaultdict[str, list[str]] = defaultdict(list)
    fitting = 0
    try:
        for entry in contents.listing.companions:
            if not entry.name.endswith((_INDEX, _TEXT_INDEX)) or entry.name == NAME:
                continue
            shard = _shard_of(entry, shards)
            if shard is None:
                if not _has_shard(entry.path):
                    alone[entry.folder].append(entry.path)
            elif reads.take():
                fault = _fault_of(entry, shard)
                fitting += fault is None
                if fault is not None and entry.name.endswith(_INDEX):
                    stale[entry.folder].append((shard.path, fault))
                elif fault is not None:
                    yield _text_problem(entry, shard, fault)
    except PlanError as error:  # SHARDKEEP_INDEX
        yield Problem("error", "index", str(error), "correct or unset the variable", "unset SHARDKEEP_INDEX")
        return
    for folder, found in stale.items():
        yield _stale_problem(folder, found)
    for folder, paths in alone.items():
        evidence = f"{counted(len(paths), 'index file')} without a shard: {named(paths)}"
        names = arguments(paths)
        command = f"ls {as_argument(folder)}" if names is None else f"rm -- {names}"
        yield Problem("note", "index", evidence, "remove them, or restore the shards", command, folder)
    if fitting:
        yield Fact("index", "indexes that fit their shards", f"{fitting:,}")


def _shard_of(entry: Entry, shards: dict[str, DataFile]) -> DataFile | None:
    base = os.path.splitext(entry.path)[0]
    if base in shards or entry.name.endswith(_INDEX):
        return shards.get(base)
    # DALI's examples name the index of "train.tfrecord" "train.idx".
    names = (f"{base}{ending}" for ending in (".tfrecord", ".tfrecords", ".tfrec"))
    return next((shards[name] for name in names if name in shards), None)


def _has_shard(path: str) -> bool:
    """Return True if an index belongs to another file that exists; a foreign ``.idx`` belongs to any."""
    base, ending = os.path.splitext(path)
    return ending == _TEXT_INDEX or os.path.lexists(base)


def _fault_of(entry: Entry, shard: DataFile) -> str | None:
    try:
        if entry.name.endswith(_TEXT_INDEX):
            return find_text_index_fault(entry.path, shard.path)
        found = {one.path: one.fault for one in stored_indexes(shard.path, shard.entry.status)}
        return found.get(entry.path)
    except (ShardkeepError, OSError) as error:
        if isinstance(error, PlanError):
            raise
        return f"it cannot be read: {error}"


def _text_problem(entry: Entry, shard: DataFile, fault: str) -> Problem:
    evidence = f"the text index does not fit {shard.entry.name}: {fault}; DALI would read wrong bytes"
    suffix = entry.path.removeprefix(shard.path)
    command = f"shardkeep index {as_argument(shard.path)} --text {as_argument(suffix)} --exists replace"
    if not entry.path.startswith(shard.path):
        command = f"rm {as_argument(entry.path)} && shardkeep index {as_argument(shard.path)} --text .idx"
    return Problem("error", "index", evidence, "write the index again", command, entry.path)


def _stale_problem(folder: str, found: list[tuple[str, str]]) -> Problem:
    paths, fault = [path for path, _ in found], found[0][1]
    names = arguments(paths) or as_argument(folder)
    if len(found) == 1:
        evidence, path = f"its index {fault}", paths[0]
    else:
        text = f"{counted(len(found), 'shard')} with an index that does not fit: {named(paths)}"
        evidence, path = f"{text}; that of the first {fault}", folder
    evidence += "; until it is built again each reader scans the shard"
    return Problem("warning", "index", evidence, "build the index again", f"shardkeep index {names}", path)
