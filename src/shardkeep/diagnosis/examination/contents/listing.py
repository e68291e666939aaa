"""Names and status of all files of some paths, from one pass over their folders."""

from __future__ import annotations

import os
import re
import stat
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from shardkeep.files.leftovers import find_companion
from shardkeep.hdf5.segments.run_folder import is_rank_folder

__all__ = ["Entry", "Identity", "Listing", "by_folder", "list_files", "plain_path"]

Identity = tuple[int, int]
"""Device and inode of a file."""

# Names that programs give to a file before it is whole: browsers, wget, aria2, rsync, rclone.
_UNFINISHED = re.compile(
    r".*\.(part|partial|crdownload|download|incomplete|filepart|aria2|tmp)|\..+\.[A-Za-z0-9]{6}", re.I | re.S
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A regular file, or a link to one.

    Attributes
    ----------
    path : str
    status : os.stat_result
        Status of the file; of a link that of its target.
    is_link : bool
        True for a symbolic link.
    is_named : bool
        True if the path was passed, False if it was found in a folder.
    """

    path: str
    status: os.stat_result
    is_link: bool = False
    is_named: bool = False

    @property
    def name(self) -> str:
        """Name without the folder."""
        return os.path.basename(self.path)

    @property
    def folder(self) -> str:
        """Folder of the name; of a link not that of its target."""
        return os.path.dirname(self.path) or os.curdir

    @property
    def identity(self) -> Identity:
        """Device and inode, the same for all names of a file."""
        return self.status.st_dev, self.status.st_ino

    @property
    def is_unfinished(self) -> bool:
        """True if a program gives such a name to a file until it is whole."""
        return _UNFINISHED.fullmatch(self.name) is not None

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return self.status.st_size


@dataclass
class Listing:
    """The files of some paths.

    Attributes
    ----------
    files : list of Entry
        Files that may hold data, sorted by path.
    companions : list of Entry
        Indexes, lock files, temporary files and others that accompany data, sorted by path.
    folders : dict of str to int
        Each folder, and the number of names in it.
    runs : list of str
        Folders that hold folders of ranks.
    broken : list of (str, str)
        Links without a target, and the target.
    failed : list of (str, OSError)
        Folders and files without access.
    is_complete : bool
        False if the time was too short.
    """

    files: list[Entry] = field(default_factory=list)
    companions: list[Entry] = field(default_factory=list)
    folders: dict[str, int] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)
    broken: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, OSError]] = field(default_factory=list)
    is_complete: bool = True

    def add(self, path: str, status: os.stat_result, *, is_named: bool) -> None:
        """Add a path by its status, which may be that of a link."""
        is_link = stat.S_ISLNK(status.st_mode)
        if is_link:
            try:
                status = os.stat(path)
            except OSError:
                self.broken.append((path, os.readlink(path)))
                return
        if stat.S_ISREG(status.st_mode):
            entry = Entry(path, status, is_link, is_named)
            (self.companions if find_companion(entry.name) else self.files).append(entry)


def by_folder(entries: Iterable[Entry]) -> Iterable[tuple[str, list[Entry]]]:
    """Return the files of each folder."""
    folders: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        folders[entry.folder].append(entry)
    return folders.items()


def plain_path(path: str) -> str:
    """Return a path without ``.``, ``..`` and double slashes, unless a link gives these another meaning.

    Examples
    --------
    >>> plain_path("./data//a.tfrecord")
    'data/a.tfrecord'
    """
    plain = os.path.normpath(path)
    if ".." in path and os.path.realpath(plain) != os.path.realpath(path):
        return path
    return plain


def list_files(paths: Iterable[str], *, until_s: float) -> Listing:
    """Return the files of some paths, and of the folders among them with their sub-folders.

    Hidden sub-folders are left out. Each name costs one system call, and a link two. No file is opened. For
    files that are passed by name their companions are added, which are in the same folder.

    Parameters
    ----------
    paths : iterable of str
    until_s : float
        Value of `time.monotonic` at which the search ends.
    """
    found = Listing()
    named: dict[str, set[str]] = {}
    waiting: list[str] = []
    for path in dict.fromkeys(map(plain_path, paths)):
        if os.path.isdir(path):
            waiting.append(path)
            continue
        try:
            found.add(path, os.lstat(path), is_named=True)
        except OSError as error:
            found.failed.append((path, error))
        named.setdefault(os.path.dirname(path), set()).add(os.path.basename(path))
    while waiting and found.is_complete:
        folder = waiting.pop()
        if folder in found.folders:
            continue
        try:
            waiting += _list_folder(found, folder, until_s)
        except OSError as error:
            found.failed.append((folder, error))
    for folder, names in named.items():
        if folder not in found.folders:
            _add_companions(found, folder, names)
    found.files = _sorted(found.files)
    found.companions = _sorted(found.companions)
    return found


def _list_folder(found: Listing, folder: str, until_s: float) -> list[str]:
    """Add the files of a folder; return its sub-folders."""
    inside: list[str] = []
    found.folders[folder] = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            found.folders[folder] += 1
            if time.monotonic() > until_s:
                found.is_complete = False
                break
            path = entry.path.removeprefix("./")
            try:
                if not entry.is_dir(follow_symlinks=False):
                    found.add(path, entry.stat(follow_symlinks=False), is_named=False)
                elif not entry.name.startswith("."):  # version control, with other versions of the files
                    inside.append(path)
            except FileNotFoundError:
                continue  # removed in the meantime
            except OSError as error:
                found.failed.append((path, error))
    if any(map(is_rank_folder, inside)):
        found.runs.append(folder)
    return inside


def _add_companions(found: Listing, folder: str, names: set[str]) -> None:
    stems = names | {os.path.splitext(name)[0] for name in names}
    try:
        here = os.listdir(folder or os.curdir)
    except OSError:
        return
    for name in here:
        # "train.tfrecord.skidx", and ".train.tfrecord.sk-….sktmp" without its dot.
        plain = name.removeprefix(".")
        if find_companion(name) and any(
            plain[:end] in stems for end, char in enumerate(plain) if char == "."
        ):
            path = os.path.join(folder, name)
            try:
                found.add(path, os.lstat(path), is_named=False)
            except OSError:
                continue


def _sorted(entries: list[Entry]) -> list[Entry]:
    unique = {entry.path: entry for entry in entries}
    return [unique[path] for path in sorted(unique)]
