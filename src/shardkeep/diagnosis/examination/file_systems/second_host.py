"""Process of another host, reached through files in the storage that is tried out.

The first host makes the files ``to-first`` and ``to-second`` of a fixed size, and both only overwrite them: a
client of a network file system asks its server when a file is opened, but caches sizes and missing names. A
message is a CRC-32 and a JSON object, filled up with blanks. An answer has the number of its request.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import select
import socket
import subprocess
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from shardkeep.diagnosis.examination.file_systems import operations, races
from shardkeep.diagnosis.examination.file_systems.peers import Peer, outcome
from shardkeep.errors import NotFoundError
from shardkeep.files.child_python import child_python
from shardkeep.files.kinds.urls import local_path

__all__ = ["FOLDER", "PREFIX", "Mailbox", "assist_bench", "identity", "open_mailbox", "serve"]

PREFIX = ".shardkeep-bench-"
FOLDER = "host"
_POLL_S = 0.01
_MESSAGE_BYTES = 4096
_END = "end"


def open_mailbox() -> None:
    """Create the folder of the operations between two hosts."""
    os.mkdir(FOLDER)
    for name in ("to-second", "to-first"):
        operations.write(f"{FOLDER}/{name}", bytes(_MESSAGE_BYTES))


def identity() -> dict[str, str]:
    """Return the name of this host, and a number of its kernel, which two mounts on one host share."""
    return {
        "host": socket.gethostname(),
        "kernel": Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
    }


class Mailbox(Peer):
    """The process that `serve` runs in on another host; the working directory is `FOLDER`."""

    def __init__(self) -> None:
        self._number = 0

    def wait(self, limit_s: float) -> dict[str, str] | None:
        """Return the identity of the other host when it has come; None if it does not."""
        until_s = time.monotonic() + limit_s
        while time.monotonic() < until_s:
            found = _take("to-first")
            if found is not None:
                return dict(found["result"])
            time.sleep(_POLL_S)
        return None

    def start(self, function: Callable[..., Any], *args: Any) -> None:
        """Ask the other host to begin a function."""
        self._ask(function.__name__, args)

    def end(self) -> None:
        """Let the other host leave."""
        self._ask(_END, ())
        self.read()

    def _ask(self, name: str, args: tuple[Any, ...]) -> None:
        self._number += 1
        _put("to-second", {"number": self._number, "function": name, "args": args})

    def read(self) -> Any:
        """Return the outcome when the other host has written it."""
        while True:
            found = _take("to-first")
            if found is not None and found["number"] == self._number:
                return found
            time.sleep(_POLL_S)


def _put(name: str, message: dict[str, Any]) -> None:
    text = json.dumps(message).encode()
    with open(name, "r+b", buffering=0) as file:
        file.write(b"%08x %b" % (zlib.crc32(text), text.ljust(_MESSAGE_BYTES - 9)))
        os.fsync(file.fileno())


def _take(name: str) -> Any:
    """Return the message in a file; None if there is none, or half of a new one."""
    with open(name, "rb", buffering=0) as file:
        data = file.read(_MESSAGE_BYTES)
    checksum, _, text = data.partition(b" ")
    text = text.rstrip()
    return json.loads(text) if checksum == b"%08x" % zlib.crc32(text) else None


def serve(storage: str, wait_s: float) -> int:
    """Run the functions of a bench on another host until it ends; print the identity of that host."""
    os.chdir(storage)
    until_s = time.monotonic() + wait_s
    while (folder := _newest()) is None:
        if time.monotonic() > until_s or _stops():
            return 1
    os.chdir(folder)
    _put("to-first", {"number": 0, "result": identity()})
    done = 0
    for request in _requests():
        if request["number"] > done:
            done = request["number"]
            function = _FUNCTIONS.get(request["function"], lambda: None)
            _put("to-first", {"number": done, **outcome(function, *request["args"])})
            if request["function"] == _END:
                return 0
    return 2


def _newest() -> str | None:
    """Return the newest folder of a first host that runs as this user; None while there is none."""
    try:
        found = [
            one
            for one in glob.glob(f"{PREFIX}*/{FOLDER}")
            if os.path.exists(f"{one}/to-first") and os.lstat(os.path.dirname(one)).st_uid == os.geteuid()
        ]
        return max(found, key=os.path.getmtime, default=None)
    except FileNotFoundError:  # removed at this moment
        return None


def _requests() -> Iterator[Any]:
    with contextlib.suppress(FileNotFoundError):  # the first host has stopped and removed its folder
        while not _stops():
            request = _take("to-second")
            if request is not None:
                yield request


def _stops() -> bool:
    """Wait a moment; return True if the command has ended, which closes standard input."""
    return bool(select.select([0], [], [], _POLL_S)[0])


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(module, name)
    for module in (operations, races)
    for name in module.__all__
    if callable(getattr(module, name))
}


def assist_bench(storage: str | os.PathLike[str], *, wait_s: float = 120.0) -> None:
    """Be the second host of a `shardkeep.bench` that runs on another host; return when it has ended.

    Parameters
    ----------
    storage : path
        The same folder, as this host sees it.
    wait_s : float
        Seconds to wait for the first host.

    Raises
    ------
    NotFoundError
        The folder does not exist, no first host began in time, or it stopped before the end.
    PlanError
        `storage` is a URL.
    """
    folder = os.path.abspath(local_path(storage))
    if not os.path.isdir(folder):
        raise NotFoundError(f"{os.fspath(storage)}: must be an existing folder", path=storage)
    call = f"serve({folder!r}, {wait_s})"
    with subprocess.Popen(child_python(__name__, call), stdin=subprocess.PIPE) as child:
        code = child.wait()
    if code:
        reason = f"no first host began in {wait_s:.0f} s" if code == 1 else "the first host stopped"
        raise NotFoundError(
            f"{os.fspath(storage)}: {reason}; run shardkeep bench --hosts 2 there, as the same user",
            path=storage,
        )
