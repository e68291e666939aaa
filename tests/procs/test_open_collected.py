"""`hdf5.open` of a file that a collector writes: a consistent view, without an option for it.

Covers `shardkeep.collector.store.snapshot` and `shardkeep.hdf5.journal.live_view`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

import shardkeep as sk
from shardkeep.errors import LockTimeoutError
from shardkeep.hdf5.journal.live_view import reader_lock
from tests.descriptors import open_descriptors
from tests.procs.collector_run import collecting, flag, start_client, start_collector, stop
from tests.waiting import PATIENCE_S, eventually

WORLD = sk.World(rank=0, size=1)


def rows_in(path) -> int:
    with sk.hdf5.open(path) as file:
        return len(file["x"]) if "x" in file else 0


def test_an_open_file_does_not_change(tmp_path):
    path = tmp_path / "all.h5"
    with collecting(path) as collector, collector.connect(WORLD) as client:
        client.append("x", np.zeros((10, 4)))
        client.flush()
        eventually(lambda: rows_in(path) == 10)
        with sk.hdf5.open(path) as file:
            assert "collector" in file.locking
            with pytest.raises(LockTimeoutError):
                reader_lock(str(path), shared=False, timeout_s=0).acquire()
            client.append("x", np.ones((10, 4)))
            client.append("y", [1])
            client.flush()
            time.sleep(1.5)  # longer than the collector waits before it applies new rows
            assert (file["x"].shape, sorted(file)) == ((10, 4), ["_collector", "x"])
            with pickle.loads(pickle.dumps(file)) as other:
                assert other["x"].shape == (10, 4)
            file.suspend()
            eventually(lambda: rows_in(path) == 20)
            assert file["x"][:].sum() == 40  # opened again by itself
        reader_lock(str(path), shared=False, timeout_s=PATIENCE_S).acquire().release()


def test_each_of_many_views_is_consistent(tmp_path):
    path, go_on = tmp_path / "all.h5", flag()
    go_on.value = 1
    collector = start_collector(path)
    client = start_client(path, 0, 0, 0, go_on)
    before = open_descriptors()
    seen, deadline = set(), time.monotonic() + PATIENCE_S
    while len(seen) < 3:
        assert time.monotonic() < deadline
        with sk.hdf5.open(path) as file:
            rows = file["x"][:] if "x" in file else np.empty((0, 16), "i8")
        assert (rows[:, 2:] == np.arange(len(rows))[:, None]).all()
        seen.add(len(rows))
        time.sleep(0.05)  # the collector applies new rows while no reader holds the file
    assert not open_descriptors() - before
    go_on.value = 0
    assert client.join() == 0
    stop(collector)
    assert sorted(os.listdir(tmp_path)) == ["all.h5", "all.h5.log"]


def test_the_file_of_a_killed_collector_has_every_acknowledged_row(tmp_path):
    path = tmp_path / "all.h5"
    collector = start_collector(path)
    client = sk.hdf5.connect(path, WORLD)
    client.append("x", np.arange(1000.0))
    client.flush()
    collector.kill()
    collector.join()
    assert rows_in(path) == 1000
    assert not os.path.exists(f"{path}.redo")
    again = start_collector(path)
    client.close()
    stop(again)


def test_a_collector_may_start_while_its_file_is_read(tmp_path):
    path = tmp_path / "all.h5"
    with collecting(path) as collector, collector.connect(WORLD) as client:
        client.append("x", np.zeros((10, 4)))
    with sk.hdf5.open(path) as file, collecting(path) as collector, collector.connect(WORLD) as client:
        client.append("x", np.ones((10, 4)))
        client.flush()
        time.sleep(1.5)
        assert file["x"].shape == (10, 4)
        file.close()
    assert rows_in(path) == 20


def test_reading_needs_no_pyzmq(tmp_path):
    path = tmp_path / "all.h5"
    with collecting(path) as collector:
        with collector.connect(WORLD) as client:
            client.append("x", [1.0])
            client.flush()
        body = (
            "import sys; sys.modules['zmq'] = None\n"
            "import shardkeep as sk\n"
            "with sk.hdf5.open(sys.argv[1]) as file: print('_collector' in file, file.locking)"
        )
        done = subprocess.run(
            [sys.executable, "-c", body, path], capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.stdout == "True flock, shared; shared with the collector\n", done.stderr
    with h5py.File(path) as file:
        assert file["x"][:].tolist() == [1.0]


def test_a_finished_file_in_a_read_only_folder_is_opened(tmp_path):
    path = tmp_path / "all.h5"
    with collecting(path):
        pass
    os.mkdir(f"{path}.readers.lock")  # root may write anywhere, but not this
    with sk.hdf5.open(path) as file:
        assert file.locking == "flock, shared"


@pytest.mark.parametrize("when", ["while it is written", "afterwards"])
def test_all_ways_to_read_a_file_work_together_in_one_process(tmp_path, when):
    """HDF5 opens a file twice in a process only if both ask for the same locks."""
    path = tmp_path / "all.h5"
    ways = [sk.hdf5.open, sk.hdf5.snapshot, lambda path: h5py.File(path, "r")]
    with contextlib.ExitStack() as writing:
        collector = writing.enter_context(collecting(path, durability="flush"))
        with collector.connect(WORLD) as client:
            client.append("x", np.arange(10))
            client.flush()
            eventually(lambda: rows_in(path) == 10)
        if when == "afterwards":
            writing.close()
        else:
            ways.pop()  # a plain one does not keep the collector from applying rows at that moment
        for first, second in itertools.permutations(ways, 2):
            with first(path) as one, second(path) as other:
                assert one["x"][:].tolist() == other["x"][:].tolist() == list(range(10))
    with h5py.File(path, "r+") as file:
        assert len(file["x"]) == 10


def test_a_snapshot_is_closed_at_its_end(tmp_path):
    path = tmp_path / "all.h5"
    with collecting(path, durability="flush") as collector, collector.connect(WORLD) as client:
        client.append("x", np.arange(10))
        client.flush()
    before = open_descriptors()
    for _ in range(5):
        with sk.hdf5.snapshot(path) as file:
            dataset = file["x"]
        assert not file
        assert not dataset
    assert open_descriptors() == before
