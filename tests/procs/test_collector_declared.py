"""Declared datasets that are in no commit when the collector is killed."""

import os
import signal

import h5py
import numpy as np
import pytest

from shardkeep.errors import SchemaError
from shardkeep.hdf5 import connect, snapshot
from shardkeep.world import World
from tests.procs.collector_run import flag, start, start_collector, stop
from tests.waiting import PATIENCE_S, eventually


def _client(place, **options):
    return connect(place, World(rank=0, size=1), timeout_s=PATIENCE_S, **options)


@pytest.mark.parametrize("name", ["x", "keyed"])
def test_a_declaration_is_durable_after_flush(tmp_path, name):
    collector = start_collector(tmp_path / "all.h5")
    client = _client(tmp_path)
    client.declare(name, "f4", (2,), rows=3 if name == "keyed" else None)
    client.flush()
    collector.kill()
    collector.join()
    with snapshot(tmp_path / "all.h5") as file:
        assert (file[name].shape, file[name].dtype) == ((3 if name == "keyed" else 0, 2), "f4")
    collector = start_collector(tmp_path / "all.h5")
    client.close()
    stop(collector)


@pytest.mark.parametrize("count", [1200, pytest.param(2500, marks=pytest.mark.slow)])  # ZeroMQ queues 1,000
def test_many_datasets_are_declared_again_before_their_rows(tmp_path, count):
    names = [f"m/{number}" for number in range(count)]
    collector = start_collector(tmp_path / "all.h5", durability="flush")
    with _client(tmp_path) as client:
        client.declare(names, "<i2", attributes={"unit": "m"})
        collector.kill()
        collector.join()
        for number, name in enumerate(names):
            client.append(name, np.full(2, number, "<i2"))
        collector = start_collector(tmp_path / "all.h5", durability="flush")
    stop(collector)
    with h5py.File(tmp_path / "all.h5") as file:
        for number, name in enumerate(names):
            assert file[name][:].tolist() == [number] * 2
        assert file[names[0]].attrs["unit"] == file[names[-1]].attrs["unit"] == "m"


def _declare_differently(write_end, place, go_on):
    client = _client(place)
    client.declare(["x", "y"], "f8")
    os.write(write_end, b"declared")
    eventually(lambda: go_on.value)
    client.append("x", [1.5, 2.5])
    client.append("y", [1.5, 2.5])
    os.write(write_end, b"appended")
    errors = []

    def works(call, *values):
        try:
            call(*values)
        except SchemaError as error:
            errors.append(str(error))
            return False
        return True

    # In any order: an error about the declaration, and one about the rows. Each may come twice, as a
    # collector that has just started may receive HELLO twice.
    for wanted in ("was made again with int64 rows", "2 rows of this client are not stored"):
        eventually(lambda wanted=wanted: works(client.flush) and any(wanted in one for one in errors), wanted)
    eventually(lambda: works(client.append, "y", [3.5]))
    works(client.close)


def test_rows_are_refused_after_another_client_declares_a_lost_dataset_differently(tmp_path):
    path = tmp_path / "all.h5"
    go_on = flag()
    go_on.value = 0
    collector = start_collector(path)
    with _client(tmp_path) as other:
        other.declare("y", "f8")
    child = start(_declare_differently, str(tmp_path), go_on)
    assert child.wait_for_word() == b"declared"
    os.kill(collector.pid, signal.SIGSTOP)  # it stores nothing more
    go_on.value = 1
    assert child.wait_for_word() == b"appended"
    os.kill(child.pid, signal.SIGSTOP)
    collector.kill()
    collector.join()
    for one in (path, f"{path}.redo"):
        os.unlink(one)
    collector = start_collector(path)
    with _client(tmp_path) as other:
        other.append("x", [7])
    os.kill(child.pid, signal.SIGCONT)
    assert child.join() == 0
    stop(collector)
    with h5py.File(path) as file:
        assert file["x"][:].tolist() == [7]
        assert file["y"][:].tolist() == [1.5, 2.5, 3.5]
