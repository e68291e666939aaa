"""Folders below the roots that belong together: runs, and the shards that a run read."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Iterator, Sequence

from shardkeep.hdf5.segments.run_folder import is_rank_folder
from shardkeep.plan import Dataset
from shardkeep.viewer.locations import Location

__all__ = ["folder_of_shards", "is_run", "location_of_shard", "runs_below"]

_DEEPEST = 3
_MOST_ENTRIES = 20_000


def is_run(path: str) -> bool:
    """Return whether a folder has the folder of a rank, or a file of a collector, among its first entries."""
    try:
        with os.scandir(path) as entries:
            for number, entry in enumerate(entries):
                if is_rank_folder(entry.path) or entry.name.endswith(".collector.json"):
                    return True
                if number >= 1000:
                    return False
    except OSError:
        return False
    return False


def runs_below(roots: Sequence[Location]) -> list[Location]:
    """Return the run folders among the folders at and below the roots, without those behind links."""
    return [folder for folder in _folders(roots) if is_run(folder.path)]


def folder_of_shards(roots: Sequence[Location], data: Dataset) -> Location | None:
    """Return the folder at or below the roots with the shards of a data set; None if there is none.

    The first, middle and last shard must be there, with their sizes if these are known.
    """
    count = len(data.shards)
    numbers = sorted({0, count // 2, count - 1}) if count else []
    return next((folder for folder in _folders(roots) if numbers and _has(folder, data, numbers)), None)


def location_of_shard(folder: Location, name: str) -> Location | None:
    """Return the location of a shard by its name in a receipt; None if it leads out of the root."""
    for part in name.split("/"):
        if part in ("", ".", ".."):
            return None
        folder = folder.child(part)
    return None if folder.leads_out else folder


def _has(folder: Location, data: Dataset, numbers: Sequence[int]) -> bool:
    for number in numbers:
        shard = location_of_shard(folder, data.shards[number])
        try:
            size_bytes = -1 if shard is None else os.stat(shard.path).st_size
        except OSError:
            return False
        if size_bytes < 0 or (data.sizes and size_bytes != data.sizes[number]):
            return False
    return True


def _folders(roots: Sequence[Location]) -> Iterator[Location]:
    """Yield the folders at and below the roots, the nearest first, but not those of ranks."""
    waiting = deque(root for root in roots if root.is_folder)
    seen = 0
    while waiting and seen < _MOST_ENTRIES:
        folder = waiting.popleft()
        yield folder
        if len(folder.parts) == _DEEPEST:
            continue
        try:
            with os.scandir(folder.path) as entries:
                found = list(itertools.islice(entries, _MOST_ENTRIES - seen))
            seen += len(found)
            names = [one.name for one in found if one.is_dir(follow_symlinks=False)]
            waiting += [folder.child(one) for one in sorted(names) if not one.startswith(("rank-", "."))]
        except OSError:
            continue
