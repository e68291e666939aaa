"""Locks and the entries of their holders.

Covers `shardkeep.files.locks.holder`.
"""

import errno
import fcntl
import json
import os
import pickle
import socket
import threading
import time

import pytest

from shardkeep.errors import DurabilityError, LockError, LockTimeoutError, NotFoundError
from shardkeep.files import FileLock, lock
from tests.descriptors import open_descriptors
from tests.waiting import PATIENCE_S


def test_lock_excludes_and_names_the_holder(tmp_path):
    path = tmp_path / "a.h5"
    before = time.time()
    with lock(path) as mine:
        assert mine.held
        with pytest.raises(LockTimeoutError) as caught:
            FileLock(path, timeout_s=0).acquire()
        entry = json.loads((tmp_path / "a.h5.lock").read_text())
    error = caught.value
    assert error.holder == entry
    assert (entry["host"], entry["pid"]) == (socket.gethostname(), os.getpid())
    assert before - 1 <= entry["since"] <= time.time()
    for part in (str(os.getpid()), socket.gethostname(), entry["command"], "since", "this process"):
        assert part in str(error)
    assert pickle.loads(pickle.dumps(error)).holder == entry
    assert not mine.held
    assert os.listdir(tmp_path) == []


def test_the_timeout_is_kept(tmp_path):
    with lock(tmp_path / "a"):
        for timeout_s in (0, 0.2):
            start = time.monotonic()
            with pytest.raises(LockTimeoutError):
                FileLock(tmp_path / "a", timeout_s=timeout_s).acquire()
            assert timeout_s <= time.monotonic() - start < PATIENCE_S


@pytest.mark.parametrize("timeout_s", [PATIENCE_S, None])
def test_waiter_acquires_the_lock_after_its_release(tmp_path, timeout_s):
    first = lock(tmp_path / "a").acquire()
    thread = threading.Timer(0.1, first.release)
    thread.start()
    with lock(tmp_path / "a", timeout_s=timeout_s) as second:
        assert second.held
        assert not first.held
    thread.join()


def test_shared_locks_exclude_exclusive_ones_only(tmp_path):
    path = tmp_path / "a"
    one, two = lock(path, shared=True).acquire(), lock(path, shared=True, timeout_s=0).acquire()
    for released in (one, two):
        with pytest.raises(LockTimeoutError):
            lock(path, timeout_s=0).acquire()
        released.release()
    with lock(path, timeout_s=0), pytest.raises(LockTimeoutError):
        lock(path, shared=True, timeout_s=0).acquire()
    assert os.listdir(tmp_path) == []


def test_the_name_stays_while_a_shared_holder_is_left(tmp_path):
    path = tmp_path / "a"
    one, two = lock(path, shared=True).acquire(), lock(path, shared=True).acquire()
    one.release()
    assert os.listdir(tmp_path) == ["a.lock"]
    two.release()
    assert os.listdir(tmp_path) == []


def test_a_lock_without_a_name_is_not_taken(tmp_path):
    """A waiter that opened the file before its holder removed it does not hold the lock."""
    path = tmp_path / "a"
    holder = lock(path).acquire()
    original = FileLock._flock

    def release_first(self, fd, operation):
        if holder.held:
            holder.release()
        return original(self, fd, operation)

    waiter = FileLock(path, timeout_s=PATIENCE_S)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileLock, "_flock", release_first)
        waiter.acquire()
    with pytest.raises(LockTimeoutError):
        lock(path, timeout_s=0).acquire()
    waiter.release()


def test_leftover_sidecar_does_not_lock(tmp_path):
    (tmp_path / "a.lock").write_text('{"host": "gone", "pid": 1, "command": "x", "since": 1}\n')
    with lock(tmp_path / "a", timeout_s=0):
        assert json.loads((tmp_path / "a.lock").read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("text", ["", "not json\n", '{"host": 1}\n', "[1]\n", '{"host": "h", "pid": "x"}\n'])
def test_holder_without_an_entry_is_unknown(tmp_path, text):
    with open(tmp_path / "a.lock", "w") as file:
        file.write(text)
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(LockTimeoutError, match="by an unknown process") as caught:
            lock(tmp_path / "a", timeout_s=0).acquire()
    assert caught.value.holder is None


def test_not_reentrant_and_release_twice(tmp_path):
    mine = lock(tmp_path / "a").acquire()
    with pytest.raises(LockError, match="already"):
        mine.acquire()
    mine.release()
    mine.release()
    with mine:
        assert "exclusive, held" in repr(mine)
    assert "not held" in repr(mine)


def test_missing_folder_is_not_found(tmp_path):
    with pytest.raises(NotFoundError, match="create it first"), lock(tmp_path / "no" / "a"):
        pass


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_sidecar_that_cannot_be_created_is_an_error(tmp_path, monkeypatch, code):
    def refuse(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(DurabilityError) as caught:
        lock(tmp_path / "a").acquire()
    assert caught.value.errno == code


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, 524])
def test_writing_without_trusted_locks_is_refused(tmp_path, monkeypatch, code):
    def refuse(*_):
        raise OSError(code, "no")

    monkeypatch.setattr(fcntl, "flock", refuse)
    before = open_descriptors()
    with pytest.raises(LockError, match="refuses locks") as caught:
        lock(tmp_path / "a").acquire()
    assert not isinstance(caught.value, LockTimeoutError)
    assert caught.value.errno == code
    assert not open_descriptors() - before


def test_a_shared_lock_whose_file_is_only_readable_is_released_on_nfs(tmp_path, monkeypatch):
    original = fcntl.flock

    def of_nfs(fd, operation):
        if operation & fcntl.LOCK_EX:
            raise OSError(errno.EBADF, "not open for writing")
        original(fd, operation)

    before = open_descriptors()
    monkeypatch.setattr(fcntl, "flock", of_nfs)
    with lock(tmp_path / "a", shared=True, if_unsafe="trust") as mine:
        assert mine.held
    assert not open_descriptors() - before
    monkeypatch.undo()
    with lock(tmp_path / "a", timeout_s=0) as mine:
        assert mine.held


def test_a_full_disk_does_not_refuse_the_lock(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "write", full)
    with lock(tmp_path / "a", timeout_s=0) as mine:
        assert mine.held


def test_lock_survives_a_change_of_directory(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "a")
    held = FileLock("x").acquire()
    (tmp_path / "b" / "x.lock").write_text("of somebody else")
    monkeypatch.chdir(tmp_path / "b")
    with pytest.raises(LockTimeoutError):
        FileLock("../a/x", timeout_s=0).acquire()
    held.release()
    assert os.listdir(tmp_path / "a") == []
    assert os.listdir(tmp_path / "b") == ["x.lock"]
