"""Live writers of a file are found by their open files and by their locks; readers are not writers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shardkeep.errors import LockHeldError
from shardkeep.files.locks.lock import FileLock
from shardkeep.hdf5.locking import holders
from shardkeep.hdf5.locking.holders import openers_of_files
from shardkeep.jobs.salvage import live_writers
from shardkeep.jobs.salvage.live_writers import Locked, refuse_live_writers


@contextmanager
def process(code: str) -> Iterator[int]:
    """Run code in another process that then waits."""
    script = f"{code}\nprint(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child.pid
        child.communicate("\n")


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "a.tfrecord"
    file.write_bytes(b"x")
    return str(file)


@pytest.mark.parametrize("mode", ["ab", "r+b"])
def test_a_process_that_has_the_file_open_for_writing_is_named(path: str, mode: str) -> None:
    with process(f"f = open({path!r}, {mode!r})") as pid, pytest.raises(LockHeldError) as caught:
        refuse_live_writers([Locked(path)])
    assert f"pid {pid}" in str(caught.value) and caught.value.path == path
    assert caught.value.holder is not None and caught.value.holder["pid"] == pid
    assert caught.value.exit_code == 11
    refuse_live_writers([Locked(path)])


def test_the_writer_of_one_of_many_files_is_named(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{number}") for number in range(200)]
    for one in paths:
        Path(one).touch()
    refuse_live_writers(map(Locked, paths))
    with open(paths[150], "ab"), pytest.raises(LockHeldError) as caught:
        refuse_live_writers(map(Locked, paths))
    assert caught.value.path == paths[150]
    with open(paths[7], "ab"), open(paths[8], "rb"):
        found = openers_of_files(paths)
    assert {path: [one.writes for one in some] for path, some in found.items()} == {
        paths[7]: [True],
        paths[8]: [False],
    }


def test_this_process_is_a_writer_too(path: str) -> None:
    with open(path, "ab"), pytest.raises(LockHeldError, match=r"\(this process\)"):
        refuse_live_writers([Locked(path)])


def test_a_reader_that_ends_meanwhile_is_not_a_writer(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with process(f"f = open({path!r}, 'rb')"):
        monkeypatch.setattr(holders, "_lock_and_mode", lambda link: ("unknown", True))
        refuse_live_writers([Locked(path)])


def test_readers_do_not_matter(path: str) -> None:
    code = f"from shardkeep.files import lock\nf = open({path!r}, 'rb')\nl = lock({path!r}, shared=True)\n"
    with process(f"{code}l.acquire()"):
        assert os.path.exists(f"{path}.lock")
        refuse_live_writers([Locked(path)])


def test_a_lock_of_one_holder_alone_is_one_of_a_writer(path: str) -> None:
    code = f"from shardkeep.files import lock\nl = lock({path!r})\nl.acquire()"
    with process(code) as pid, pytest.raises(LockHeldError, match=f"pid {pid}"):
        refuse_live_writers([Locked(path)])
    link = f"{path}.link"
    os.symlink(path, link)
    with FileLock(path), pytest.raises(LockHeldError):
        refuse_live_writers([Locked(link)])
    with FileLock("writer", lock_path=f"{path}.own"), pytest.raises(LockHeldError):
        refuse_live_writers([Locked(path, f"{path}.own")])


def entry(path: str, host: str, pid: int) -> None:
    line = {"host": host, "pid": pid, "command": "train.py", "since": 1.7e9}
    Path(f"{path}.lock").write_text(json.dumps(line) + "\n")


def test_the_lock_file_of_a_killed_writer_is_not_a_lock(path: str) -> None:
    for host, pid in (("node7", 71), (socket.gethostname(), os.getpid())):
        entry(path, host, pid)
        refuse_live_writers([Locked(path)])


def test_another_host_is_believed_where_locks_do_not_reach_it(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_writers, "lock_fault_of", lambda folder: "each mount keeps its locks to itself")
    entry(path, "node7", 71)
    with pytest.raises(LockHeldError, match=r"pid 71 on host node7.*lock'; if it has ended, remove"):
        refuse_live_writers([Locked(path)])
    entry(path, socket.gethostname(), os.getpid())
    refuse_live_writers([Locked(path)])
    refuse_live_writers([Locked(path + ".gone")])
