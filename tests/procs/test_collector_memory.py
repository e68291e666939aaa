"""The memory of a collector, in what is not under way but kept."""

import os
import time
from pathlib import Path

import h5py
import numpy as np

from shardkeep.hdf5 import connect, snapshot
from shardkeep.hdf5.collect.events import Events
from shardkeep.hdf5.collect.running import run
from shardkeep.hdf5.collect.settings import Settings
from shardkeep.world import World
from tests.procs.collector_run import collecting, start, stop
from tests.waiting import PATIENCE_S, eventually

MEMORY_BYTES = 16 << 20


def _resident_bytes(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


def _shows(path, name):
    with snapshot(path) as file:
        return name in file


def test_a_reader_that_never_ends_and_rows_by_number(tmp_path):
    """Rows by number change what commits speak of; nothing of that may pile up until the reader ends."""
    path, row_bytes, count = tmp_path / "all.h5", 128 << 10, 640
    with (
        collecting(path, memory_bytes=MEMORY_BYTES, durability="flush") as collector,
        collector.connect(World(rank=0, size=1)) as client,
    ):
        client.timeout_s = PATIENCE_S
        client.declare("x", "u1", (row_bytes,), rows=count, chunk_rows=16)
        numbers = np.arange(count)
        blank = np.zeros((1, row_bytes), "u1")
        for number in numbers[::16]:  # now commits speak of every chunk
            client.append("x", blank, key=[number])
        client.flush()
        eventually(lambda: _shows(path, "x"))
        with snapshot(path) as file:
            before = file["x"].shape, list(file), _resident_bytes(collector.pid)
            for number in numbers[numbers % 16 > 0]:
                client.append("x", np.full((1, row_bytes), number % 256, "u1"), key=[number])
            client.append("new", 1.0)
            client.flush()
            time.sleep(0.2)
            assert (file["x"].shape, list(file)) == before[:2]
            grown = _resident_bytes(collector.pid) - before[2]
    assert grown < 2 * MEMORY_BYTES < row_bytes * count // 2
    with h5py.File(path) as file:
        assert (file["x"][:, -1] == np.where(numbers % 16, numbers % 256, 0)).all()
        assert len(file["new"]) == 1


def _send(write_end, place, clients, megabytes):
    all_of_them = [
        connect(place, World(rank=rank, size=clients), timeout_s=PATIENCE_S, memory_bytes=4 << 20)
        for rank in range(clients)
    ]
    rows = np.zeros((16, 8192), "u1")
    for _ in range(megabytes * 8 // clients):
        for client in all_of_them:
            client.append("x", rows)
    for client in all_of_them:
        client.close()


class _Slow(Events):
    """Has every round of the collector's loop take a while: clients could send far more than it takes."""

    def progress(self, *values):
        time.sleep(0.03)


def _collect_slowly(write_end, path, memory_bytes):
    settings = Settings(path, "", memory_bytes=memory_bytes, durability="flush")
    run(settings, _Slow(None), ready=lambda address: os.write(write_end, address.encode()))


def test_many_clients_that_send_more_than_fits(tmp_path):
    path, megabytes, clients = tmp_path / "all.h5", 120, 60
    collector = start(_collect_slowly, str(path), MEMORY_BYTES)
    address = collector.wait_for_word().decode()
    before = _resident_bytes(collector.pid)
    sender = start(_send, address, clients, megabytes)
    assert sender.join() == 0
    grown = _resident_bytes(collector.pid) - before
    stop(collector)
    # Beside the rows: what Python and HDF5 take at their first use, and 60 connections.
    assert grown < 2 * MEMORY_BYTES < megabytes << 19
    with h5py.File(path) as file:
        assert len(file["x"]) == megabytes * 8 // clients * clients * 16
