"""The file of a collector is moved, removed or replaced, while it runs or after it was killed."""

import os
import shutil
import signal

import h5py
import pytest

from shardkeep.errors import CollectorError, FormatError, NotFoundError
from shardkeep.hdf5 import Collector, snapshot
from shardkeep.world import World
from tests.procs.collector_run import wait_until_put_back
from tests.waiting import PATIENCE_S

WORLD = World(rank=0, size=1)


def _killed(path):
    """Leave a file whose newest rows are in its redo log."""
    collector = Collector(path)
    client = collector.connect(WORLD, timeout_s=PATIENCE_S)
    with snapshot(path):  # a reader: the log is not applied to the file
        client.append("x", [1.0, 2.0])
        client.flush()
        os.kill(collector.pid, signal.SIGKILL)
        with pytest.raises(CollectorError, match="has died"):
            collector.close()
    client.close()  # everything was acknowledged


def test_a_log_is_never_applied_to_another_file(tmp_path):
    path, saved, other = tmp_path / "all.h5", tmp_path / "saved.h5", tmp_path / "other.h5"
    _killed(path)
    shutil.copy(path, saved)
    os.unlink(path)
    for _ in range(2):
        with pytest.raises(NotFoundError, match="put the file of that log back"):
            Collector(path)
        assert not path.exists()
    with h5py.File(other, "w", libver="latest") as file:
        file["mine"] = list(range(10_000))
    shutil.copy(other, path)
    for opened in (lambda: Collector(path), lambda: snapshot(path).__enter__()):
        with pytest.raises(FormatError, match="is not the file of which"):
            opened()
        assert path.read_bytes() == other.read_bytes()
    os.unlink(path)
    shutil.copy(saved, path)
    with snapshot(path) as file:
        assert file["x"][:].tolist() == [1.0, 2.0]


def test_a_moved_file_is_an_error_until_it_is_put_back(tmp_path):
    path, elsewhere = tmp_path / "all.h5", tmp_path / "elsewhere.h5"
    with Collector(path, drain_s=5) as collector, collector.connect(WORLD, timeout_s=PATIENCE_S) as client:
        client.append("x", [1.0])
        client.flush()
        os.rename(path, elsewhere)
        client.append("x", [2.0])
        with pytest.raises(CollectorError, match="removed, moved or replaced"):
            client.flush()
        assert not path.exists()
        os.rename(elsewhere, path)

        wait_until_put_back(client)
    with h5py.File(path) as file:
        assert file["x"][:].tolist() == [1.0, 2.0]
