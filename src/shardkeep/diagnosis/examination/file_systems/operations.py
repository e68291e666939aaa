"""Operations that try out a file system, in the scratch folder that is the working directory.

Each takes the other processes, and returns True if the file system does what it must, or what was measured.
Functions without an underscore run in another process, which may be one of another host.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import time
from collections.abc import Sequence
from typing import Any

from shardkeep.diagnosis.examination.file_systems.peers import Peer

__all__ = ["OPERATIONS", "SHARED", "add_to_map", "create", "read", "try_lock", "write"]

_SYNCED_BYTES = 1 << 20
_LOCKS = {"flock": fcntl.flock, "posix_lock": fcntl.lockf}
_HELD = (errno.EAGAIN, errno.EACCES)


def write(name: str, data: bytes = b"") -> None:
    """Write a file."""
    with open(name, "wb") as file:
        file.write(data)


def create(name: str) -> None:
    """Create a file that does not exist."""
    os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def read(name: str) -> str:
    """Return the text of a file."""
    with open(name, encoding="ascii") as file:
        return file.read()


def try_lock(kind: str, name: str) -> None:
    """Take and release a lock, without waiting."""
    with open(name, "r+b") as file:
        _LOCKS[kind](file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def add_to_map(name: str) -> bool:
    """Return True if a mapped file has what the first process wrote to it; write a second byte."""
    with open(name, "r+b") as file, mmap.mmap(file.fileno(), 0) as second:
        if second[0] != 1:
            return False
        second[1] = 2
        return True


def _create_exclusively(peers: Sequence[Peer]) -> bool:
    """Return True if a file that exists cannot be created again."""
    create("exclusive")
    return peers[0].failure(create, "exclusive") == errno.EEXIST


def _clock(_: Sequence[Peer]) -> dict[str, Any]:
    """Return how far the clock of the file server is ahead, and whether its times are whole seconds."""
    times = []
    skews = []
    for number in range(3):
        before_s = time.time()
        with open(f"clock-{number}", "wb") as file:
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
        after_s = time.time()
        at_ns = os.stat(f"clock-{number}").st_mtime_ns
        times.append(at_ns)
        # The kernel takes the time of its last tick, up to 10 ms ago.
        early, late = at_ns / 1e9 - before_s + 0.02, at_ns / 1e9 - after_s
        skews.append(early if early < 0 else max(late, 0.0))
    return {"skew_s": min(skews, key=abs), "is_coarse": all(one % 1_000_000_000 == 0 for one in times)}


def _excludes(kind: str, peer: Peer) -> bool:
    with open("locked", "wb") as mine:
        _LOCKS[kind](mine.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        refused = peer.failure(try_lock, kind, "locked")
        _LOCKS[kind](mine.fileno(), fcntl.LOCK_UN)
        return refused in _HELD and peer.failure(try_lock, kind, "locked") == 0


def _flock(peers: Sequence[Peer]) -> bool:
    """Return True if `flock` excludes another process, until it is unlocked."""
    return _excludes("flock", peers[0])


def _posix_lock(peers: Sequence[Peer]) -> bool:
    """Return True if a lock by fcntl excludes another process, until it is unlocked."""
    return _excludes("posix_lock", peers[0])


def _replace(peers: Sequence[Peer]) -> bool:
    """Return True if a rename replaces a file, and an open file keeps its old content."""
    write("old", b"old")
    write("new", b"new")
    with open("old", "rb") as reader:
        os.rename("new", "old")
        kept = reader.read()
    return kept == b"old" and not os.path.exists("new") and peers[0].call(read, "old") == "new"


def _link(_: Sequence[Peer]) -> bool:
    """Return True if a hard link is made, and not over a file that exists."""
    write("linked")
    os.link("linked", "second-name")
    try:
        os.link("linked", "second-name")
    except FileExistsError:
        return os.path.samefile("linked", "second-name")
    return False


def _shared_map(peers: Sequence[Peer]) -> bool:
    """Return True if two processes that map a file see what the other writes."""
    write("mapped", bytes(mmap.PAGESIZE))
    with open("mapped", "r+b") as file, mmap.mmap(file.fileno(), 0) as first:
        first[0] = 1
        return bool(peers[0].call(add_to_map, "mapped")) and first[1] == 2


def _sync(_: Sequence[Peer]) -> float:
    """Return the seconds that a sync of 1 MiB and of its folder takes."""
    with open("synced", "wb") as file:
        file.write(os.urandom(_SYNCED_BYTES))
        file.flush()
        start_s = time.monotonic()
        os.fsync(file.fileno())
    folder = os.open(".", os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return time.monotonic() - start_s


def _names(_: Sequence[Peer]) -> dict[str, Any]:
    """Return the longest length of a name, and whether upper and lower case differ."""
    write("case")
    return {"longest": os.pathconf(".", "PC_NAME_MAX"), "case_matters": not os.path.exists("CASE")}


# Those that mean something between two hosts as well.
SHARED = (_create_exclusively, _replace, _posix_lock, _flock)
OPERATIONS = (
    _create_exclusively,
    _clock,
    _replace,
    _link,
    _names,
    _sync,
    _shared_map,
    _posix_lock,
    _flock,
)
