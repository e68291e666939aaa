"""Two mounts of one store as two hosts: what publication and locks do there."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

pytest.importorskip("hdfs_native")

import shardkeep as sk
from shardkeep.errors import ExistsError, LockError, LockTimeoutError


def test_a_lock_of_juicefs_excludes_the_other_mount(juicefs_points: list[Path]) -> None:
    one, other = juicefs_points
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with sk.files.lock(one / "locked", timeout_s=0, if_unsafe="warn"):
            second = sk.files.lock(other / "locked", timeout_s=0, if_unsafe="warn")
            with pytest.raises(LockTimeoutError):
                second.acquire()


def test_a_lock_of_sshfs_is_refused(sshfs_points: list[Path]) -> None:
    with pytest.raises(LockError, match="sshfs"):
        sk.files.lock(sshfs_points[0] / "locked", timeout_s=0).acquire()


@pytest.mark.parametrize("kind", ["juicefs", "sshfs"])
def test_one_mount_creates_a_file(kind: str, juicefs_points: list[Path], sshfs_points: list[Path]) -> None:
    one, other = juicefs_points if kind == "juicefs" else sshfs_points
    with pytest.raises(ExistsError), sk.files.publish(one / "published") as first:
        first.write(b"first")
        with sk.files.publish(other / "published") as second:
            second.write(b"second")
    assert (other / "published").read_bytes() == b"second"
