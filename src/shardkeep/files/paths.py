"""Expansion of paths and patterns into a list of files."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable

from shardkeep.errors import NotFoundError, PlanError

__all__ = ["PathsLike", "expand"]

# Suffixes of Shardkeep's own files in the folder of a shard, which "train-*" would match too.
_OURS = (".skidx", ".lock")

PathsLike = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def expand(paths: PathsLike) -> list[str]:
    """Return the paths of some paths and patterns, in the same order in every process.

    Parameters
    ----------
    paths : path, pattern, or iterable of them
        A pattern (``*``, ``?``, ``[``) is replaced by its matches, sorted by name, since the order of a
        folder differs between machines; index and lock files in the folder of the data match only if the
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


def _data_files(names: list[str], *, pattern: str) -> list[str]:
    return names if pattern.endswith(_OURS) else [name for name in names if not name.endswith(_OURS)]
