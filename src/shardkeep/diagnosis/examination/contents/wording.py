"""Paths in texts and commands."""

from __future__ import annotations

import os
from collections.abc import Sequence

from shardkeep._paths_in_messages import as_argument
from shardkeep.errors import one_line

__all__ = ["arguments", "listed", "merged_name"]

_NAMED = 3
_MOST_ARGUMENTS = 20


def listed(paths: Sequence[str]) -> str:
    """Return the names of the first files, and the number of the others.

    Examples
    --------
    >>> listed(["data/a", "data/b", "data/c", "data/d", "data/e"])
    'a, b, c and 2 more'
    """
    names = ", ".join(one_line(os.path.basename(path)) for path in paths[:_NAMED])
    more = len(paths) - _NAMED
    return f"{names} and {more:,} more" if more > 0 else names


def arguments(paths: Sequence[str]) -> str | None:
    """Return paths as arguments for a shell; None if they are too many for a command to be read."""
    return None if len(paths) > _MOST_ARGUMENTS else " ".join(map(as_argument, paths))


def merged_name(run: str) -> str:
    """Return a name for the merged file of a run, next to its folder, as an argument for a shell.

    Examples
    --------
    >>> merged_name("out/run/")
    'out/run.h5'
    """
    plain = run.rstrip("/")
    is_named = os.path.basename(plain) not in ("", os.curdir, os.pardir)
    return as_argument(f"{plain if is_named else os.path.abspath(run)}.h5")
