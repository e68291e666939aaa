"""Files of a merge, found from the folder, paths and patterns of the caller."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shardkeep.errors import FormatError, NotFoundError
from shardkeep.files.paths import expand, path_list
from shardkeep.hdf5.segments.run_folder import is_rank_folder, list_ranks, list_segments

__all__ = ["SourcePlan", "Sources", "find_sources"]

Sources = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@dataclass(frozen=True)
class SourcePlan:
    """One file that is merged; `rank`, `sequence` and `step` are None unless it is a sealed segment."""

    path: str
    rank: int | None = None
    sequence: int | None = None
    step: int | None = None

    @property
    def described(self) -> str:
        """Rank and step, or the path of a plain file."""
        return repr(self.path) if self.rank is None else f"rank {self.rank} (step {self.step})"


def find_sources(sources: Sources) -> tuple[str, list[SourcePlan]]:
    """Return the folder that the files have in common, and the files.

    Parameters
    ----------
    sources : path, pattern, or iterable of them
        A run folder, HDF5 files, or patterns of their names.

    Raises
    ------
    NotFoundError
        The folder does not exist or is empty, or a pattern has no match.
    FormatError
        There is a folder among several paths.
    PlanError
        A file is named twice.
    """
    if isinstance(sources, (str, os.PathLike)) and not os.path.isfile(sources):
        root = os.fspath(sources)
        paths = expand(root)
        if paths == [root]:
            return root, _segments_of(root)
    elif isinstance(sources, (str, os.PathLike)):
        paths = [os.fspath(sources)]
    else:
        given = path_list(sources)
        if not given:
            raise NotFoundError("the list of files to merge is empty: name at least one")
        paths = expand(given)
    if len(paths) == 1 and os.path.isdir(paths[0]):
        return paths[0], _segments_of(paths[0])
    for path in paths:
        if os.path.isdir(path):
            advice = "pass the folder of a run by itself, or only HDF5 files"
            raise FormatError(f"{path!r} is a folder, not an HDF5 file: {advice}", path=path)
    folders = {os.path.dirname(os.path.abspath(path)) for path in paths}
    return os.path.commonpath(folders), [SourcePlan(path) for path in paths]


def _segments_of(root: str) -> list[SourcePlan]:
    if not os.path.exists(root):
        message = f"there is no file or folder {root!r}"
        raise NotFoundError(f"{message}: pass the folder of a run, HDF5 files, or a pattern", path=root)
    ranks = list_ranks(root)
    plans = [
        SourcePlan(segment.path, rank, segment.sequence, segment.step)
        for rank, folder in ranks.items()
        for segment in list_segments(folder, gaps=True)
    ]
    if not plans:
        raise NotFoundError(_nothing_in(root, ranks), path=root)
    return plans


def _nothing_in(root: str, ranks: Mapping[int, str]) -> str:
    if ranks:
        return f"{root!r} has no commit of any rank: there is nothing to merge"
    whole = os.path.abspath(root)
    if is_rank_folder(whole):
        run = os.path.dirname(root) or os.pardir
        return f"{root!r} is the folder of one rank: pass that of the run, {run!r}, or the files in it"
    if any(name.endswith(".h5") for name in os.listdir(root)):
        pattern = os.path.join(root, "*.h5")
        return f"{root!r} has no folders of ranks: for other HDF5 files pass a pattern, {pattern!r}"
    return f"{root!r} has no worker files: there is nothing to merge"
