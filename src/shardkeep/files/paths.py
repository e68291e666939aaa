"""Expansion of paths and patterns into a list of files."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable

from shardkeep.errors import NotFoundError, PlanError
from shardkeep.files.leftovers import is_temporary

__all__ = ["PathsLike", "expand", "find_companion"]

# Files next to data files that hold no data; "train-*" would match them, too.
_COMPANIONS = {
    ".skidx": "an index of Shardkeep",
    ".lock": "a lock file",
    ".readers": "a lock file",
    ".redo": "the redo log of a collector",
    ".collector.json": "the address file of a collector",
    ".spill": "a spill file of a client",
    ".idx": "an index of another reader",
}

PathsLike = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def expand(paths: PathsLike) -> list[str]:
    """Return the paths of some paths and patterns, in the same order in every process.

    Parameters
    ----------
    paths : path, pattern, or iterable of them
        A pattern (``*``, ``?``, ``[``) is replaced by its matches, sorted by name, since the order of a
        folder differs between machines; index, lock and other files that accompany data match only if the
        pattern ends with their suffix. An existing path is never taken for a pattern. A list keeps its order.

    Returns
    -------
    list of str
        The paths. Duplicates are not removed: a file that is named twice is an error.

    Raises
    ------
    NotFoundError
        A pattern has no match, or the list of paths is empty. A plain path need not exist.
    PlanError
        A file is named twice.

    Examples
    --------
    >>> expand(["b.tfrecord", "a.tfrecord"])
    ['b.tfrecord', 'a.tfrecord']
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not given:
        raise NotFoundError("no files: the list of paths is empty")
    found: list[str] = []
    for one in given:
        name = os.fspath(one)
        if not glob.has_magic(name) or os.path.lexists(name):
            found.append(name)
            continue
        matches = sorted(_data_files(glob.glob(name), pattern=name))
        if not matches:
            raise NotFoundError(f"{name}: no file matches this pattern", path=name)
        found.extend(matches)
    seen: set[str] = set()
    for name in found:
        if name in seen:
            raise PlanError(f"{name}: named twice; its records would be read twice", path=name)
        seen.add(name)
    return found


def find_companion(name: str) -> str | None:
    """Return what a file of this name holds, if it accompanies data files; None for any other name.

    Examples
    --------
    >>> find_companion("train.tfrecord.skidx"), find_companion("train.tfrecord")
    ('an index of Shardkeep', None)
    """
    if is_temporary(name):
        return "an unfinished file of a writer"
    return next((described for suffix, described in _COMPANIONS.items() if name.endswith(suffix)), None)


def _data_files(names: list[str], *, pattern: str) -> list[str]:
    return names if find_companion(pattern) else [name for name in names if not find_companion(name)]
