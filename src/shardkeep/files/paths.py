"""What a user means by "these files": a path, a pattern, or several of both."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable

from shardkeep.errors import NotFoundError, PlanError

__all__ = ["PathsLike", "expand"]

PathsLike = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def expand(paths: PathsLike) -> list[str]:
    """Turn paths and patterns into a list of paths, in an order that every process gets.

    Parameters
    ----------
    paths : path, pattern, or iterable of them
        A pattern (``*``, ``?``, ``[``) gives its matches sorted by name, since the order of a folder
        differs between machines. A path that exists is taken as it is, whatever its characters. A
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
        matches = sorted(glob.glob(name))
        if not matches:
            raise NotFoundError(f"{name}: no file matches this pattern", path=name)
        found.extend(matches)
    seen: set[str] = set()
    for name in found:
        if name in seen:
            raise PlanError(f"{name}: named twice; its records would be read twice", path=name)
        seen.add(name)
    return found
