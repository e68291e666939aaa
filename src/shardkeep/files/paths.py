"""Expansion of paths and patterns into a list of files."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable, Mapping

from shardkeep.errors import NotFoundError, PlanError
from shardkeep.files.kinds.urls import is_pattern, is_url, path_or_url
from shardkeep.files.leftovers import find_companion
from shardkeep.files.remote.copies import matching

__all__ = ["PathsLike", "expand", "path_list", "size_of"]

PathsLike = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def size_of(path: str) -> int:
    """Return the size of a file in bytes, or 0 if it cannot be read."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def expand(paths: PathsLike) -> list[str]:
    """Return the paths of some paths and patterns, in the same order in every process.

    Parameters
    ----------
    paths : path, pattern, or iterable of them
        A pattern (``*``, ``?``, ``[``), also of URLs, is replaced by its matches, sorted by name, since the
        order of a folder differs between machines; index, lock and other files that accompany data match
        only if the pattern ends with their suffix. An existing path is never taken for a pattern. A list
        keeps its order.

    Returns
    -------
    list of str
        The paths. Duplicates are not removed: a file that is named twice is an error, also under two names
        (links, ``a/../b``, relative and absolute).

    Raises
    ------
    NotFoundError
        A pattern has no match, or the list of paths is empty. A plain path need not exist.
    PlanError
        A file is named twice, and is not empty; or `paths` is not a path.
    RemoteError, MissingExtraError
        The store of a pattern of URLs cannot be listed.

    Examples
    --------
    >>> expand(["b.tfrecord", "a.tfrecord"])
    ['b.tfrecord', 'a.tfrecord']
    """
    given = path_list(paths)
    if not given:
        raise NotFoundError("no files: the list of paths is empty")
    found: list[str] = []
    for one in given:
        name = path_or_url(one)
        if is_url(name):
            found += [info.url for info in matching(name)] if is_pattern(name) else [name]
            continue
        if not glob.has_magic(name) or os.path.lexists(name):
            found.append(name)
            continue
        matches = sorted(_data_files(glob.glob(name), pattern=name))
        if not matches:
            raise NotFoundError(f"{name}: no file matches this pattern", path=name)
        found.extend(matches)
    _refuse_repeats(found)
    return found


def _refuse_repeats(names: list[str]) -> None:
    seen: dict[str | tuple[int, int | str], str] = {}
    for name in names:
        for identity in _identities(name):
            before = seen.get(identity)
            if before is not None:
                what = f"{name!r} is" if before == name else f"{name!r} and {before!r} are one file, which is"
                advice = "its contents would be read twice; name it once"
                raise PlanError(f"{what} named twice: {advice}", path=name)
            seen[identity] = name


def _identities(name: str) -> list[str | tuple[int, int | str]]:
    try:
        status = os.stat(name)
    except OSError:  # also a URL
        return [name]  # its reader raises the error
    # Not only the name: a hard link is the same file. Stores that keep equal contents once link all empty
    # shards to one file, of which nothing is read twice. Not every mount numbers its files.
    same = status.st_dev, status.st_ino or os.path.realpath(name)
    return [name, same] if status.st_size or not stat.S_ISREG(status.st_mode) else [name]


def path_list(paths: PathsLike) -> list[str | os.PathLike[str]]:
    """Return one path, or several, as a list.

    Raises
    ------
    PlanError
        It is neither a path nor a list, or another iterable, of paths.
    """
    if isinstance(paths, (str, bytes, os.PathLike)):
        return [paths]
    # The keys of a mapping (a receipt, an h5py.File) and the lines of an open file are not paths.
    if not isinstance(paths, Iterable) or isinstance(paths, Mapping) or hasattr(paths, "read"):
        raise PlanError(f"a path must be a str or os.PathLike, or several in a list, not {paths!r:.60}")
    return list(paths)


def _data_files(names: list[str], *, pattern: str) -> list[str]:
    return names if find_companion(pattern) else [name for name in names if not find_companion(name)]
