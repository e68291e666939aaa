"""Results of trying out file systems with scratch files, each by its own child process."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from shardkeep.diagnosis.examination.subject import Subject
from shardkeep.files.child_python import child_python

__all__ = ["Probe", "probe_all"]

_CHILD = "shardkeep.diagnosis.examination.file_systems.probe_child"
_LONGEST_S = 5.0
_END_S = 1.0
_START = "the start of a process"
_POLL_S = 0.05


@dataclass
class Probe:
    """Operations that were tried in one folder.

    Attributes
    ----------
    folder_error : int or None
        Number of the error if no scratch folder could be made.
    exit_code : int or None
        Exit code of the process if it tried nothing; 0 or less if it did not start in time.
    results : dict
        Result of each operation.
    errors : dict of str to int
        Number of the error of each operation that failed.
    hangs : str or None
        The operation that did not end.
    """

    folder_error: int | None = None
    exit_code: int | None = field(default=None, kw_only=True)
    results: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    hangs: str | None = _START

    def take(self, line: bytes) -> None:
        """Store one line of the child."""
        value = json.loads(line)
        if "folder" in value:
            self.folder_error = value["folder"]
        elif "result" in value:
            self.results[value["operation"]] = value["result"]
        elif "error" in value:
            self.errors[value["operation"]] = value["error"]
        is_begin = value.keys() == {"operation"}
        self.hangs = value["operation"] if is_begin else None


def probe_all(
    folders: Sequence[str],
    subject: Subject,
    *,
    longest_s: float | None = None,
    thorough: bool = False,
    wait_s: float = 0.0,
) -> list[Probe]:
    """Try out the file systems of some folders at the same time.

    Parameters
    ----------
    folders : sequence of str
    subject : Subject
        Its deadline limits the time, and its `stop` ends the probes at once.
    longest_s : float or None
        Time after which an operation hangs, if that is before the deadline; None for 5 s.
    thorough, wait_s
        As in `shardkeep.diagnosis.examination.file_systems.probe_child.probe`.

    Returns
    -------
    list of Probe
        One for each folder. No scratch file is left unless its file system hangs.
    """
    limit_s = min(longest_s or _LONGEST_S, max(0.1, subject.left_s - 2 * _END_S))
    children: list[subprocess.Popen[bytes]] = []
    try:
        children.extend(
            _start(f"probe({os.path.abspath(folder)!r}, {limit_s}, {thorough}, {wait_s})")
            for folder in folders
        )
        found = [_read(child, subject) for child in children]
    finally:
        _end(children)
    for child, one in zip(children, found, strict=True):
        if one.hangs == _START:  # on a busy machine, for instance: that says nothing of the file system
            one.hangs, one.exit_code = None, -1 if child.returncode is None else child.returncode
    return found


def _start(call: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        child_python(_CHILD, call),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # Ctrl-C in a terminal goes to this process only, and the child removes its files afterwards.
        start_new_session=True,
    )


def _read(child: subprocess.Popen[bytes], subject: Subject) -> Probe:
    found, rest = Probe(), b""
    assert child.stdout is not None
    while subject.left_s > _END_S:
        if not select.select([child.stdout], [], [], _POLL_S)[0]:
            continue
        data = os.read(child.stdout.fileno(), 1 << 16)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            found.take(line)
    return found


def _end(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """Let the children end and remove their files; kill those that do not."""
    for child in children:
        assert child.stdin is not None
        with contextlib.suppress(OSError):
            child.stdin.close()
    until_s = time.monotonic() + _END_S
    for child in children:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(max(0.01, until_s - time.monotonic()))
        child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.1)
        assert child.stdout is not None
        child.stdout.close()
