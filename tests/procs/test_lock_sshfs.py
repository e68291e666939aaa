"""Locks on a real network file system: two sshfs mounts of one folder stand for two hosts.

Needs /dev/fuse, sshfs and an sftp-server (Debian: sshfs, openssh-sftp-server); no ssh daemon.
"""

import contextlib
import os
import shutil
import subprocess
import time

import pytest

from shardkeep.errors import ExistsError, LockError
from shardkeep.files import lock
from shardkeep.files.locks.mounts import mount_of
from shardkeep.tfrecord import Reader, Writer
from tests.waiting import PATIENCE_S

SERVERS = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server")

pytestmark = pytest.mark.slow


@pytest.fixture
def mounts(tmp_path):
    server = next((server for server in SERVERS if os.path.exists(server)), None)
    if server is None or not shutil.which("sshfs") or not os.access("/dev/fuse", os.W_OK):
        pytest.skip("no sshfs here")
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\nexec {server}\n")
    ssh.chmod(0o755)
    store = tmp_path / "store"
    store.mkdir()
    with contextlib.ExitStack() as stack:
        points = []
        for name in ("one", "two"):
            point = tmp_path / name
            point.mkdir()
            command = ["sshfs", "-o", f"ssh_command={ssh}", f"here:{store}", str(point)]
            if subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False).returncode:
                pytest.skip("FUSE mounts are not allowed here")
            stack.callback(subprocess.run, ["umount", "-l", str(point)], check=False, timeout=PATIENCE_S)
            points.append(point)
        yield points


def test_sshfs_locks_do_not_exclude_other_mounts(mounts):
    """Both get the lock: the reason why it is refused."""
    one, two = (lock(point / "a", timeout_s=0, if_unsafe="trust") for point in mounts)
    with one, two:
        assert one.held
        assert two.held


def test_lock_on_sshfs_is_refused_with_the_mount(mounts):
    mount = mount_of(str(mounts[0]))
    assert mount is not None
    assert (mount.kind, mount.point) == ("fuse.sshfs", str(mounts[0]))
    with pytest.raises(LockError) as caught, lock(mounts[0] / "a"):
        pass
    assert f"fuse.sshfs (here:{mounts[0].parent}/store) at {str(mounts[0])!r}" in str(caught.value)
    assert os.listdir(mounts[0]) == []


def test_a_file_that_appears_whole_needs_no_lock(mounts):
    one, two = mounts
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
