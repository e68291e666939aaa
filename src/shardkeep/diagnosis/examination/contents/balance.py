"""Check how the records of each set of shards are divided among the ranks."""

from __future__ import annotations

import fnmatch
import glob
import itertools
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardkeep._paths_in_messages import as_argument
from shardkeep.diagnosis.examination.contents.data_files import Contents, DataFile, Reads
from shardkeep.diagnosis.examination.report import Fact, Problem, Severity
from shardkeep.errors import PlanError
from shardkeep.plan.file_assignment import balance
from shardkeep.quantities import counted, human_bytes
from shardkeep.tfrecord.index.state import stored_indexes

__all__ = ["check_balance"]

I64 = NDArray[np.int64]

_MOST_INDEXES = 10_000
_MOST_FACTS = 20
_MOST_SETS = 20
_UNEVEN, _VERY_UNEVEN = 1.1, 1.5
# A shard so much larger than the median, and not tiny, keeps one rank busy for longer than the others.
_LARGE_RATIO = 4
_LARGE_BYTES = 64 << 20
_MANY = 1000
_TINY_BYTES = 1 << 20
# Shards of about this size are read in long runs, and there are enough of them to divide.
_GOOD_BYTES = 128 << 20


@dataclass(frozen=True)
class _ShardSet:
    """The shards of one set, in the order of their names.

    `label` is a pattern that matches them and no other file, a path, or a folder; `source` is the same as an
    argument for a shell, or None if no argument names exactly these files. `records` is None unless every
    shard has an index.
    """

    files: list[DataFile]
    label: str
    source: str | None
    sizes: I64
    records: I64 | None


def check_balance(contents: Contents) -> Iterator[Problem | Fact]:
    """Compare the shares of the ranks, by records and by whole files.

    No shard is read: the number of records is that of an index, and without one sizes are compared.
    """
    world_size = contents.subject.world.size
    reads = Reads(_MOST_INDEXES, contents.subject)
    names: defaultdict[str, set[str]] = defaultdict(set)
    for shard in contents.shards:
        names[shard.entry.folder].add(shard.path)
    for number, files in enumerate(_sets(contents.shards)):
        here = names[files[0].entry.folder]
        one = _shard_set(files, here, reads, is_all=len(files) == len(here) == len(contents.shards))
        if number < _MOST_FACTS:
            yield Fact("balance", one.label, _described(one, world_size))
        if world_size > 1:
            yield from _check_shares(one, world_size)
        yield from _check_sizes(one, world_size)


