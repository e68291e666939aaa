"""Child process that tries out a file system with scratch files.

It makes one hidden folder, in which a second process tries out one operation after the other, and a third one
where an operation needs two. The first process only waits: for the end of the second, for the time limit, and
for the end of standard input, which comes when the examination ends in any way, also by SIGKILL. Then it
kills the others, so that an operation that hangs does not outlive it, and removes the folder.

Standard output has a line of JSON before each operation, ``{"operation": name}``, and one after it with
``"result"``, or with ``"error"``, the number of the error. A second line ``{"folder": number}`` is the error
of a folder in which nothing can be made.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from shardkeep.diagnosis.examination.file_systems import second_host
from shardkeep.diagnosis.examination.file_systems.operations import OPERATIONS, SHARED
from shardkeep.diagnosis.examination.file_systems.peers import Fork, Peer, outcome
from shardkeep.diagnosis.examination.file_systems.races import RACES, SPEED

__all__ = ["PREFIX", "probe"]

PREFIX = ".shardkeep-doctor-"
_END_S = 1.0
_RACERS = 4


def probe(folder: str, limit_s: float, thorough: bool = False, wait_s: float = 0.0) -> int:
    """Try out the file system of a folder; return the exit code of the process.

    Parameters
    ----------
    folder : str
    limit_s : float
        Time limit of all operations.
    thorough : bool
        Run the operations that take seconds, too.
    wait_s : float
        Time to wait for a second host; 0 for operations of this host only.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the end of standard input comes then
    _send({"operation": "the creation of a folder"})
    try:
        scratch = tempfile.mkdtemp(prefix=second_host.PREFIX if thorough else PREFIX, dir=folder)
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
                _try_all(thorough, wait_s)
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


def _try_all(thorough: bool, wait_s: float) -> None:
    if wait_s:
        second_host.open_mailbox()
    _try(OPERATIONS, [Fork()])
    if thorough:
        _try(RACES, [Fork() for _ in range(_RACERS - 1)])
        _try(SPEED, [])
    if wait_s:
        os.chdir(second_host.FOLDER)
        _with_second_host(wait_s)


def _with_second_host(wait_s: float) -> None:
    mailbox = second_host.Mailbox()
    _send({"operation": "second_host"})
    found = mailbox.wait(wait_s)
    _send({"operation": "second_host", "result": found})
    if found is not None:
        _try((*SHARED, *RACES), [mailbox], "host:")
        mailbox.end()


def _try(operations: Sequence[Callable[..., Any]], peers: Sequence[Peer], prefix: str = "") -> None:
    for operation in operations:
        name = prefix + operation.__name__.removeprefix("_")
        _send({"operation": name})
        _send({"operation": name, **outcome(operation, peers)})


def _send(value: dict[str, Any]) -> None:
    os.write(1, json.dumps(value).encode() + b"\n")
