"""The memory of a collector for rows, datasets and messages.

Covers `shardkeep.collector.store.datasets`.
"""

import os
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from shardkeep.collector.protocol.messages import Kind, Part
from shardkeep.collector.protocol.settings import Settings
from shardkeep.collector.server.events import Events
from shardkeep.collector.server.process import run
from shardkeep.errors import SchemaError
from shardkeep.hdf5 import connect, snapshot
from shardkeep.world import World
from tests.procs.collector_run import collecting, start, stop
from tests.procs.lying_client import LyingClient
from tests.waiting import PATIENCE_S, eventually

MEMORY_BYTES = 16 << 20


def _resident_bytes(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


def _shows(path, name):
    with snapshot(path) as file:
        return name in file


def test_an_endless_reader_does_not_raise_the_memory_of_rows_by_number(tmp_path):
    """Rows by number change committed bytes; these changes must not accumulate until the reader ends."""
    path, row_bytes, count = tmp_path / "all.h5", 128 << 10, 640
    with (
        collecting(path, memory_bytes=MEMORY_BYTES, durability="flush") as collector,
        collector.connect(World(rank=0, size=1)) as client,
    ):
        client.timeout_s = PATIENCE_S
        client.declare("x", "u1", (row_bytes,), rows=count, chunk_rows=16)
        numbers = np.arange(count)
        blank = np.zeros((1, row_bytes), "u1")
        for number in numbers[::16]:  # now every chunk is committed
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
    """Events that make each step of the loop slow: clients can send more than the collector receives."""

    def progress(self, *values):
        time.sleep(0.03)

    def refused(self, *values):
        time.sleep(0.02)


def _collect_slowly(write_end, path, memory_bytes):
    # One of the clients never says goodbye.
    settings = Settings(path, "", memory_bytes=memory_bytes, durability="flush", drain_s=1)
    run(settings, _Slow(None), ready=lambda address: os.write(write_end, address.encode()))


def test_many_clients_together_stay_under_the_limit(tmp_path):
    path, megabytes, clients = tmp_path / "all.h5", 72, 36
    collector = start(_collect_slowly, str(path), MEMORY_BYTES)
    address = collector.wait_for_word().decode()
    before = _resident_bytes(collector.pid)
    sender = start(_send, address, clients, megabytes)
    assert sender.join() == 0
    grown = _resident_bytes(collector.pid) - before
    stop(collector)
    # In addition to the rows: memory of Python and HDF5 at their first use, and of the connections.
    assert grown < 2 * MEMORY_BYTES < megabytes << 19
    with h5py.File(path) as file:
        assert len(file["x"]) == megabytes * 8 // clients * clients * 16


def test_a_client_that_sends_without_credit_stays_under_the_limit(tmp_path):
    """ZeroMQ holds only a few messages of each client."""
    path = tmp_path / "all.h5"
    collector = start(_collect_slowly, str(path), MEMORY_BYTES)
    address = collector.wait_for_word().decode()
    with connect(address, World(rank=1, size=2), timeout_s=PATIENCE_S) as client:
        liar = LyingClient(address, sndhwm=1000)
        liar.receive(Kind.WELCOME)
        liar.declare("x")
        before, data = _resident_bytes(collector.pid), bytes(MEMORY_BYTES // 8)
        for _ in range(120):
            liar.batch([Part("x", 1, len(data))], data)
        liar.flush()
        client.append("y", 1.0)
    liar.close()
    grown = _resident_bytes(collector.pid) - before
    stop(collector)
    assert grown < 4 * MEMORY_BYTES < 120 * len(data) // 3


SMALL_BYTES = 64 << 20


def _fill_compressed(client, count):
    """Unfinished chunks of 512 KB of many datasets."""
    names = [f"packed/{number}" for number in range(count)]
    client.declare(names, "i8", (1024,), compression="gzip", compression_level=1, chunk_rows=64)
    rows = np.arange(16 * 1024).reshape(16, 1024)
    for _ in range(2):
        for name in names:
            client.append(name, rows)
    client.flush()
    return lambda file: all((file[name][:] == np.tile(rows, (2, 1))).all() for name in names)


def _put_many(client, count):
    # Without waiting for each one, which would be a commit.
    on_full, client._open_calls()._on_full = client._open_calls()._on_full, "spill"
    for number in range(count):
        client.put(f"values/{number}", np.full(2048, number))
    client._open_calls()._on_full = on_full
    client.flush()
    return lambda file: all((file[f"values/{number}"][:] == number).all() for number in range(0, count, 100))


def _declare_many(client, count):
    names = [f"many/{number}" for number in range(count)]
    client.declare(names, "f8")
    for name in names:
        client.append(name, 1.5)
    client.flush()
    return lambda file: all(file[name][:].tolist() == [1.5] for name in names[::100])


def _number_many(client, count):
    names = [f"numbered/{number}" for number in range(count)]
    client.declare(names, "i8", rows=1 << 22)
    keys = np.random.default_rng(1).permutation(1 << 22)[:4000]
    for name in names:
        client.append(name, keys, key=keys)
    client.flush()
    return lambda file: all((file[name][:][keys] == keys).all() for name in names)


@pytest.mark.parametrize(
    ("fill", "count"),
    [
        *((_fill_compressed, 250), (_put_many, 300), (_declare_many, 1000), (_number_many, 5)),
        pytest.param(_fill_compressed, 500, marks=pytest.mark.slow),
        pytest.param(_put_many, 10_000, marks=pytest.mark.slow),
        pytest.param(_declare_many, 2500, marks=pytest.mark.slow),
        pytest.param(_number_many, 40, marks=pytest.mark.slow),
    ],
)
def test_datasets_values_and_text_stay_under_the_limit(tmp_path, fill, count):
    path = tmp_path / "all.h5"
    with collecting(path, memory_bytes=SMALL_BYTES, durability="flush", drain_s=60) as collector:
        before = _resident_bytes(collector.pid)
        with connect(collector.address, World(rank=0, size=1), timeout_s=PATIENCE_S) as client:
            is_right = fill(client, count)
        assert _resident_bytes(collector.pid) - before < SMALL_BYTES
    with h5py.File(path) as file:
        assert is_right(file)


def _is_done(call, *args):
    try:
        call(*args)
    except SchemaError:  # of another dataset
        return False
    return True


def test_datasets_beyond_the_memory_are_refused(tmp_path):
    with (
        collecting(tmp_path / "all.h5", memory_bytes=MEMORY_BYTES, durability="flush") as collector,
        connect(collector.address, World(rank=0, size=1), timeout_s=PATIENCE_S) as client,
    ):
        client.append("first", 1.0)
        before = _resident_bytes(collector.pid)
        with pytest.raises(SchemaError, match=r"no memory for more datasets than its \d+: give it \d+ MB"):
            client.declare([f"{'long ' * 1000}{number}" for number in range(300)], "f4")
        eventually(lambda: _is_done(client.append, "first", 2.0))
        eventually(lambda: _is_done(client.flush))
        assert _resident_bytes(collector.pid) - before < 2 * MEMORY_BYTES
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["first"][:].tolist() == [1.0, 2.0]
