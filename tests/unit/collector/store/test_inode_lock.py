import fcntl
import os

import pytest

from shardkeep.collector.store import inode_lock
from shardkeep.collector.store.inode_lock import InodeLock
from shardkeep.errors import LockError, LockTimeoutError


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(inode_lock, "_WAIT_S", 0.01)
    path = tmp_path / "all.h5"
    path.touch()
    return str(path)


def test_the_same_file_under_another_name_is_refused_until_release(path, tmp_path):
    first, second = InodeLock(path), InodeLock(str(tmp_path / "moved.h5"))
    first.acquire()
    os.rename(path, tmp_path / "moved.h5")
    with pytest.raises(LockTimeoutError, match="under another name"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_a_hard_link_is_refused(path, tmp_path):
    os.link(path, tmp_path / "link.h5")
    with pytest.raises(LockError, match="2 names"):
        InodeLock(path).acquire()


def test_a_writer_without_a_collector_is_refused(path):
    with open(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(LockTimeoutError, match="not a collector"):
            InodeLock(path).acquire()


def test_a_file_that_does_not_exist_yet_is_locked_later(path):
    os.unlink(path)
    lock = InodeLock(path)
    lock.acquire()
    open(path, "w").close()
    lock.acquire()
    with pytest.raises(LockTimeoutError):
        InodeLock(path).acquire()
    lock.release()
