"""What a user means by "these files": a path, a pattern, or several of both."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable

from shardkeep.errors import NotFoundError, PlanError

__all__ = ["PathsLike", "expand"]

# What this library itself puts beside a shard, which "train-*" would match too.
_OURS = (".skidx", ".lock")

PathsLike = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def expand(paths: PathsLike) -> list[str]:
    """Turn paths and patterns into a list of paths, in an order that every process gets.

    Parameters
    ----------
    paths : path, pattern, or iterable of them
        A pattern (``*``, ``?``, ``[``) gives its matches sorted by name, since the order of a folder
        differs between machines; the index and lock files beside the data are not among them unless the
        pattern ends like their names. A path that exists is taken as it is, whatever its characters. A
        list keeps its own order.

    Returns
    -------
    list of str
        Without duplicates removed: naming a file twice is an error.

    Raises
    ------
    NotFoundError
        A pattern without a match, or no path at all. A plain path is not looked up here.
    PlanError
        A file that is named twice.

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
