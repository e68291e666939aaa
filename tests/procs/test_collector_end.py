"""When a run ends by itself, although its collector was killed and started again in between."""

import h5py
import pytest

from shardkeep.hdf5 import connect
from shardkeep.hdf5.collect.events import Events
from shardkeep.hdf5.collect.running import recover_file
from shardkeep.world import World
from tests.procs.collector_run import start_collector


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
def test_who_left_before_a_kill_counts(tmp_path, how):
    path = tmp_path / "all.h5"
    collector = start_collector(path, until_done=True)
    _one_client(tmp_path, 0)
    _kill(collector)
    if how == "recovered":
        recover_file(str(path), Events(None))
    collector = start_collector(path, until_done=True)
    _one_client(tmp_path, 1)
    assert collector.join(30) == 0
    assert _rows(path) == [0, 1]


def test_it_ends_at_once_if_everybody_had_left(tmp_path):
    path = tmp_path / "all.h5"
    first = start_collector(path)
    for rank in range(2):
        _one_client(tmp_path, rank)
    _kill(first)
    assert start_collector(path, until_done=True).join(30) == 0
    assert _rows(path) == [0, 1]


def test_the_next_run_on_the_same_file_counts_anew(tmp_path):
    path = tmp_path / "all.h5"
    for _ in range(2):
        collector = start_collector(path, until_done=True)
        for rank in range(2):
            assert collector.process.is_alive()
            _one_client(tmp_path, rank)
        assert collector.join(30) == 0
    assert _rows(path) == [0, 0, 1, 1]


def test_a_run_that_begins_anew_after_a_kill_counts_anew(tmp_path):
    path = tmp_path / "all.h5"
    collector = start_collector(path, until_done=True)
    _one_client(tmp_path, 0)
    lost = connect(tmp_path, World(rank=1, size=2))
    lost.append("x", [1])
    lost.flush()
    _kill(collector)
    lost._link.leave(0.0)  # it never comes again: its process was killed with the collector
    collector = start_collector(path, until_done=True)
    with connect(tmp_path, World(rank=1, size=2)) as client:  # rank 1 of the next attempt
        client.append("x", [1])
    assert collector.process.is_alive()  # rank 0 comes again as well
    _one_client(tmp_path, 0)
    assert collector.join(30) == 0
    assert _rows(path) == [0, 0, 1, 1]
