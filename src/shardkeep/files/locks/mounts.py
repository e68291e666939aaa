r"""Mounted file systems of this process, from ``/proc/self/mountinfo`` (proc(5)).

The fields of a line that are used here::

    36 35 98:0 /sub /mnt/data rw,noatime master:1 - nfs4 server:/data rw,vers=4.2
    id              point     options               kind source       options

Spaces, tabs, newlines and backslashes in names are written as ``\040`` and the like. A mount can hide another
one on the same point, or be visible only from another root. A folder is therefore matched by the mount id
that the kernel reports for it (``/proc/self/fdinfo``), and by the longest mount point only without one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Mount", "mount_at", "mount_of", "parse_mountinfo"]

_MOUNTINFO = "/proc/self/mountinfo"
_ESCAPE = re.compile(r"\\([0-7]{3})")
_MOUNT_ID = re.compile(rb"^mnt_id:\s*(\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Mount:
    """One mounted file system.

    Parameters
    ----------
    number : int
        Id of the mount in the kernel.
    point : str
        Mount point, as seen from the root of this process.
    kind : str
        Type of the file system, such as "ext4", "nfs4", "fuse.sshfs".
    source : str
        Mounted device, ``server:/path``, or any text that the file system sets.
    options : tuple of str
        Options of the mount, then of the file system, such as "rw" and "local_lock=none".
    """

    number: int
    point: str
    kind: str
    source: str
    options: tuple[str, ...]

    def option(self, name: str) -> str | None:
        """Return the value of ``name=value``, "" for a bare ``name``, None if the option is not set.

        Examples
        --------
        >>> mount = Mount(1, "/data", "nfs4", "host:/data", ("rw", "local_lock=flock"))
        >>> mount.option("local_lock"), mount.option("rw"), mount.option("nolock")
        ('flock', '', None)
        """
        for option in reversed(self.options):
            found, _, value = option.partition("=")
            if found == name:
                return value
        return None


def parse_mountinfo(text: str) -> list[Mount]:
    r"""Return the mounts that `text` lists, in its order; lines of another form are ignored.

    Examples
    --------
    >>> line = r"36 27 0:45 / /mnt/my\040data rw,relatime shared:7 - fuse.sshfs host:/x rw,user_id=0"
    >>> mount, = parse_mountinfo(line)
    >>> mount.point, mount.kind, mount.source
    ('/mnt/my data', 'fuse.sshfs', 'host:/x')
    """
    mounts = []
    for line in text.split("\n"):
        # A single space separates the fields; a source may be empty, so there can be two in a row.
        fields = line.split(" ")
        try:
            dash = fields.index("-", 6)
            number, point, options = int(fields[0]), fields[4], fields[5]
            kind, source, more = fields[dash + 1 : dash + 4]
        except ValueError:
            continue
        mounts.append(
            Mount(number, _plain(point), kind, _plain(source), (*options.split(","), *more.split(",")))
        )
    return mounts


def mount_at(path: str, mounts: Sequence[Mount]) -> Mount | None:
    """Return the mount with the longest point above `path`; the last of several on one point.

    Parameters
    ----------
    path : str
        An absolute path without symbolic links.
    mounts : sequence of Mount
        Mounts in the order of the kernel.

    Examples
    --------
    >>> root, data = (Mount(n, p, "ext4", "/dev/sda", ()) for n, p in enumerate(["/", "/data"]))
    >>> mount_at("/data/run/a.h5", [root, data]) is data, mount_at("/database", [root, data]) is root
    (True, True)
    """
    best: Mount | None = None
    for mount in mounts:
        above = mount.point.rstrip("/")
        if (path == above or path.startswith(above + "/")) and (
            best is None or len(mount.point) >= len(best.point)
        ):
            best = mount
    return best


def mount_of(folder: str) -> Mount | None:
    """Return the mount of `folder`; None if the system has no list of mounts (macOS).

    Parameters
    ----------
    folder : str
        An existing folder.
    """
    try:
        with open(_MOUNTINFO, encoding="utf-8", errors="surrogateescape") as file:
            mounts = parse_mountinfo(file.read())
    except OSError:
        return None
    number = _mount_number(folder)
    for mount in mounts:
        if mount.number == number:
            return mount
    return mount_at(os.path.realpath(folder), mounts)


def _mount_number(folder: str) -> int | None:
    try:
        # The dot triggers an automounter; the mount point alone would be of autofs.
        inside = os.path.join(folder, ".")
        fd = os.open(inside, getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC)
        try:
            with open(f"/proc/self/fdinfo/{fd}", "rb") as file:
                found = _MOUNT_ID.search(file.read())
        finally:
            os.close(fd)
    except OSError:
        return None
    return None if found is None else int(found[1])


def _plain(name: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), name)
