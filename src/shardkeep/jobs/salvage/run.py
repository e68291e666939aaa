"""Salvage of a run folder: a new one with every segment that is whole.

A commit is the unit: its rows belong together, and each dataset of a segment has one hash. So a commit is
kept with all of its rows, or is lost; its segment may be salvaged as a single HDF5 file. Later commits of the
rank are kept, and a merge names the gap (`shardkeep.hdf5.segments.series_check`).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from shardkeep._paths_in_messages import as_argument
from shardkeep.errors import ExistsError, LockHeldError, MissingExtraError, NotFoundError
from shardkeep.files.child_python import Children
from shardkeep.files.kinds.kind import identify
from shardkeep.files.leftovers import is_temporary
from shardkeep.files.publish import Exists, publish_raw
from shardkeep.files.threads.work import Work
from shardkeep.hdf5.segments.commit_record import CommitRecord, parse_record
from shardkeep.hdf5.segments.run_folder import make_rank_folder, numbers_in_path, rank_folder
from shardkeep.hdf5.segments.series_end import is_ended, write_end
from shardkeep.jobs.salvage.commit_text import find_record
from shardkeep.jobs.salvage.file_copy import copy_into
from shardkeep.jobs.salvage.report import RepairedFile, RepairedPart
from shardkeep.jobs.salvage.series import Segment, Series, choose_series
from shardkeep.jobs.verification.hdf5_children import CHILD, check_hdf5
from shardkeep.quantities import counted
from shardkeep.tfrecord.index.scan import thread_count

__all__ = ["salvage_run"]


@dataclass(frozen=True)
class _Damaged:
    """Damaged segment, or another file; its numbers are those of its record or its name, or -1."""

    path: str
    size_bytes: int
    rank: int
    sequence: int
    record: CommitRecord | None
    damage: str

    def described(self, run: str) -> str:
        """Return the reason of its loss."""
        numbers = numbers_in_path(self.path)
        step = self.record.step if self.record else numbers[2] if numbers else None
        at = "" if step is None else f" (step {step})"
        damage = self.damage.replace(repr(self.path), "the file")
        return f"{_commits(self.rank, self.sequence)}{at}, {os.path.relpath(self.path, run)}: {damage}"


def salvage_run(
    path: str, output: str | None, *, exists: Exists = "fail", tick: Callable[[int], None]
) -> RepairedFile:
    """Write a run folder with every segment that is whole; see `shardkeep.jobs.salvage`.

    Raises
    ------
    MissingExtraError
        Rows cannot be checked, since a filter is not installed.
    LockHeldError
        A process has a segment open for writing.
    ExistsError
        The output has segments.
    NotFoundError, DurabilityError, OSError
        The folder has no segment; the output cannot be written; a folder cannot be listed.

    Notes
    -----
    The newest segments are written first: what a kill leaves has no first commit, so a merge refuses it.
    """
    files = _files_of(path)
    if not files:
        raise NotFoundError(f"{path!r} has no segment of a worker: pass the folder of a run", path=path)
    if output is not None and _files_of(output):
        raise ExistsError(f"{output!r} has segments, which would be mixed: pass another folder", path=output)
    with Children(CHILD) as children:
        checked = Work(None, 0).run(
            lambda one, _: _check(one, children, tick), files, thread_count(None), quick_s=0.01
        )
    whole = [one for one in checked if isinstance(one, Segment)]
    damaged = [one for one in checked if isinstance(one, _Damaged)]
    series = choose_series(path, whole)
    if output is not None:
        _copy(path, series, output, exists, tick)
    places = {(one.record.rank, one.record.sequence) for one in series.segments}
    lost = [one for one in damaged if one.rank >= 0 and (one.rank, one.sequence) not in places]
    unused = {one.path: one.damage for one in damaged if one not in lost} | series.unused
    size_bytes = sum(one.size_bytes for one in checked)
    written = output if series.segments else None
    parts, notes = _parts(path, series, lost), _notes(path, series, unused, written)
    return RepairedFile(path, written, "run", size_bytes, tuple(parts), tuple(notes))


def _files_of(run: str) -> list[str]:
    """Return the files of a run folder that are, or should be, segments."""
    result: list[str] = []
    folders = os.listdir(run) if os.path.isdir(run) else []
    for folder in (os.path.join(run, name) for name in folders if name.startswith("rank-")):
        names = os.listdir(folder) if os.path.isdir(folder) else []
        for path in (os.path.join(folder, name) for name in names if not is_temporary(name)):
            if os.path.isfile(path) and (path.endswith(".h5") or _is_hdf5(path)):
                result.append(path)
    return sorted(result)


def _is_hdf5(path: str) -> bool:
    try:
        return identify(path).name == "hdf5"
    except OSError:
        return False


def _check(path: str, children: Children, tick: Callable[[int], None]) -> Segment | _Damaged:
    """Compare the rows of a segment with the hashes of its record, in a child process."""
    size_bytes = os.path.getsize(path)
    verified, text = check_hdf5(path, size_bytes, children, tick)
    found = verified.findings
    for one in found:
        if one.kind == "locked":
            raise LockHeldError(one.message, path=path)
        if one.kind == "unsupported" and "pip install" in one.message:
            raise MissingExtraError(one.message, path=path)
    record = find_record(path) if text is None else parse_record(text.encode(), path)
    if record is not None and not found:
        return Segment(path, size_bytes, record)
    by_name = numbers_in_path(path) or (-1, -1, -1)
    rank, sequence = by_name[:2] if record is None else (record.rank, record.sequence)
    damage = found[0].message if found else "it has no record of a commit"
    return _Damaged(path, size_bytes, rank, sequence, record, damage)


def _copy(run: str, series: Series, output: str, exists: Exists, tick: Callable[[int], None]) -> None:
    for one in sorted(series.segments, key=lambda one: -one.record.sequence):
        target = one.path_in(output)
        make_rank_folder(os.path.dirname(target), durable=True)
        with publish_raw(target, exists=exists) as file:
            copy_into(one.path, file, lambda _: tick(0))  # counted when it was checked
    for rank, crc32c in {one.record.rank: one.record.crc32c for one in series.segments}.items():
        if is_ended(rank_folder(run, rank), crc32c):
            write_end(rank_folder(output, rank), crc32c, durable=True)


# -- the report ----------------------------------------------------------------------------------------------


def _parts(run: str, series: Series, damaged: Sequence[_Damaged]) -> Iterator[RepairedPart]:
    """Yield the parts by rank, each in the order of its commits."""
    kept: defaultdict[int, list[Segment]] = defaultdict(list)
    lost: defaultdict[int, list[_Damaged]] = defaultdict(list)
    for segment in series.segments:
        kept[segment.record.rank].append(segment)
    for one in damaged:
        lost[one.rank].append(one)
    for rank in sorted({*kept, *lost}):
        rows: dict[str, int] = {}
        start = 0
        together: list[Segment] = []
        for segment in kept[rank]:
            record = segment.record
            is_named = segment.is_named(run)
            if record.sequence > start or not is_named:
                yield from _kept(together)
                together = []
            if record.sequence > start:
                there = [one for one in lost[rank] if start <= one.sequence < record.sequence]
                yield from _gap(run, rank, range(start, record.sequence), there, rows, record)
            if is_named:
                together.append(segment)
            else:
                reason = f"{_commits(rank, record.sequence)}, was named {os.path.relpath(segment.path, run)}"
                yield RepairedPart("repaired", reason, _rows_of(record), bytes=segment.size_bytes)
            rows = {name: dataset.first_row + dataset.rows for name, dataset in record.datasets.items()}
            start = record.sequence + 1
        yield from _kept(together)
        there = [one for one in lost[rank] if one.sequence >= start]
        if there:
            stop = max(one.sequence for one in there) + 1
            yield from _gap(run, rank, range(start, stop), there, rows, None)
    if series.segments:
        newest = max((one.record for one in series.segments), key=lambda record: record.created)
        absent = newest.world_size - len({rank for rank in {*kept, *lost} if rank < newest.world_size})
        if absent:
            yield RepairedPart("lost", f"{counted(absent, 'rank')} of {newest.world_size:,} without a file")


def _kept(segments: Sequence[Segment]) -> Iterator[RepairedPart]:
    if segments:
        first, last = segments[0].record, segments[-1].record
        steps = f"step {first.step}" if first is last else f"steps {first.step} to {last.step}"
        reason = f"{_commits(first.rank, first.sequence, last.sequence)} ({steps})"
        rows = sum(_rows_of(one.record) for one in segments)
        yield RepairedPart("kept", reason, rows, bytes=sum(one.size_bytes for one in segments))


def _gap(
    run: str,
    rank: int,
    numbers: range,
    damaged: Sequence[_Damaged],
    rows: dict[str, int],
    following: CommitRecord | None,
) -> Iterator[RepairedPart]:
    """Yield commits that are lost, up to a whole one if there is one.

    The rows of commits without a readable record are those between the rows before and after the gap.
    """
    left: dict[str, int] = {}
    values: dict[str, int] = {}
    if following is not None:
        left = {name: one.first_row - rows.get(name, 0) for name, one in following.datasets.items()}
        values = {name: put.sequence for name, put in following.puts.items()}
    unknown: list[tuple[str, int]] = []
    seen: set[int] = set()
    for one in sorted(damaged, key=lambda one: (one.sequence, one.record is None, one.path)):
        reason = one.described(run)
        if one.sequence in seen:
            continue  # a damaged copy
        seen.add(one.sequence)
        if one.record is None:
            unknown.append((reason, one.size_bytes))
            continue
        here = {name: dataset.rows for name, dataset in one.record.datasets.items()}
        left = {name: count - here.get(name, 0) for name, count in left.items()}
        values |= {name: put.sequence for name, put in one.record.puts.items()}
        yield from _lost(reason, one.size_bytes, here)
    absent = len(numbers) - len(seen)
    if len(unknown) == 1 and not absent:
        yield from _lost(*unknown[0], left)
    elif unknown or absent:
        for reason, size_bytes in unknown:
            yield from _lost(reason, size_bytes, {})
        span = _commits(rank, numbers[0], numbers[-1])
        which = "missing" if not seen else f"{absent:,} of them missing" if absent else "their other rows"
        if absent or any(count > 0 for count in left.values()):
            yield from _lost(f"{span}: {which}", None, left)
    for name, number in values.items():
        if number in numbers:
            yield RepairedPart("lost", f"{_commits(rank, number)}: the value", dataset=name)


def _lost(reason: str, size_bytes: int | None, rows: dict[str, int]) -> Iterator[RepairedPart]:
    """Yield a part for each dataset with rows, at least one; the first one has the size of the file."""
    for name, count in {name: count for name, count in rows.items() if count > 0}.items() or ((None, 0),):
        yield RepairedPart("lost", reason, count, bytes=size_bytes, dataset=name)
        size_bytes = None


def _commits(rank: int, first: int, last: int | None = None) -> str:
    return (
        f"commit {first} of rank {rank}"
        if last in (None, first)
        else f"commits {first} to {last} of rank {rank}"
    )


def _rows_of(record: CommitRecord) -> int:
    return sum(one.rows for one in record.datasets.values())


def _notes(run: str, series: Series, unused: dict[str, str], output: str | None) -> Iterator[str]:
    for path, reason in sorted(unused.items()):
        yield f"{os.path.relpath(path, run)} is not used: {reason}"
    if not series.segments:
        yield "no commit is whole, so there is nothing to merge"
        return
    findings = series.findings(output or run)
    for one in findings:
        yield f"a merge reports: {one}"
    if output is not None:
        option = "--incomplete warn " if findings else ""
        merged = as_argument(f"{output.rstrip('/')}.h5")
        yield f"merge it with: shardkeep merge {option}{as_argument(output)} {merged}"
