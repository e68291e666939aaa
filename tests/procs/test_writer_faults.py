"""Writers whose disk is full for a while, whose process is forked, or killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from shardkeep.errors import LockTimeoutError
from shardkeep.tfrecord import Reader, Writer
from tests.unit.tfrecord.test_reader import frame

TORN = frame(b"x" * 100)[:50]
FULL = """
import os, resource, sys
from shardkeep.errors import DurabilityError
from shardkeep.tfrecord import Reader, ShardWriter, Writer

def room(count_bytes):
    resource.setrlimit(resource.RLIMIT_FSIZE, (count_bytes, resource.RLIM_INFINITY))

def refused(call, *args):
    try:
        call(*args)
    except DurabilityError as error:
        assert "EFBIG" in str(error), error
        return True
    return False

def full_for_a_while(w):
    "Write until the disk is full, make room, and go on."
    acknowledged = 0
    room(500_000)
    while not refused(w.write, os.urandom(100_000)):
        acknowledged += 1
        assert acknowledged < 2000
    room(resource.RLIM_INFINITY)
    for _ in range(3):
        assert refused(w.write, b"more")

folder = sys.argv[1]
"""


def run(folder: Path, body: str) -> None:
    script = FULL + textwrap.dedent(body)
    done = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "options", ["shards=100", "shards=3", "shard_records=10", "shards=2, compression='gzip'"]
)
def test_a_set_with_a_hole_is_never_published(options: str, tmp_path: Path) -> None:
    body = f"""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    w = ShardWriter(folder + "/{{shard:03d}}", {options})
    full_for_a_while(w)
    assert refused(w.close)
    """
    run(tmp_path, body)
    assert os.listdir(tmp_path) == []


def test_a_file_with_a_hole_is_never_published(tmp_path: Path) -> None:
    body = """
    w = Writer(folder + "/x")
    full_for_a_while(w)
    assert refused(w.flush)
    assert refused(w.close)
    """
    run(tmp_path, body)
    assert os.listdir(tmp_path) == []


def test_append_leaves_whole_records(tmp_path: Path) -> None:
    body = """
    w = Writer(folder + "/x", exists="append")
    full_for_a_while(w)
    assert refused(w.close)
    """
    run(tmp_path, body)
    assert os.listdir(tmp_path) == ["x"]
    assert [len(record) for record in Reader(tmp_path / "x")] == [100_000] * 4
    with Writer(tmp_path / "x", exists="append") as w:
        w.write(b"next")
    assert list(Reader(tmp_path / "x"))[4:] == [b"next"]


def test_failed_append_to_gzip_removes_its_member(tmp_path: Path) -> None:
    body = """
    with Writer(folder + "/x", compression="gzip", exists="append") as w:
        w.write(b"first")
    w = Writer(folder + "/x", compression="gzip", exists="append")
    full_for_a_while(w)
    assert refused(w.close)
    """
    run(tmp_path, body)
    assert list(Reader(tmp_path / "x")) == [b"first"]


def test_append_to_gzip_continues_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with Writer(path, exists="append", compression="gzip") as w:
        w.write(b"first")
    size = path.stat().st_size
    child = os.fork()
    if child == 0:
        try:
            killed = Writer(path, exists="append", compression="gzip")
            killed.write(os.urandom(3_000_000))
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert path.stat().st_size > size
    with Writer(path, exists="append", compression="gzip") as w:
        w.write(b"second")
    assert list(Reader(path)) == [b"first", b"second"]


@pytest.mark.parametrize("exists", ["append", "replace"])
@pytest.mark.parametrize("end", ["leave", "close", "abort"])
def test_a_child_that_ends_its_copy_leaves_the_file_of_the_parent(
    exists: str, end: str, tmp_path: Path
) -> None:
    path = tmp_path / "x"
    with Writer(path, exists="replace") as w:
        w.write(b"0")
    w = Writer(path, exists=exists)
    w.write(b"1")
    w.flush()
    if exists == "append":
        with path.open("ab") as file:  # as if a write(2) of the parent were under way
            file.write(TORN)
    content = path.read_bytes()
    names = sorted(os.listdir(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if end == "leave":
                w.__exit__(ValueError, ValueError("mine"), None)
                status = 0
            elif end == "abort":
                w.abort()
                status = 0
            else:
                w.close()
        except OSError as error:
            status = 0 if "fork" in str(error) and end == "close" else 2
        finally:
            if len(os.listdir("/proc/self/fd")) >= before:
                status = 3
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert path.read_bytes() == content
    assert sorted(os.listdir(tmp_path)) == names
    with pytest.raises(LockTimeoutError):
        Writer(path, exists="append")
    assert status == 0
    if exists == "append":
        os.truncate(path, len(content) - len(TORN))
        os.lseek(w._appending or 0, 0, os.SEEK_END)
    w.write(b"2")
    w.close()
    assert list(Reader(path)) == [b"0", b"1", b"2"][exists == "replace" :]
