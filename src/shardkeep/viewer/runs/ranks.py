"""Commits of the ranks of a run folder, without a lock and without a file that is being written.

Names and times of the segments say most. Rows are in the commit record of a segment: those of the newest one
and of one some commits earlier are read, and kept.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

from shardkeep.errors import ShardkeepError
from shardkeep.files.locks.holder import read_holder
from shardkeep.hdf5.locking.holders import is_locked
from shardkeep.hdf5.segments.commit_record import CommitRecord
from shardkeep.hdf5.segments.run_folder import SegmentName, list_segments, writer_path
from shardkeep.viewer.locations import Location
from shardkeep.viewer.runs.commit_records import record_at

__all__ = ["Commit", "Rank", "commits_of", "rank_of"]

_BACK = 10


@dataclass(frozen=True)
class Commit:
    """A sealed segment: its step, the time of its file and its size."""

    segment: SegmentName
    time_s: float
    size_bytes: int


@dataclass(frozen=True)
class Rank:
    """State of one rank.

    Attributes
    ----------
    rank : int
    location : Location
        Of its folder.
    commits, newest_step : int
        Without commits the step is -1.
    size_bytes : int
    age_s : float or None
        Since the newest commit.
    writer : str or None
        The process that has the rank open.
    rows : dict of str to int
        Committed rows, of the datasets in the newest commit; empty while they have not been read.
    rows_per_s : float or None
        Of all datasets together, over the last commits.
    problem : str or None
    """

    rank: int
    location: Location
    commits: int = 0
    newest_step: int = -1
    size_bytes: int = 0
    age_s: float | None = None
    writer: str | None = None
    rows: dict[str, int] = field(default_factory=dict)
    rows_per_s: float | None = None
    problem: str | None = None


def commits_of(folder: str) -> list[Commit]:
    """Return the commits of one rank, oldest first; a gap in them is not an error here."""
    found = []
    for segment in list_segments(folder, gaps=True):
        try:
            status = os.lstat(segment.path)
        except FileNotFoundError:
            continue  # a rollback removed it at this moment
        found.append(Commit(segment, status.st_mtime, status.st_size))
    return found


def rank_of(number: int, location: Location, deadline_s: float) -> Rank:
    """Return the state of one rank; no segment is opened after a moment of `time.monotonic`."""
    try:
        commits = commits_of(location.path)
    except (ShardkeepError, OSError) as error:
        return Rank(number, location, problem=str(error))
    writer = _writer(location.path)
    if not commits:
        return Rank(number, location, writer=writer)
    newest, earlier = commits[-1], commits[max(0, len(commits) - 1 - _BACK)]
    problem: str | None = None
    rows: dict[str, int] = {}
    rows_per_s: float | None = None
    try:
        last = _record(location, newest, deadline_s)
        before = _record(location, earlier, deadline_s) if earlier is not newest else None
    except (ShardkeepError, OSError) as error:
        last = before = None
        problem = str(error)
    if last:
        rows = _rows_of(last)
    if last and before and last.created > before.created:
        old = _rows_of(before)
        gained = sum(count - old[name] for name, count in rows.items() if name in old)
        rows_per_s = gained / (last.created - before.created)
    return Rank(
        number,
        location,
        commits=len(commits),
        newest_step=newest.segment.step,
        size_bytes=sum(one.size_bytes for one in commits),
        age_s=max(0.0, time.time() - newest.time_s),
        writer=writer,
        rows=rows,
        rows_per_s=rows_per_s,
        problem=problem,
    )


def _writer(folder: str) -> str | None:
    path = writer_path(folder) + ".lock"
    if not is_locked(path):
        return None
    holder = read_holder(path)
    return "a process" if holder is None else f"pid {holder['pid']} on {holder['host']}"


def _record(folder: Location, commit: Commit, deadline_s: float) -> CommitRecord | None:
    return record_at(folder.child(os.path.basename(commit.segment.path)), deadline_s)


def _rows_of(record: CommitRecord) -> dict[str, int]:
    return {name: one.first_row + one.rows for name, one in record.datasets.items()}
