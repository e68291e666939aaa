"""Division of the records of some files among other files, for `split` and `concat`."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from shardkeep._paths_in_messages import shown
from shardkeep._summary import summary
from shardkeep.errors import InternalError, PlanError
from shardkeep.files.budget import budget
from shardkeep.files.file_set import FileSet
from shardkeep.files.incomplete import Incomplete
from shardkeep.files.kinds.special import refuse_special
from shardkeep.files.kinds.urls import is_url
from shardkeep.files.locks.lock import FileLock
from shardkeep.files.paths import PathsLike
from shardkeep.files.publish import Exists
from shardkeep.files.threads.groups import size_runs
from shardkeep.files.threads.work import Tick, Work
from shardkeep.jobs.division.assignment import Places, Sizes
from shardkeep.jobs.division.frames import Copied, PlainPart, StreamPart
from shardkeep.jobs.division.packed_frames import PackedPart
from shardkeep.jobs.division.source import Source, changed_error, scan
from shardkeep.jobs.division.targets import Place
from shardkeep.progress import Parts, Progress
from shardkeep.tfrecord.damage import Damage, OnCorrupt, check_on_corrupt
from shardkeep.tfrecord.format.compression import WrittenCompression, written_compression
from shardkeep.tfrecord.index.scan import processors
from shardkeep.tfrecord.shard_names import expand_shards

__all__ = ["ShardFile", "SplitReport", "divide"]

_Part = PlainPart | StreamPart | PackedPart

_PART_BYTES = 32 << 20
_BLOCK_BYTES = 2 << 20
# For records dealt out to N shards in turn, the window is large enough that each shard gets one long write.
_PIECE_BYTES = 128 << 10
_SMALLEST_WINDOW_BYTES, _LARGEST_WINDOW_BYTES = 4 << 20, 64 << 20
_INLINE_BYTES = 4 << 20
_MOST_THREADS = 4
_PACKED_TOGETHER = 16
# Usual share of the time of each part, without and with compression of the new files.
_WEIGHTS = ({"scan": 1, "copy": 4, "sync to disk": 1}, {"scan": 1, "copy": 40, "sync to disk": 1})


@dataclass(frozen=True)
class ShardFile:
    """One file that was written: its path, its records, and its size in bytes."""

    path: str
    records: int
    bytes: int

    __repr__ = summary


@dataclass(frozen=True)
class SplitReport:
    """Report of `split` or `concat`.

    Attributes
    ----------
    sources : tuple of str
        Source files, in the order of their records.
    outputs : tuple of ShardFile
    records : int
        Number of records of all sources, equal to that of all outputs.
    bytes : int
        Size of all outputs.
    mode : str
        "contiguous", "round-robin" or "balanced" for `split`; "concat" for `concat`.
    compression : {None, "gzip", "zlib"}
        Compression of the outputs.
    verified : bool
        True if the checksums of the payloads were checked.
    digest : str
        16 hexadecimal digits computed from all records, whatever their order; equal for sources and outputs.
        Two sets of files with the same digest hold the same records, except with a chance of about 1 in
        2**32.
    seconds : float
        Duration.
    damaged : tuple of Damage
        Damaged records that were skipped or repaired.
    """

    sources: tuple[str, ...]
    outputs: tuple[ShardFile, ...]
    records: int
    bytes: int
    mode: str
    compression: str | None
    verified: bool
    digest: str
    seconds: float
    damaged: tuple[Damage, ...] = ()

    __repr__ = summary

    def to_dict(self) -> dict[str, Any]:
        """Return the report as types that JSON supports."""
        return asdict(self)


def divide(
    paths: PathsLike,
    *,
    plan: Callable[[Sizes], tuple[Places, int]],
    names: Callable[[int], list[str]],
    lock: str,
    mode: str,
    compression: WrittenCompression | None,
    exists: Exists,
    verify: bool,
    on_corrupt: OnCorrupt,
    incomplete: Incomplete,
    progress: Progress | None,
    executor: Executor | None,
) -> SplitReport:
    """Copy the records of `paths` to the shards that `plan` chooses.

    Parameters
    ----------
    paths, compression, exists, verify, on_corrupt, incomplete, progress, executor
        See `shardkeep.jobs.split.split`.
    plan : callable
        Function from the size of each frame to the shard of each record and the number of shards.
    names : callable
        Function from the number of shards to their final names.
    lock : str
        Path that is locked during the work.
    mode : str
        Mode for the report.

    Returns
    -------
    SplitReport

    Raises
    ------
    ShardkeepError
        See `shardkeep.jobs.split.split`.
    """
    begin = time.perf_counter()
    check_on_corrupt(on_corrupt)
    if on_corrupt != "raise" and not verify:
        raise PlanError(
            f'verify=False and on_corrupt="{on_corrupt}" exclude each other: checksums reveal the damage'
        )
    sources = expand_shards(paths, incomplete)
    packing, verify = written_compression(compression), bool(verify)
    refuse_special(lock)
    exclusive = contextlib.nullcontext() if is_url(lock) else FileLock(lock, timeout_s=0, if_unsafe="warn")
    with exclusive:
        before = [_identity(path) for path in sources]
        source_bytes = sum(was[2] for was in before if was is not None)
        parts = Parts(progress, source_bytes, _WEIGHTS[packing is not None])
        found = scan(sources, on_corrupt=on_corrupt, progress=parts.begin("scan"), executor=executor)
        sizes = np.concatenate([np.diff(one.starts.astype(np.int64)) for one in found])
        shards, count = plan(sizes)
        total_bytes = int(sizes.sum())
        with FileSet(exists=exists) as files:
            places = [Place(files.temporary(files.add(name)), name, 0, 0) for name in names(count)]
            if packing is None:
                tasks = _plain_tasks(found, sizes, shards, places, verify)
            else:
                tasks = _packed_tasks(found, sizes, shards, places, packing, verify)
            done = _run(tasks, executor, total_bytes, parts.begin("copy"))
            digest = sum(one.read for one in done) % 2**64
            for path, was in zip(sources, before, strict=True):
                if _identity(path) != was:
                    raise changed_error(path)
            _check(done, sizes, places, shards, whole=packing is None)
            counts = np.bincount(shards, minlength=count).tolist()
            outputs = tuple(
                ShardFile(shown(place.path), records, os.stat(place.temporary).st_size)
                for place, records in zip(places, counts, strict=True)
            )
            files.publish(progress=parts.begin("sync to disk"))
    return SplitReport(
        sources=tuple(sources),
        outputs=outputs,
        records=len(sizes),
        bytes=sum(one.bytes for one in outputs),
        mode=mode,
        compression=packing,
        verified=verify,
        digest=f"{digest:016x}",
        seconds=time.perf_counter() - begin,
        damaged=tuple(damage for source in found for damage in source.damaged),
    )


def _identity(path: str) -> tuple[int, ...] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None  # the scan raises the error
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


# -- tasks ---------------------------------------------------------------------------------------------


def _plain_tasks(
    sources: Sequence[Source], sizes: Sizes, shards: Places, places: list[Place], verify: bool
) -> Iterator[_Part]:
    count = len(places)
    ends, records = np.zeros(count, np.int64), np.zeros(count, np.int64)
    dealt = len(shards) > 1 and int(np.count_nonzero(np.diff(shards))) >= count
    window_bytes = min(max(count * _PIECE_BYTES, _SMALLEST_WINDOW_BYTES), _LARGEST_WINDOW_BYTES)
    part_bytes = window_bytes if dealt else _PART_BYTES
    block_bytes = window_bytes if dealt else _BLOCK_BYTES
    base = 0
    for source in sources:
        whole = [(0, source.records)] if source.records else []
        source_sizes = sizes[base : base + source.records]
        for first, last in whole if source.is_stream else size_runs(source_sizes, part_bytes):
            mine = shards[base + first : base + last]
            mine_sizes = source_sizes[first:last]
            there = {
                shard: Place(
                    places[shard].temporary, places[shard].path, int(ends[shard]), int(records[shard])
                )
                for shard in np.unique(mine).tolist()
            }
            np.add.at(ends, mine, mine_sizes)
            np.add.at(records, mine, 1)
            if not source.is_stream:
                starts = source.starts[first : last + 1]
                yield PlainPart(source.path, first, starts, mine, there, block_bytes, verify)
            else:
                yield StreamPart(source, mine_sizes, mine, there, verify)
        base += source.records


def _packed_tasks(
    sources: tuple[Source, ...],
    sizes: Sizes,
    shards: Places,
    places: list[Place],
    packing: WrittenCompression,
    verify: bool,
) -> Iterator[_Part]:
    shard_bytes = np.bincount(shards, sizes, len(places)).astype(np.int64).tolist()
    room = max(1, budget().reserve // 4)
    # Each task reads every compressed source once, so with such sources the tasks are few.
    together = room if any(source.is_stream for source in sources) else min(room, _PACKED_TOGETHER)
    for first in range(0, len(places), together):
        some = {shard: places[shard] for shard in range(first, min(first + together, len(places)))}
        size_bytes = sum(shard_bytes[shard] for shard in some)
        yield PackedPart(sources, shards, some, packing, verify, size_bytes)


# -- execution -----------------------------------------------------------------------------------------


def _run(
    tasks: Iterator[_Part], executor: Executor | None, total_bytes: int, progress: Progress
) -> list[Copied]:
    threads = 1 if total_bytes < _INLINE_BYTES else min(_MOST_THREADS, processors())
    return Work(progress, total_bytes, executor).run(_copy, tasks, threads)


def _copy(part: _Part, tick: Tick) -> Copied:
    return part.copy(tick)


def _check(done: list[Copied], sizes: Sizes, places: list[Place], shards: Places, *, whole: bool) -> None:
    records, size_bytes = sum(one.records for one in done), sum(one.bytes for one in done)
    read, written = (sum(one.read for one in done), sum(one.written for one in done))
    if (records, size_bytes) != (len(sizes), int(sizes.sum())) or (read - written) % 2**64:
        raise InternalError(
            f"{places[0].path}: {records} of {len(sizes)} records were copied, or they differ from those read"
        )
    if not whole:
        return
    expected = np.zeros(len(places), np.int64)
    np.add.at(expected, shards, sizes)
    for place, size in zip(places, expected.tolist(), strict=True):
        if os.stat(place.temporary).st_size != size:
            raise InternalError(
                f"{place.path}: the file does not have the {size} bytes of its records", path=place.path
            )
