"""Locks between real processes: exclusion, the holder's name, fork, SIGKILL."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from shardkeep.errors import LockTimeoutError
from shardkeep.files import lock
from tests.waiting import PATIENCE_S

SPAWN = multiprocessing.get_context("spawn")

_HOLD = """
import sys, time
from shardkeep.files import lock
with lock(sys.argv[1], shared=sys.argv[2] == "shared"):
    print("held", flush=True)
    time.sleep(600)
"""


def _hold(path, kind="exclusive"):
    child = subprocess.Popen([sys.executable, "-c", _HOLD, str(path), kind], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.readline() == b"held\n"
    return child


def test_error_names_the_holder_and_sigkill_frees_the_lock(tmp_path):
    child = _hold(tmp_path / "a")
    try:
        with pytest.raises(LockTimeoutError) as caught:
            lock(tmp_path / "a", timeout_s=0).acquire()
        assert caught.value.holder["pid"] == child.pid
        assert "import sys, time" in caught.value.holder["command"]
    finally:
        child.kill()
        child.wait()
    with lock(tmp_path / "a", timeout_s=0):
        pass
    assert os.listdir(tmp_path) == []


def test_the_living_one_of_two_shared_holders_is_named(tmp_path):
    one, two = _hold(tmp_path / "a", "shared"), _hold(tmp_path / "a", "shared")
    try:
        two.kill()
        two.wait()
        with pytest.raises(LockTimeoutError) as caught:
            lock(tmp_path / "a", timeout_s=0).acquire()
        assert caught.value.holder["pid"] == one.pid
    finally:
        one.kill()
        one.wait()


def _count(path, rounds):
    for _ in range(rounds):
        with lock(path, timeout_s=PATIENCE_S):
            number = int(path.read_text())
            path.write_text(str(number + 1))


def test_lock_excludes_under_contention(tmp_path):
    """The sidecar comes and goes all the time, so a lost unlink race would lose a count."""
    path = tmp_path / "a"
    path.write_text("0")
    children = [SPAWN.Process(target=_count, args=(path, 150)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(PATIENCE_S)
        assert child.exitcode == 0
    assert path.read_text() == "450"
    assert os.listdir(tmp_path) == ["a"]


def test_a_forked_child_does_not_hold_it_and_cannot_release_it(tmp_path):
    mine = lock(tmp_path / "a").acquire()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert not mine.held
            mine.release()
            mine.__exit__(None, None, None)
            try:
                lock(tmp_path / "a", timeout_s=0).acquire()
            except LockTimeoutError as error:
                code = 0 if error.holder["pid"] == os.getppid() else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert mine.held
    with pytest.raises(LockTimeoutError):
        lock(tmp_path / "a", timeout_s=0).acquire()
    mine.release()


def test_a_child_does_not_keep_the_lock_of_its_killed_parent(tmp_path):
    code = """
import os, sys, time
from shardkeep.files import lock
lock(sys.argv[1]).acquire()
child = os.fork()
if child:
    print(child, flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "a")], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent.stdout:
        child = int(parent.stdout.readline())
        time.sleep(0.1)
        parent.kill()
        parent.wait()
    try:
        with lock(tmp_path / "a", timeout_s=0):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
