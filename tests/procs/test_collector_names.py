"""A file with several names, which no second collector and no other writer may open.

Covers `shardkeep.collector.store.inode_lock`.
"""

import os
import subprocess
import sys

import h5py
import pytest

from shardkeep.collector.store.store import Store
from shardkeep.errors import FormatError, LockError, LockTimeoutError
from shardkeep.files.locks.probe import is_of_one_kernel
from shardkeep.hdf5 import Collector
from shardkeep.world import World
from tests.procs.collector_run import collecting, start_collector, wait_until_put_back
from tests.waiting import PATIENCE_S

WORLD = World(rank=0, size=1)
PLAIN = """
import sys, h5py
with h5py.File(sys.argv[1], sys.argv[2], locking=True) as file:
    print("_collector" in file)
"""


def _plain(path, mode):
    """Open a file with h5py only, in another process."""
    return subprocess.run(
        [sys.executable, "-c", PLAIN, str(path), mode], capture_output=True, text=True, timeout=PATIENCE_S
    )


def test_a_file_with_a_hard_link_is_refused(tmp_path):
    path, link = tmp_path / "all.h5", tmp_path / "link.h5"
    collector = start_collector(path)
    os.link(path, link)
    with pytest.raises(LockError, match=r"link.h5' has 2 names \(hard links\)"):
        Collector(link)
    collector.kill()
    collector.join()
    for name in (link, path):  # one of them has a log
        before = name.read_bytes()
        with pytest.raises(LockError, match="remove the others"):
            Store(str(name), synced=False)
        assert name.read_bytes() == before
    os.unlink(link)
    with collecting(path) as again, again.connect(WORLD) as client:
        client.append("x", [1])
    with h5py.File(path) as file:
        assert file["x"][:].tolist() == [1]
    assert sorted(name for name in os.listdir(tmp_path) if "link" in name) == []


def test_a_folder_is_not_refused_as_a_file_with_several_names(tmp_path):
    with pytest.raises(FormatError, match="is a folder"):
        Store(str(tmp_path), synced=False)


def test_a_file_that_is_moved_while_it_is_written_stays_locked(tmp_path):
    if not is_of_one_kernel(str(tmp_path)):
        pytest.skip("only where one kernel has all locks of a file")
    path, moved = tmp_path / "all.h5", tmp_path / "moved.h5"
    with collecting(path) as collector, collector.connect(WORLD) as client:
        client.append("x", [1])
        client.flush()
        os.rename(path, moved)
        with pytest.raises(
            LockTimeoutError, match=r"moved.h5' is being written by a collector under another name"
        ):
            Collector(moved)
        os.rename(moved, path)
        client.append("x", [2])

        wait_until_put_back(client)
    with h5py.File(path) as file:
        assert file["x"][:].tolist() == [1, 2]


def test_a_plain_writer_is_refused_and_readers_are_not_during_a_run(tmp_path):
    path = tmp_path / "all.h5"
    with collecting(path) as collector, collector.connect(WORLD) as client:
        client.append("x", [1])
        client.flush()
        done = _plain(path, "a")
        assert done.returncode == 1
        assert "unable to lock file" in done.stderr
        assert _plain(path, "r").stdout == "True\n"
        client.append("x", [2])
    with h5py.File(path, "r+", locking=True) as file:
        file.attrs["mine"] = 1
        with pytest.raises(LockTimeoutError, match="open for writing in a program that is not a collector"):
            Store(str(path), synced=False)
    with collecting(path) as collector, collector.connect(WORLD) as client:
        client.append("x", [3])
    with h5py.File(path) as file:
        assert file["x"][:].tolist() == [1, 2, 3]
