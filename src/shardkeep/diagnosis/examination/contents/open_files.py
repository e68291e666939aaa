"""Processes that have files of a job open, from one pass over ``/proc``, and the state of its lock files."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import stat
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from shardkeep.diagnosis.examination.contents.listing import Entry, Identity, Listing
from shardkeep.diagnosis.examination.subject import Subject
from shardkeep.files.locks.holder import is_gone, read_holders
from shardkeep.hdf5.locking.holders import Holder, add_opener, descriptors, kernel_locks

__all__ = ["LockFiles", "OpenFiles", "find_open_files"]

_DELETED = " (deleted)"
# Memory of processes that has the form of a file.
_NO_FILES = ("/memfd:", "/dev/", "/SYSV", "/anon_hugepage")


@dataclass
class OpenFiles:
    """Open files of the visible processes.

    Attributes
    ----------
    holders : dict of Identity to list of Holder
        Processes that have a file of the job open, and their mode.
    deleted : dict of int to dict of Identity to int
        Bytes of each deleted file that a process has open on the file systems of the job, by process.
    is_complete : bool
        False if the time was too short for all processes.
    """

    holders: dict[Identity, list[Holder]] = field(default_factory=dict)
    deleted: dict[int, dict[Identity, int]] = field(default_factory=dict)
    is_complete: bool = True


def find_open_files(listing: Listing, subject: Subject) -> OpenFiles:
    """Return which process has which file of a listing open; those of another user are seen by root only.

    A descriptor is first compared by its name: the status of a file on a server that does not answer would
    not return.
    """
    entries = [*listing.files, *listing.companions]
    wanted = {entry.identity for entry in entries}
    names = set(map(_real_name, entries))
    devices = {os.stat(folder).st_dev for folder in subject.folders if os.path.isdir(folder)}
    found: defaultdict[Identity, dict[int, Holder]] = defaultdict(dict)
    result = OpenFiles()
    until_s = time.monotonic() + subject.left_s / 3
    for pid, link in descriptors():
        if time.monotonic() > until_s:
            result.is_complete = False
            break
        with contextlib.suppress(OSError):
            target = os.readlink(link)
            if target.endswith(_DELETED):
                if target.startswith("/") and not target.startswith(_NO_FILES):
                    _add_deleted(result, pid, os.stat(link), devices)
            elif os.path.basename(target) in names:
                status = os.stat(link)
                identity = status.st_dev, status.st_ino
                if identity in wanted:
                    add_opener(found[identity], pid, link)
    result.holders = {identity: list(by_pid.values()) for identity, by_pid in found.items() if by_pid}
    return result


def _real_name(entry: Entry) -> str:
    try:
        return os.path.basename(os.readlink(entry.path)) if entry.is_link else entry.name
    except OSError:
        return entry.name  # replaced in the meantime


def _add_deleted(result: OpenFiles, pid: int, status: os.stat_result, devices: set[int]) -> None:
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 0 and status.st_dev in devices:
        files = result.deleted.setdefault(pid, {})
        files[status.st_dev, status.st_ino] = status.st_blocks * 512


@dataclass
class LockFiles:
    """State of the lock files in a listing.

    Attributes
    ----------
    locked : set of Identity
        Files that the kernel has a lock on.
    entries : dict of str to Entry
        Lock files by path.
    """

    locked: set[Identity] = field(default_factory=set)
    entries: dict[str, Entry] = field(default_factory=dict)

    @classmethod
    def of(cls, listing: Listing) -> LockFiles:
        """Return those of a listing."""
        found = {entry.path: entry for entry in listing.companions if entry.name.endswith(".lock")}
        return cls(set(kernel_locks()) if found else set(), found)

    def is_held(self, path: str) -> bool:
        """Return True if a process holds the lock of a path, or may hold it on another host."""
        entry = self.entries.get(f"{path}.lock")
        if entry is None:
            return False
        return entry.identity in self.locked or not all(map(is_gone, read_holders(entry.path)))

    def abandoned(self) -> list[tuple[Entry, dict[str, Any]]]:
        """Return the lock files of processes that have ended, each with its newest entry."""
        return [(entry, holders[0]) for entry, holders in self._unlocked if all(map(is_gone, holders))]

    def of_other_hosts(self) -> list[tuple[Entry, dict[str, Any]]]:
        """Return the lock files of which only another host can say whether they are held."""
        here = socket.gethostname()
        return [
            (entry, holder)
            for entry, holders in self._unlocked
            for holder in [next((one for one in holders if one["host"] != here), None)]
            if holder is not None
        ]

    @functools.cached_property
    def _unlocked(self) -> list[tuple[Entry, list[dict[str, Any]]]]:
        unlocked = (entry for entry in self.entries.values() if entry.identity not in self.locked)
        pairs = ((entry, read_holders(entry.path)) for entry in unlocked)
        return [(entry, holders) for entry, holders in pairs if holders]
