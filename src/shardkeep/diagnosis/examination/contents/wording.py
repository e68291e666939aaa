"""Paths in texts and commands."""

from __future__ import annotations

import os
from collections.abc import Sequence

from shardkeep._paths_in_messages import as_argument
from shardkeep.errors import one_line
from shardkeep.quantities import listed

__all__ = ["arguments", "merged_name", "named"]

_NAMED = 3
_MOST_ARGUMENTS = 20


def named(paths: Sequence[str]) -> str:
    """Return the names of the first files, and the number of the others.

    Examples
    --------
    >>> named(["data/a", "data/b", "data/c", "data/d", "data/e"])
    'a, b, c and 2 more'
    """
    return listed((one_line(os.path.basename(path)) for path in paths[:_NAMED]), len(paths))


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
