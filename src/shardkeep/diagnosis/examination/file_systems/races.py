"""Operations that take seconds: many processes at the same names, locks and files; and speed.

As in `operations`, functions without an underscore run in another process. The races last for a time, not for
a number of steps, so that a slow storage takes no longer. Results of races have the keys "tried" and "wrong".
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from shardkeep.diagnosis.examination.file_systems.operations import create, try_lock, write
from shardkeep.diagnosis.examination.file_systems.peers import Peer
from shardkeep.files.publish import publish

__all__ = [
    "RACES",
    "SPEED",
    "compete",
    "count_up",
    "die_with_lock",
    "is_absent",
    "read_appended",
    "read_versions",
    "wait_for_name",
]

_RACE_S = 0.5
_NAMES = 200
_VERSION_BYTES = 32 << 10
_BLOCK_BYTES = 64 << 10
_BLOCKS = 32
_PATIENCE_S = 15.0
# NFS keeps the names of a folder for up to 60 s (acdirmax).
_VISIBLE_S = 70.0
_POLL_S = 0.005
_LARGE_BYTES = 128 << 20
_CHUNK = bytes(range(256)) * (4 << 12)
_SMALL_BYTES = 4096


def compete(kind: str, racer: int) -> dict[str, Any]:
    """Create names one after the other against other processes; return how many were tried, and those won."""
    own, wins, tried = f"{kind}-by-{racer}", [], 0
    write(own)
    until_s = time.monotonic() + _RACE_S
    while tried < _NAMES and time.monotonic() < until_s:
        name = f"{kind}-{tried}"
        with contextlib.suppress(
            FileExistsError, PermissionError
        ):  # SFTP has no number for a name that exists
            if kind == "link":
                os.link(own, name)
            else:
                create(name)
            wins.append(tried)
        tried += 1
    return {"tried": tried, "wins": wins}


def _compete(kind: str, peers: Sequence[Peer]) -> dict[str, int]:
    for racer, peer in enumerate(peers, 1):
        peer.start(compete, kind, racer)
    found = [compete(kind, 0), *(peer.result() for peer in peers)]
    winners = Counter(name for one in found for name in one["wins"])
    tried = max(one["tried"] for one in found)
    return {"tried": tried, "wrong": sum(winners[name] != 1 for name in range(tried))}


def _create_race(peers: Sequence[Peer]) -> dict[str, int]:
    """Count the names that were created with O_EXCL by none or by several of the processes."""
    return _compete("create", peers)


def _link_race(peers: Sequence[Peer]) -> dict[str, int]:
    """Count the names that were linked by none or by several of the processes."""
    return _compete("link", peers)


def read_versions(name: str) -> dict[str, int]:
    """Read a file that is replaced all the time; count what is not one whole version."""
    tried = wrong = 0
    until_s = time.monotonic() + _RACE_S
    while time.monotonic() < until_s:
        tried += 1
        try:
            with open(name, "rb") as file:
                data = file.read()
        except OSError:  # no file, or one that the server has forgotten (ESTALE)
            wrong += 1
        else:
            wrong += len(data) != _VERSION_BYTES or data.count(data[:1]) != _VERSION_BYTES
    return {"tried": tried, "wrong": wrong}


def _replace_race(peers: Sequence[Peer]) -> dict[str, int]:
    """Count the reads, by all other processes, that found no whole version of a file that renames replace."""
    write("current", bytes(_VERSION_BYTES))
    for peer in peers:
        peer.call(wait_for_name, "current")
    for peer in peers:
        peer.start(read_versions, "current")
    until_s, number = time.monotonic() + _RACE_S, 0
    while time.monotonic() < until_s:
        number += 1
        write("next", bytes([number % 256]) * _VERSION_BYTES)
        os.replace("next", "current")
    found = [peer.result() for peer in peers]
    return {key: sum(one[key] for one in found) for key in ("tried", "wrong")}


def count_up(name: str) -> int:
    """Add one to the number in a file under a lock, again and again; return how many times."""
    done = 0
    fd = os.open(name, os.O_RDWR)
    try:
        until_s = time.monotonic() + _RACE_S
        while time.monotonic() < until_s:
            fcntl.flock(fd, fcntl.LOCK_EX)
            number = int(os.pread(fd, 20, 0))
            time.sleep(0)  # where the lock has no effect, another process reads the same number now
            os.pwrite(fd, b"%020d" % (number + 1), 0)
            fcntl.flock(fd, fcntl.LOCK_UN)
            done += 1
    finally:
        os.close(fd)
    return done


def _counter(peers: Sequence[Peer]) -> dict[str, int]:
    """Count the changes of a number that were lost although each was made under a lock."""
    write("counter", b"%020d" % 0)
    for peer in peers:
        peer.start(count_up, "counter")
    tried = count_up("counter") + sum(peer.result() for peer in peers)
    try_lock("flock", "counter")  # the lock of the reader: a network file system then shows the last change
    with open("counter", "rb") as file:
        return {"tried": tried, "wrong": abs(tried - int(file.read()))}


def die_with_lock(name: str) -> None:
    """Let a child take a lock, and kill it."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with open(name, "r+b") as file:
                fcntl.flock(file.fileno(), fcntl.LOCK_EX)
                os.write(write_end, b"x")
                signal.pause()
        finally:
            os._exit(1)
    os.close(write_end)
    os.read(read_end, 1)  # or the end of the child, where locks fail
    os.close(read_end)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _dead_lock(peers: Sequence[Peer]) -> float | None:
    """Return the seconds until the lock of a killed process is free; None if it stays."""
    write("of-the-dead")
    peers[0].call(die_with_lock, "of-the-dead")
    start_s = time.monotonic()
    while (passed_s := time.monotonic() - start_s) < _PATIENCE_S:
        try:
            try_lock("flock", "of-the-dead")
        except BlockingIOError:
            time.sleep(_POLL_S)
        else:
            return passed_s
    return None


