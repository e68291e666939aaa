"""Paths of a run folder.

::

    RUN/
    ├── rank-00000/
    │   ├── 00000000-step-100.h5     a segment: its number in the series, the step of its commit
    │   ├── 00000001-step-200.h5
    │   ├── end.json                 after `WorkerFile.finish` (`series_end`)
    │   └── writer.lock              while a worker of that rank lives
    └── rank-00001/ …

While a rollback cuts a segment at a marked step, the result ``00000001-step-150-from-200.h5`` takes the
place of ``00000001-step-200.h5``, which is then removed, and gets its plain name ``00000001-step-150.h5``.

So the newest commit of a rank, and a gap in its series, are found without opening a file.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from shardkeep.errors import CorruptDataError, NotFoundError
from shardkeep.files.durable import durably, sync_folder

__all__ = [
    "SegmentName",
    "cut_step",
    "is_rank_folder",
    "list_ranks",
    "list_segments",
    "make_rank_folder",
    "numbers_in_path",
    "rank_folder",
    "segment_name",
    "segment_path",
    "writer_path",
]

_RANK = re.compile(r"rank-(\d+)", re.ASCII)
_SEGMENT = re.compile(r"(\d+)-step-(\d+)(?:-from-(\d+))?\.h5", re.ASCII)


@dataclass(frozen=True, order=True)
class SegmentName:
    """Segment by its name: number in the series of its rank, step, path, step of what it was cut from."""

    sequence: int
    step: int
    path: str
    cut_from: int | None = None


def rank_folder(run_dir: str, rank: int) -> str:
    """Return the folder of one rank."""
    return os.path.join(run_dir, f"rank-{rank:05d}")


def make_rank_folder(folder: str, *, durable: bool) -> None:
    """Make the folder of a rank and those above it; `durable` syncs the names of all new ones."""
    made = []
    current = os.path.abspath(folder)
    while not os.path.isdir(current):
        made.append(current)
        current = os.path.dirname(current)
    with durably("make the folder", folder):
        os.makedirs(folder, exist_ok=True)
        if durable:
            for one in made:
                sync_folder(os.path.dirname(one))


def writer_path(folder: str) -> str:
    """Return the path that the writer of a rank locks."""
    return os.path.join(folder, "writer")


def segment_path(folder: str, sequence: int, step: int, cut_from: int | None = None) -> str:
    """Return the name of a segment: the final one, or that before the segment it was cut from is removed."""
    cut = "" if cut_from is None else f"-from-{cut_from}"
    return os.path.join(folder, f"{sequence:08d}-step-{step}{cut}.h5")


def is_rank_folder(path: str) -> bool:
    """Return whether a path has the name of the folder of a rank."""
    match = _RANK.fullmatch(os.path.basename(path))
    return match is not None and path == rank_folder(os.path.dirname(path), int(match[1]))


def numbers_in_path(path: str) -> tuple[int, int, int] | None:
    """Return rank, sequence and step in the path of a segment; None for another path.

    Examples
    --------
    >>> numbers_in_path("run/rank-00003/00000007-step-100.h5")
    (3, 7, 100)
    """
    rank = _RANK.fullmatch(os.path.basename(os.path.dirname(path)))
    name = segment_name(path)
    return None if rank is None or name is None else (int(rank[1]), name.sequence, name.step)


def segment_name(path: str) -> SegmentName | None:
    """Return the parts of the name of a segment; None for another path."""
    match = _SEGMENT.fullmatch(os.path.basename(path))
    if match is None:
        return None
    return SegmentName(int(match[1]), int(match[2]), path, None if match[3] is None else int(match[3]))


def cut_step(path: str) -> int | None:
    """Return the step in a path of the segment that this one was cut from, and replaces; None for others."""
    name = segment_name(path)
    return None if name is None else name.cut_from


def list_ranks(run_dir: str) -> dict[int, str]:
    """Return the folder of every rank that ever opened a worker file here, by rank.

    Raises
    ------
    NotFoundError
        The folder does not exist.
    CorruptDataError
        There is a folder that no worker made, as ``rank-0`` or ``rank-000000``: its rows, or those of the
        right folder of that rank, would be left out.
    """
    try:
        names = os.listdir(run_dir)
    except (FileNotFoundError, NotADirectoryError):
        message = f"there is no run folder {run_dir!r}: pass the one that was passed to the workers"
        raise NotFoundError(message, path=run_dir) from None
    ranks: dict[int, str] = {}
    others: dict[str, int] = {}
    for name in names:
        match = _RANK.fullmatch(name)
        if match is None:
            continue
        path, rank = os.path.join(run_dir, name), int(match[1])
        if path == rank_folder(run_dir, rank):
            ranks[rank] = path
        elif os.path.isdir(path):
            others[path] = rank
    longest = max((len(os.path.basename(path)) for path in others), default=0)
    if others and (ranks or longest >= len(os.path.basename(rank_folder(run_dir, 0)))):
        path = min(others)
        expected = rank_folder(run_dir, others[path])
        message = f"{path!r} was not made by the worker of rank {others[path]}, whose folder is {expected!r}"
        raise CorruptDataError(f"{message}: move one of them away, or rename it", path=path)
    return dict(sorted(ranks.items()))


def list_segments(folder: str, *, gaps: bool = False) -> list[SegmentName]:
    """Return the sealed segments of one rank, oldest first.

    With `gaps`, segments may be missing: for a merge, which names them, and for a rollback.

    Raises
    ------
    NotFoundError
        The folder no longer exists.
    CorruptDataError
        A segment is missing from the series (without `gaps`) or occurs twice, steps do not increase, or a
        name is not one that a worker chooses.
    """
    found = []
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        message = f"{folder!r}, the folder of a rank, is gone: bring it back, or begin a new run folder"
        raise NotFoundError(message, path=folder) from None
    for name in names:
        segment = segment_name(os.path.join(folder, name))
        if segment is None:
            continue
        expected_path = segment_path(folder, segment.sequence, segment.step, segment.cut_from)
        if segment.path != expected_path:
            message = f"{segment.path!r} does not have the name that a worker chose: rename it to"
            advice = f"{os.path.basename(expected_path)!r}, or move it away"
            raise CorruptDataError(f"{message} {advice}", path=segment.path)
        found.append(segment)
    cut = {(one.sequence, one.cut_from) for one in found if one.cut_from is not None}
    found = [one for one in found if (one.sequence, one.step) not in cut]
    found.sort(key=lambda one: (one.sequence, one.step))
    for number, segment in enumerate(found):
        before = found[number - 1] if number else None
        expected = 0 if before is None else before.sequence + 1
        if segment.sequence > expected and not gaps:
            message = (
                f"segment {expected} is missing in {folder!r} although {os.path.basename(segment.path)!r} "
                "is there: bring it back, or roll back to a step before it"
            )
            raise CorruptDataError(message, path=folder)
        if before is not None and (segment.sequence < expected or segment.step <= before.step):
            message = (
                f"{os.path.basename(before.path)!r} and {os.path.basename(segment.path)!r} "
                f"in {folder!r} contradict each other: one was copied there; remove it"
            )
            raise CorruptDataError(message, path=folder)
    return found
