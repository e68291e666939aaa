"""Paths at which no file can be written: folders, devices, named pipes and sockets.

A publication renames a finished file over the old one. Over ``/dev/null``, or over a pipe that another
process reads, the rename would succeed and break every other user of that name; a write in place would block
or lose the bytes. Every writer therefore refuses such a path before it changes anything.
"""

from __future__ import annotations

import os
import stat

from shardkeep.errors import ExistsError, ShardkeepError

__all__ = ["describe_special", "refuse_mode", "refuse_special"]

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def describe_special(mode: int) -> str | None:
    """Return the kind of a file that is not a regular one, from its mode; None for a regular file or a link.

    Examples
    --------
    >>> describe_special(os.stat(os.devnull).st_mode)
    'a device'
    """
    return _KINDS.get(stat.S_IFMT(mode))


def refuse_special(path: str, error: type[ShardkeepError] = ExistsError) -> None:
    """Raise `error` unless the path is that of a regular file, of a link to one, or free."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # free, or the open reports the error
    refuse_mode(path, mode, error)


def refuse_mode(path: str, mode: int, error: type[ShardkeepError] = ExistsError) -> None:
    """Raise `error` if the mode at `path` is not that of a regular file or a link."""
    kind = describe_special(mode)
    if kind is None:
        return
    advice = (
        "pass the path of a file in it" if stat.S_ISDIR(mode) else "pass the path of a regular or a new file"
    )
    raise error(f"{path!r} is {kind}: {advice}", path=path)