def read_appended(name: str) -> dict[str, int]:
    """Read a file while it grows; count its blocks, and those that are wrong or never came."""
    wait_for_name(name)
    at = wrong = 0
    with open(name, "rb") as file:
        until_s = time.monotonic() + _PATIENCE_S
        while at < _BLOCKS and time.monotonic() < until_s:
            if os.fstat(file.fileno()).st_size < (at + 1) * _BLOCK_BYTES:
                time.sleep(_POLL_S)
                continue
            data = os.pread(file.fileno(), _BLOCK_BYTES, at * _BLOCK_BYTES)
            wrong += data != bytes([at + 1]) * _BLOCK_BYTES
            at += 1
    return {"tried": _BLOCKS, "wrong": wrong + _BLOCKS - at}


def _append(peers: Sequence[Peer]) -> dict[str, int]:
    """Count the blocks of a growing file that another process read wrong, or not at all."""
    peers[0].start(read_appended, "growing")
    with open("growing", "ab", buffering=0) as file:
        for number in range(_BLOCKS):
            file.write(bytes([number + 1]) * _BLOCK_BYTES)
            time.sleep(_POLL_S)
        os.fsync(file.fileno())
    return dict(peers[0].result())


def is_absent(name: str) -> bool:
    """Return True if there is no file of that name; the file system may remember this."""
    return not os.path.exists(name) and name not in os.listdir()


def wait_for_name(name: str) -> bool:
    """Return True when a file exists and its folder lists it; False if that takes too long."""
    until_s = time.monotonic() + _VISIBLE_S
    while time.monotonic() < until_s:
        if os.path.exists(name) and name in os.listdir():
            return True
        time.sleep(_POLL_S)
    return False


def _visible(peers: Sequence[Peer]) -> float | None:
    """Return the seconds until another process sees a new file that it had found missing; None if never."""
    peers[0].call(is_absent, "appeared")
    with publish("appeared") as file:
        file.write(b"x")
    start_s = time.monotonic()
    return time.monotonic() - start_s if peers[0].call(wait_for_name, "appeared") else None


def _sequential(_: Sequence[Peer]) -> dict[str, float]:
    """Return the bytes per second of writing a large file, fsync included, and of reading it again."""
    size, start_s = 0, time.monotonic()
    fd = os.open("large", os.O_RDWR | os.O_CREAT)
    try:
        while size < _LARGE_BYTES and time.monotonic() - start_s < 2 * _RACE_S:
            size += os.write(fd, _CHUNK)
        os.fsync(fd)
        written_s = time.monotonic() - start_s
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        start_s, at = time.monotonic(), 0
        while at < size and time.monotonic() - start_s < 2 * _RACE_S:
            at += len(os.pread(fd, len(_CHUNK), at))
        read_s = time.monotonic() - start_s
    finally:
        os.close(fd)
        os.unlink("large")
    return {"write": size / written_s, "read": at / read_s}


def _small_files(_: Sequence[Peer]) -> dict[str, float]:
    """Return how many small files are published in a second, each synced, and how many are read."""
    made, start_s = 0, time.monotonic()
    while (written_s := time.monotonic() - start_s) < _RACE_S:
        with publish(f"small-{made}") as file:
            file.write(_CHUNK[:_SMALL_BYTES])
        made += 1
    start_s = time.monotonic()
    for number in range(made):
        with open(f"small-{number}", "rb") as small:
            small.read()
    return {"write": made / written_s, "read": made / (time.monotonic() - start_s)}


RACES = (_create_race, _link_race, _replace_race, _counter, _dead_lock, _append, _visible)
SPEED = (_sequential, _small_files)
