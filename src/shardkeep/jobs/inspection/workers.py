"""Commits of the ranks of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from shardkeep._summary import summary
from shardkeep.hdf5.read_errors import reading
from shardkeep.hdf5.segments.run_folder import list_ranks, list_segments
from shardkeep.hdf5.segments.series_check import check_follows
from shardkeep.hdf5.sources.source import Source, open_source

__all__ = ["WorkerInfo", "worker_of", "workers_of"]


@dataclass(frozen=True)
class WorkerInfo:
    """Commits of one rank of a run.

    Attributes
    ----------
    path : str
        Folder of the rank, or the file that was inspected.
    rank, world_size : int
        Rank, and world size at the newest commit.
    commits : int
        Number of commits; each is a file.
    committed_step : int
        Step of the newest commit.
    rows : dict
        Dataset name to the number of committed rows.
    """

    path: str
    rank: int
    world_size: int
    commits: int
    committed_step: int
    rows: dict[str, int]

    __repr__ = summary


def workers_of(folder: str) -> tuple[WorkerInfo, ...]:
    """Return the commits of each rank that has some, if the folder is that of a run."""
    workers = (worker_of(one, _segments(one)) for one in list_ranks(folder).values())
    return tuple(worker for worker in workers if worker is not None)


def worker_of(path: str, segments: Iterable[Source]) -> WorkerInfo | None:
    """Return the commits in the segments of one rank, oldest first."""
    newest = None
    commits = 0
    rows: dict[str, int] = {}
    path_before = path
    for segment in segments:
        if segment.record is not None and newest is not None:
            check_follows(segment.record, segment.path, newest, path_before)
        newest, path_before = segment.record or newest, segment.path
        commits += 1
        for name, dataset in (segment.record.datasets if segment.record else {}).items():
            rows[name] = rows.get(name, 0) + dataset.rows
    if newest is None:
        return None
    return WorkerInfo(path, newest.rank, newest.world_size, commits, newest.step, rows)


def _segments(folder: str) -> Iterator[Source]:
    for segment in list_segments(folder):
        with open_source(segment.path) as source, reading(segment.path):
            yield source
