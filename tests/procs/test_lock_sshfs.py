"""Locks on a real network file system: two sshfs mounts of one folder stand for two hosts.

Needs /dev/fuse, sshfs and an sftp-server (Debian: sshfs, openssh-sftp-server); no ssh daemon.
"""

import os
import time

import pytest

from shardkeep.errors import ExistsError, LockError
from shardkeep.files import lock
from shardkeep.files.locks.mounts import mount_of
from shardkeep.tfrecord import Reader, Writer

pytestmark = pytest.mark.slow


def test_sshfs_locks_do_not_exclude_other_mounts(sshfs_mounts):
    """Both get the lock: the reason why it is refused."""
    one, two = (lock(point / "a", timeout_s=0, if_unsafe="trust") for point in sshfs_mounts)
    with one, two:
        assert one.held
        assert two.held


def test_lock_on_sshfs_is_refused_with_the_mount(sshfs_mounts):
    mount = mount_of(str(sshfs_mounts[0]))
    assert mount is not None
    assert (mount.kind, mount.point) == ("fuse.sshfs", str(sshfs_mounts[0]))
    with pytest.raises(LockError) as caught, lock(sshfs_mounts[0] / "a"):
        pass
    assert f"fuse.sshfs (here:{sshfs_mounts[0].parent}/store) at {str(sshfs_mounts[0])!r}" in str(
        caught.value
    )
    assert os.listdir(sshfs_mounts[0]) == []


def test_a_file_that_appears_whole_needs_no_lock(sshfs_mounts):
    one, two = sshfs_mounts
    with pytest.warns(RuntimeWarning, match="may have no effect"):
        first = Writer(one / "a.tfrecord")
        second = Writer(two / "a.tfrecord")
    with first:
        first.write(b"first")
    second.write(b"second")
    with pytest.raises(ExistsError):
        second.close()
    deadline = time.monotonic() + 40
    while not (two / "a.tfrecord").exists() and time.monotonic() < deadline:  # its cache is 20 s old
        time.sleep(0.5)
    assert list(Reader(two / "a.tfrecord")) == [b"first"]
    for refused in (
        lambda: Writer(one / "a.tfrecord", exists="append"),
        lambda: Reader(one / "a.tfrecord", lock=True),
    ):
        with pytest.raises(LockError, match="would have no effect"):
            refused()
