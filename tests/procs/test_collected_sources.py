"""The file of a running or killed collector as a source of merges and checks, and opened for writing."""

import os
import shutil
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pytest

import shardkeep as sk
from shardkeep.collector.protocol.schema import Schema
from shardkeep.collector.store.store import Store
from shardkeep.errors import FormatError, LockError, LockTimeoutError, NotFoundError
from shardkeep.hdf5.journal.live_view import log_path, reader_lock
from shardkeep.jobs.info import info
from tests.descriptors import open_descriptors
from tests.procs.collector_run import collecting
from tests.waiting import PATIENCE_S

WORLD = sk.World(rank=0, size=1)
MERGE = sys.modules["shardkeep.hdf5.merge.merge"]


@pytest.fixture
def killed(tmp_path):
    """Return a file as a killed collector leaves it: five rows in it, and five more only in its log."""
    path = str(tmp_path / "all.h5")
    store = Store(path, synced=False)
    store.declare(Schema("x", np.dtype("<i8"), (), 64))
    for start in (0, 5):
        store.append("x", memoryview(np.arange(start, start + 5)).cast("B"), 5)
        store.commit()
        if start == 0:
            store.apply()
    store.abandon().release()
    with h5py.File(path, "r") as file:
        assert len(file["x"]) == 5
    return path


@pytest.mark.parametrize("mode", ["r+", "a"])
def test_a_writer_finds_every_row(killed, mode):
    with sk.hdf5.open(killed, mode) as file:
        assert file["x"][:].tolist() == list(range(10))
        file["x"].attrs["unit"] = "m"
    assert os.listdir(os.path.dirname(killed)) == ["all.h5"]
    store = Store(killed, synced=False)  # and a collector continues with it
    assert store.rows == {"x": 10}
    store.close()


def test_emptying_the_file_removes_its_log(killed):
    with sk.hdf5.open(killed, "w") as file:
        file["y"] = [1]
    assert os.listdir(os.path.dirname(killed)) == ["all.h5"]
    with sk.hdf5.open(killed) as file:
        assert list(file) == ["y"]


def test_a_writer_waits_for_readers(killed, monkeypatch):
    monkeypatch.setattr("shardkeep.hdf5.journal.live_view._LEAST_WAIT_S", 0.1)
    with reader_lock(killed, shared=True, timeout_s=0), pytest.raises(LockTimeoutError):
        sk.hdf5.open(killed, "r+")
    with h5py.File(killed, "r") as file:
        assert len(file["x"]) == 5


def test_a_log_of_another_file_is_an_error_for_writers(killed, tmp_path):
    os.rename(killed, tmp_path / "moved.h5")
    with pytest.raises(NotFoundError, match="put the file of that log back"):
        sk.hdf5.open(killed, "a")
    with h5py.File(killed, "w", libver="latest") as file:
        file["mine"] = list(range(10_000))
    with pytest.raises(FormatError, match="is not the file of which"):
        sk.hdf5.open(killed, "r+")
    shutil.move(tmp_path / "moved.h5", killed)
    with sk.hdf5.open(killed, "r+") as file:
        assert len(file["x"]) == 10


@pytest.mark.parametrize("how", ["merge", "virtual", "verify", "info"])
def test_every_reader_finds_every_row(killed, tmp_path, how):
    before = open_descriptors()
    if how == "verify":
        assert sk.hdf5.verify(killed).rows >= 10
    elif how == "info":
        assert [one.shape[0] for one in info(killed).datasets] == [10]
    else:
        report = sk.hdf5.merge(
            [killed], tmp_path / "merged.h5", mode="virtual" if how == "virtual" else "copy"
        )
        assert report.rows == {"x": 10}
    assert not os.path.exists(log_path(killed))
    assert open_descriptors() == before


def test_merges_and_checks_of_a_growing_file_see_complete_commits(tmp_path):
    path, seen, over = tmp_path / "all.h5", set(), threading.Event()

    def grow(client):
        row = 0
        while not over.wait(0.002):
            client.append("x", np.repeat(np.arange(row, row + 50)[:, None], 16, 1))
            client.flush()
            row += 50

    with collecting(path) as collector, collector.connect(WORLD) as client, ThreadPoolExecutor(1) as pool:
        growing = pool.submit(grow, client)
        try:
            deadline = time.monotonic() + PATIENCE_S
            while len(seen) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.3)  # readers that follow each other without a pause keep the collector out
                assert sk.hdf5.verify(path).ok
                report = sk.hdf5.merge([path], tmp_path / "merged.h5", exists="replace")
                if "x" in report.rows:
                    with h5py.File(tmp_path / "merged.h5") as file:
                        rows = file["x"][:]
                    assert (rows == np.arange(len(rows))[:, None]).all()
                    assert len(rows) % 50 == 0
                    seen.add(len(rows))
        finally:
            over.set()
            growing.result()


def test_a_merge_holds_the_file_from_its_plan_to_its_last_row(tmp_path, monkeypatch):
    path = tmp_path / "all.h5"
    with collecting(path) as collector, collector.connect(WORLD) as client:
        client.append("x", np.arange(10))
        client.flush()
        deadline, rows = time.monotonic() + PATIENCE_S, 0
        while rows != 10:
            assert time.monotonic() < deadline
            with sk.hdf5.open(path) as file:
                rows = len(file["x"]) if "x" in file else 0
            time.sleep(0.05)
        fill = MERGE.fill

        def later(*args):
            client.append("x", np.arange(10, 100_000))
            client.flush()  # the file grows while it is merged, and the planned rows stay
            with pytest.raises(LockTimeoutError):
                reader_lock(str(path), shared=False, timeout_s=0).acquire()
            return fill(*args)

        monkeypatch.setattr(MERGE, "fill", later)
        assert sk.hdf5.merge([path], tmp_path / "merged.h5").rows == {"x": 10}
    with h5py.File(tmp_path / "merged.h5") as file:
        assert file["x"][:].tolist() == list(range(10))


def test_a_merge_fails_if_the_collector_waits_no_longer(tmp_path, monkeypatch):
    path = str(tmp_path / "all.h5")
    store = Store(path, synced=False)
    store.declare(Schema("x", np.dtype("<i8"), (), 64))
    store.append("x", memoryview(np.arange(5)).cast("B"), 5)
    store.commit()
    store.apply()
    fill = MERGE.fill

    def close(*args):
        store.close(wait_s=0.0)
        return fill(*args)

    monkeypatch.setattr(MERGE, "fill", close)
    with pytest.raises(LockError, match="read it again"):
        sk.hdf5.merge([path], tmp_path / "merged.h5")
