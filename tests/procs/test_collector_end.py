"""Ends of a run, also of one whose collector was killed and started again.

Covers `shardkeep.collector.client.shutdown`.
"""

import os
import signal
import threading
import time

import h5py
import pytest

from shardkeep.collector.server.events import Events
from shardkeep.collector.server.process import recover_file
from shardkeep.hdf5 import Collector, connect
from shardkeep.world import World
from tests.procs.collector_run import start, start_collector
from tests.waiting import PATIENCE_S


def _kill(collector):
    collector.kill()
    collector.join()


def _one_client(place, rank, size=2):
    with connect(place, World(rank=rank, size=size)) as client:
        client.append("x", [rank])


def _rows(path):
    with h5py.File(path) as file:
        return sorted(file["x"][:].tolist())


@pytest.mark.parametrize("how", ["again", "recovered"])
def test_ranks_that_left_before_a_kill_count(tmp_path, how):
    path = tmp_path / "all.h5"
    collector = start_collector(path, until_done=True)
    _one_client(tmp_path, 0)
    _kill(collector)
    if how == "recovered":
        recover_file(str(path), Events(None))
    collector = start_collector(path, until_done=True)
    _one_client(tmp_path, 1)
    assert collector.join() == 0
    assert _rows(path) == [0, 1]


def test_a_restarted_collector_ends_at_once_if_every_rank_had_left(tmp_path):
    path = tmp_path / "all.h5"
    first = start_collector(path)
    for rank in range(2):
        _one_client(tmp_path, rank)
    _kill(first)
    assert start_collector(path, until_done=True).join() == 0
    assert _rows(path) == [0, 1]


def test_the_next_run_on_the_same_file_counts_from_zero(tmp_path):
    path = tmp_path / "all.h5"
    for _ in range(2):
        collector = start_collector(path, until_done=True)
        for rank in range(2):
            assert collector.process.is_alive()
            _one_client(tmp_path, rank)
        assert collector.join() == 0
    assert _rows(path) == [0, 0, 1, 1]


def test_a_run_that_restarts_after_a_kill_counts_from_zero(tmp_path):
    path = tmp_path / "all.h5"
    collector = start_collector(path, until_done=True)
    _one_client(tmp_path, 0)
    lost = connect(tmp_path, World(rank=1, size=2))
    lost.append("x", [1])
    lost.flush()
    _kill(collector)
    lost._calls.sender.stop(0.0)  # it never comes again: its process was killed with the collector
    collector = start_collector(path, until_done=True)
    with connect(tmp_path, World(rank=1, size=2)) as client:  # rank 1 of the next attempt
        client.append("x", [1])
    assert collector.process.is_alive()  # rank 0 comes again as well
    _one_client(tmp_path, 0)
    assert collector.join() == 0
    assert _rows(path) == [0, 0, 1, 1]


def _rows_after_a_word(write_end, place, rank, read_end):
    with connect(place, World(rank=rank, size=3), timeout_s=PATIENCE_S) as client:
        client.append("x", [rank])
        client.flush()
        os.write(write_end, b"here")
        os.read(read_end, 1)
        client.append("x", [10 * rank])


def _two_others(collector):
    go_on, tell = os.pipe()
    others = [start(_rows_after_a_word, collector.address, rank, go_on) for rank in (1, 2)]
    os.close(go_on)
    for other in others:
        other.wait_for_word()
    with collector.connect(World(rank=0, size=3)) as client:
        client.append("x", [0])
    return others, tell


def test_the_end_of_rank_0_waits_for_the_others(tmp_path):
    collector = Collector(tmp_path / "all.h5", durability="flush", wait_s=PATIENCE_S)
    others, tell = _two_others(collector)
    later = threading.Timer(1.0, os.write, (tell, b"12"))  # when it waits already
    later.start()
    collector.close()
    later.join()
    os.close(tell)
    assert [other.join() for other in others] == [0, 0]
    assert _rows(tmp_path / "all.h5") == [0, 1, 2, 10, 20]


def test_the_wait_for_a_killed_rank_is_limited(tmp_path):
    collector = Collector(tmp_path / "all.h5", durability="flush", wait_s=1)
    others, tell = _two_others(collector)
    others[1].kill()
    assert others[1].join() == -signal.SIGKILL
    os.write(tell, b"1")
    assert others[0].join() == 0
    collector.close()
    os.close(tell)
    assert _rows(tmp_path / "all.h5") == [0, 1, 2, 10]


def test_a_failing_body_does_not_wait(tmp_path):
    started = time.monotonic()
    with (
        pytest.raises(ZeroDivisionError),
        Collector(tmp_path / "all.h5", wait_s=10 * PATIENCE_S) as collector,
    ):
        collector.connect(World(rank=0, size=2)).append("x", [1])
        raise ZeroDivisionError
    assert time.monotonic() - started < PATIENCE_S
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["x"][:].tolist() == [1]
