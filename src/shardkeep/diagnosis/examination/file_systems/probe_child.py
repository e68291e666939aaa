"""Child process that tries out a file system with scratch files.

It makes one hidden folder, in which a second process tries out one operation after the other, and a third one
where an operation needs two. The first process only waits: for the end of the second, for the time limit, and
for the end of standard input, which comes when the examination ends in any way, also by SIGKILL. Then it
kills the others, so that an operation that hangs does not outlive it, and removes the folder.

Standard output has a line of JSON before each operation, ``{"operation": name}``, and one after it with
``"result"``, or with ``"error"``, the number of the error. A first line ``{"folder": number}`` is the error
of a folder in which nothing can be made.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import mmap
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from typing import Any

__all__ = ["PREFIX", "probe"]

PREFIX = ".shardkeep-doctor-"
_SYNCED_BYTES = 1 << 20
_END_S = 1.0


def probe(folder: str, limit_s: float) -> int:
    """Try out the file system of a folder; return the exit code of the process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the end of standard input comes then
    try:
        scratch = tempfile.mkdtemp(prefix=PREFIX, dir=folder)
    except OSError as error:
        _send({"folder": error.errno})
        return 0
    try:
        ended, ends = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(ended)
                os.setpgid(0, 0)
                os.chdir(scratch)
                _try_all()
                code = 0
            finally:
                os._exit(code)
        with contextlib.suppress(OSError):
            os.setpgid(child, child)  # in both processes: whichever comes first
        os.close(ends)
        select.select([0, ended], [], [], limit_s)
        _end(child)
    finally:
        _remove(scratch)
    return 0


def _end(child: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(child, signal.SIGKILL)
    until_s = time.monotonic() + _END_S
    # A process that waits for a dead file server may ignore even SIGKILL.
    while os.waitpid(child, os.WNOHANG) == (0, 0) and time.monotonic() < until_s:
        time.sleep(0.005)


def _remove(scratch: str) -> None:
    until_s = time.monotonic() + _END_S
    # On NFS a file that a killed process still has open keeps its folder for a moment.
    while os.path.lexists(scratch) and time.monotonic() < until_s:
        shutil.rmtree(scratch, ignore_errors=True)
        time.sleep(0.005)


def _try_all() -> None:
    for operation in _OPERATIONS:
        name = operation.__name__.removeprefix("_")
        _send({"operation": name})
        try:
            _send({"operation": name, "result": operation()})
        except OSError as error:
            _send({"operation": name, "error": error.errno})


def _send(value: dict[str, Any]) -> None:
    os.write(1, json.dumps(value).encode() + b"\n")


def _in_second_process(function: Callable[[], Any]) -> Any:
    """Call a function in a forked child, and return its result or the number of its error, negative."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                result = function()
            except OSError as error:
                result = -(error.errno or errno.EIO)
            os.write(write_end, json.dumps(result).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as file:
        text = file.read()
    os.waitpid(child, 0)
    return json.loads(text or b"null")


def _write(name: str, data: bytes = b"") -> None:
    with open(name, "wb") as file:
        file.write(data)


def _create_exclusively() -> bool:
    """Return True if a file that exists cannot be created again."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY

    def create() -> int:
        os.close(os.open("exclusive", flags, 0o600))
        return 0

    create()
    return bool(_in_second_process(create) == -errno.EEXIST)


def _clock() -> dict[str, Any]:
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


def _excludes(lock: Callable[[int, int], Any]) -> bool:
    with open("locked", "wb") as mine:
        lock(mine.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)

        def try_it() -> int:
            with open("locked", "r+b") as other:
                lock(other.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            return 0

        refused = _in_second_process(try_it)
        lock(mine.fileno(), fcntl.LOCK_UN)
        is_free_again = _in_second_process(try_it) == 0
    return refused in (-errno.EAGAIN, -errno.EACCES) and is_free_again


def _flock() -> bool:
    """Return True if `flock` excludes another process, until it is unlocked."""
    return _excludes(fcntl.flock)


def _posix_lock() -> bool:
    """Return True if a lock by fcntl excludes another process, until it is unlocked."""
    return _excludes(fcntl.lockf)


def _replace() -> bool:
    """Return True if a rename replaces a file, and an open file keeps its old content."""
    _write("old", b"old")
    _write("new", b"new")
    with open("old", "rb") as reader:
        os.rename("new", "old")
        kept = reader.read()

    def read() -> bool:
        with open("old", "rb") as file:
            return file.read() == b"new"

    return kept == b"old" and not os.path.exists("new") and bool(_in_second_process(read))


def _link() -> bool:
    """Return True if a hard link is made, and not over a file that exists."""
    _write("linked")
    os.link("linked", "second-name")
    try:
        os.link("linked", "second-name")
    except FileExistsError:
        return os.path.samefile("linked", "second-name")
    return False


def _shared_map() -> bool:
    """Return True if two processes that map a file see what the other writes."""
    _write("mapped", bytes(mmap.PAGESIZE))

    def add() -> bool:
        with open("mapped", "r+b") as file, mmap.mmap(file.fileno(), 0) as second:
            if second[0] != 1:
                return False
            second[1] = 2
            return True

    with open("mapped", "r+b") as file, mmap.mmap(file.fileno(), 0) as first:
        first[0] = 1
        return bool(_in_second_process(add)) and first[1] == 2


def _sync() -> float:
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


def _names() -> dict[str, Any]:
    """Return the longest length of a name, and whether upper and lower case differ."""
    _write("case")
    return {"longest": os.pathconf(".", "PC_NAME_MAX"), "case_matters": not os.path.exists("CASE")}


_OPERATIONS = (
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