def _sets(shards: list[DataFile]) -> Iterator[list[DataFile]]:
    """Yield the shards of each set: those of one pattern; in each folder all others together.

    The shards of a folder with many patterns, such as one for each class, are one set.
    """
    folders: defaultdict[str, defaultdict[tuple[str, ...], list[DataFile]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for one in shards:
        folders[one.entry.folder][one.siblings].append(one)
    for groups in folders.values():
        sets = [group for group in groups.values() if len(group) > 1]
        others = [group[0] for group in groups.values() if len(group) == 1]
        if len(sets) > _MOST_SETS:
            yield [one for group in groups.values() for one in group]
            continue
        yield from sets
        if others:
            yield others


def _shard_set(files: list[DataFile], here: set[str], reads: Reads, *, is_all: bool) -> _ShardSet:
    """Return a set; `here` has all shards of its folder, and `is_all` is True if there are no others."""
    paths = [one.path for one in files]
    folder = files[0].entry.folder
    pattern = paths[0] if len(paths) == 1 else _pattern(paths)
    label: str
    source: str | None
    if pattern is not None and (len(paths) == 1 or set(fnmatch.filter(here, pattern)) == set(paths)):
        label, source = pattern, as_argument(pattern)
    else:
        label, source = folder, as_argument(folder) if is_all else None
    sizes = np.array([one.entry.size_bytes for one in files], np.int64)
    return _ShardSet(files, label, source, sizes, _count_records(files, reads))


def _pattern(paths: list[str]) -> str | None:
    """Return a pattern that matches names with the same start and end, outside of their numbers."""
    names = [os.path.basename(path) for path in paths]
    start = _common_start(names)
    end = _common_start([name[len(start) :][::-1] for name in names])[::-1]
    # Not within a word or a number.
    start, end = start.rstrip("0123456789"), re.sub(r"^[A-Za-z0-9]+", "", end)
    if not start and not end:
        return None
    return os.path.join(glob.escape(os.path.dirname(paths[0])), f"{glob.escape(start)}*{glob.escape(end)}")


def _common_start(texts: list[str]) -> str:
    low, high = min(texts), max(texts)
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(low, high, strict=False))
    return low[: sum(1 for _ in same)]


def _count_records(files: list[DataFile], reads: Reads) -> I64 | None:
    counts: list[int] = []
    for one in files:
        count = 0 if one.entry.size_bytes == 0 else _indexed_records(one) if reads.take() else None
        if count is None:
            return None
        counts.append(count)
    return np.array(counts, np.int64)


def _indexed_records(one: DataFile) -> int | None:
    try:
        known = (index.records for index in stored_indexes(one.path, one.entry.status))
        return next((count for count in known if count is not None), None)
    except PlanError:  # SHARDKEEP_INDEX, which the check of indexes reports
        return None


def _described(one: _ShardSet, world_size: int) -> str:
    parts = [counted(len(one.files), "shard"), human_bytes(int(one.sizes.sum()))]
    if one.records is not None:
        parts.append(counted(int(one.records.sum()), "record"))
    text = ", ".join(parts)
    if world_size > 1 and one.records is not None:
        text += (
            f"; {int(one.records.sum()) // world_size:,} records or one more for each of {world_size:,} ranks"
        )
    return text


def _check_shares(one: _ShardSet, world_size: int) -> Iterator[Problem]:
    if one.records is not None and 0 < one.records.sum() < world_size:
        records = int(one.records.sum())
        evidence = f"{counted(records, 'record')} for {world_size:,} ranks: {world_size - records:,} get none"
        fix = f"run at most {counted(records, 'rank')}"
        yield Problem("error", "balance", evidence, fix, None, one.label)
        return
    amounts = one.sizes if one.records is None else one.records
    rank_of = balance(one.sizes, world_size)
    shares = np.bincount(rank_of[rank_of >= 0], amounts[rank_of >= 0], world_size)
    least, most, mean = shares.min(), shares.max(), shares.mean()
    if most <= _UNEVEN * mean:
        return
    idle = int((shares == 0).sum())
    text = _amount(one, most)
    if idle:
        files = int((rank_of >= 0).sum())
        evidence = f"{counted(files, 'shard')} for {world_size:,} ranks: {counted(idle, 'rank')} without any"
    else:
        evidence = f"ranks have {_amount(one, least)} to {text}, {most / mean:.1f} times the mean"
    evidence += ', if each rank reads whole files (shard_by="files", or a file list of tf.data or PyTorch)'
    fix = 'keep shard_by="records", which divides equally; for whole files divide the set again'
    severity: Severity = "warning" if idle or most > _VERY_UNEVEN * mean else "note"
    yield Problem(severity, "balance", evidence, fix, _command(one, world_size), one.label)


def _amount(one: _ShardSet, share: float) -> str:
    return human_bytes(int(share)) if one.records is None else counted(int(share), "record")


def _check_sizes(one: _ShardSet, world_size: int) -> Iterator[Problem]:
    if len(one.files) < 2:
        return
    median, largest = int(np.median(one.sizes)), int(one.sizes.max())
    if largest >= max(_LARGE_BYTES, _LARGE_RATIO * median):
        path = one.files[int(one.sizes.argmax())].path
        times = f", {largest / median:.0f} times the median" if median else ""
        evidence = f"a shard of {human_bytes(largest)}{times} of its set of {len(one.files):,}"
        fix = "divide the set into shards of about one size, so that readers of whole files end together"
        yield Problem("note", "balance", evidence, fix, _command(one, world_size), path)
    if len(one.files) >= _MANY and median < _TINY_BYTES:
        evidence = (
            f"{len(one.files):,} shards of {human_bytes(median)} (median): each epoch opens all of them"
        )
        fix = "combine them into fewer, larger shards"
        yield Problem("note", "balance", evidence, fix, _command(one, world_size), one.label)


def _command(one: _ShardSet, world_size: int) -> str | None:
    """Return the command that divides a set into shards of about one size, a multiple of the ranks."""
    if one.source is None:
        return None
    total = int(one.sizes.sum())
    shards = world_size * max(1, round(total / world_size / _GOOD_BYTES))
    if one.records is not None:
        shards = min(shards, max(world_size, int(one.records.sum())))
    first = one.files[0]
    folder = first.entry.folder
    parent = os.path.dirname(os.path.abspath(folder)) if folder == os.curdir else os.path.dirname(folder)
    base = os.path.basename(os.path.abspath(folder))
    output = _free_name(os.path.join(parent, f"{base}-{shards}-shards"))
    stem = re.split(r"[-_.]?[0-9]|\.", first.entry.name)[0] or "shard"
    ending = re.search(r"(\.[A-Za-z_]+)+$", first.entry.name)
    braces = str.maketrans({"{": "{{", "}": "}}"})
    name = f"{stem.translate(braces)}-{{shard:05d}}-of-{{shards:05d}}{ending[0] if ending else '.tfrecord'}"
    target = as_argument(os.path.join(output.translate(braces), name))
    compression = first.kind.compression if first.kind is not None else None
    option = f" --compression {compression}" if compression in ("gzip", "zlib") else ""
    split = f"shardkeep split {one.source} {target} --shards {shards} --mode balanced{option}"
    return f"mkdir {as_argument(output)} && {split}"


def _free_name(path: str) -> str:
    names = (path if number == 0 else f"{path}-{number}" for number in itertools.count())
    return next(name for name in names if not os.path.lexists(name))
