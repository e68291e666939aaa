"""A collector without memory, with connections of strangers, and with a second one on another mount.

Covers `shardkeep.collector.protocol.limits`.
"""

import contextlib
import json
import os
import resource
import subprocess
import threading

import h5py
import numpy as np
import pytest
import zmq

from shardkeep.collector.protocol.keys import new_key
from shardkeep.errors import CollectorError, LockError, LockTimeoutError
from shardkeep.hdf5 import Collector, connect
from shardkeep.world import World
from tests.procs.collector_run import collecting, start_collector
from tests.procs.test_collector_lies import peak_bytes
from tests.waiting import PATIENCE_S


def _address_space(pid):
    with open(f"/proc/{pid}/status") as status:
        return int(status.read().split("VmSize:")[1].split()[0]) << 10


def test_acknowledged_rows_survive_a_lack_of_memory(tmp_path):
    """The collector may continue or end."""
    path = tmp_path / "all.h5"
    collector = start_collector(path, durability="flush")
    client = connect(collector.address, World(rank=0, size=1), timeout_s=20)
    client.append("x", np.arange(10))
    client.flush()
    acknowledged = 10
    limit = _address_space(collector.pid) + (6 << 20)
    resource.prlimit(collector.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    with contextlib.suppress(CollectorError):
        for number in range(20):
            client.declare(f"packed/{number}", "i8", (1024,), compression="gzip", chunk_rows=512)
            client.append(f"packed/{number}", np.zeros((512, 1024), "i8"))
            client.append("x", [10 + number])
            client.flush(timeout_s=5)
            acknowledged += 1
    resource.prlimit(collector.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    if collector.process.is_alive():
        client.timeout_s = PATIENCE_S
        os.kill(collector.pid, 15)
    collector.join()
    client.timeout_s = 0.1
    with contextlib.suppress(CollectorError):
        client.close()
    with collecting(path):
        pass
    with h5py.File(path) as file:
        rows = file["x"][:].tolist()
    assert rows == list(range(len(rows)))
    assert len(rows) >= acknowledged


def _connect_as_stranger(address, keys, stop):
    """Connect with a wrong key, with none, and with no ZeroMQ at all, again and again."""
    with zmq.Context() as context:
        while not stop.is_set():
            sockets = []
            for key in keys * 4:
                one = context.socket(zmq.DEALER)
                one.linger = 0
                if key is not None:
                    one.curve_serverkey, one.curve_publickey, one.curve_secretkey = key
                one.connect(address)
                one.send(bytes(1 << 16), zmq.NOBLOCK)
                sockets.append(one)
            stop.wait(0.05)
            for one in sockets:
                one.close()


def test_strangers_do_not_disturb_clients(tmp_path):
    key, client_key = new_key(str(tmp_path / "key"))
    mine = json.loads((tmp_path / "key.client").read_text())
    public, secret = zmq.curve_keypair()
    wrong = mine["server"].encode(), public, secret
    stop = threading.Event()
    options = {"key_file": key, "memory_bytes": 32 << 20, "durability": "flush"}
    with Collector(tmp_path / "all.h5", "tcp://127.0.0.1:*", **options) as collector:
        before = peak_bytes(collector.pid)
        strangers = [
            threading.Thread(target=_connect_as_stranger, args=(collector.address, [wrong, None], stop))
            for _ in range(2)
        ]
        for one in strangers:
            one.start()
        try:
            clients = [
                connect(collector.address, World(rank, 2), key_file=client_key, timeout_s=PATIENCE_S)
                for rank in range(2)
            ]
            for number in range(400):
                for client in clients:
                    client.append("x", np.full((8, 1024), 2 * number + client.rank))
            for client in clients:
                client.close()
        finally:
            stop.set()
            for one in strangers:
                one.join()
        assert peak_bytes(collector.pid) - before < 32 << 20
    with h5py.File(tmp_path / "all.h5") as file:
        assert sorted(file["x"][:, 0].tolist()) == np.repeat(np.arange(800), 8).tolist()


@pytest.fixture
def two_mounts(tmp_path):
    """Yield a folder and the place where it is mounted a second time."""
    folder, other = tmp_path / "folder", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    try:
        done = subprocess.run(["mount", "--bind", folder, other], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command here")
    if done.returncode:
        pytest.skip(f"a second mount needs root: {done.stderr.strip()}")
    try:
        yield folder, other
    finally:
        subprocess.run(["umount", "-l", str(other)], check=True)


def test_a_second_collector_by_another_mount_is_refused(two_mounts):
    folder, other = two_mounts
    with collecting(folder / "all.h5") as collector, collector.connect(World(rank=0, size=1)) as client:
        client.append("x", [1])
        client.flush()
        with pytest.raises((LockTimeoutError, LockError)):
            Collector(other / "all.h5")
        with connect(other / "all.h5", World(rank=0, size=1), timeout_s=PATIENCE_S) as second:
            second.append("x", [2])
        client.append("x", [3])
    with h5py.File(folder / "all.h5") as file:
        assert sorted(file["x"][:].tolist()) == [1, 2, 3]
