"""Faults around a collector: strangers, full disks, slow clients, forks."""

import contextlib
import errno
import os
import pickle
import random
import signal
import socket
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import h5py
import numpy as np
import pytest
import zmq

from shardkeep.collector.protocol.messages import Kind, pack
from shardkeep.errors import CollectorError, DurabilityError, ExistsError, LockTimeoutError
from shardkeep.hdf5 import Collector, connect, snapshot
from shardkeep.world import World
from tests.procs.collector_run import Child, start, start_collector, stop
from tests.small_disk import mounted
from tests.waiting import PATIENCE_S, eventually


@pytest.fixture
def small_disk(tmp_path):
    with mounted(tmp_path / "small", "8m") as folder:
        yield folder


def test_a_full_disk_is_an_error_of_the_client_until_there_is_room(small_disk, tmp_path):
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(5 << 20))
    collector = start_collector(small_disk / "all.h5")
    with connect(small_disk, World(rank=0, size=1), timeout_s=PATIENCE_S) as client:
        acknowledged = 0
        with pytest.raises(CollectorError, match="No space left"):
            for row in range(200):
                client.append("x", np.full((16, 256), row))
                client.flush()
                acknowledged = row + 1
        assert acknowledged > 5
        ballast.unlink()
        deadline = time.monotonic() + PATIENCE_S
        while True:  # the rows of the failed call are kept and sent now
            try:
                client.flush()
                break
            except CollectorError:
                assert time.monotonic() < deadline
        client.append("x", np.full((16, 256), acknowledged + 1))
    stop(collector)
    with h5py.File(small_disk / "all.h5") as file:
        assert (file["x"][:, 0] == np.repeat(np.arange(acknowledged + 2), 16)).all()


def _limited(write_end, path):
    import resource

    from shardkeep.collector.store.store import Store

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = Store(path, synced=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
    from shardkeep.collector.protocol.schema import Schema
    from shardkeep.errors import DurabilityError

    store.declare(Schema("x", np.dtype("f8"), (), 1 << 16))
    try:
        for _ in range(300):
            store.append("x", memoryview(bytes(8192)), 1024)
            store.commit()
            os.write(write_end, b".")
    except DurabilityError as error:
        assert error.errno == errno.EFBIG
    store.abandon().release()


def test_a_limit_of_the_file_size_is_an_error_of_the_client(tmp_path):
    child = start(_limited, str(tmp_path / "all.h5"))
    assert child.join() == 0
    commits = len(child.said())
    assert commits > 20
    with snapshot(tmp_path / "all.h5") as file:
        assert len(file["x"]) == commits * 1024


def test_a_second_collector_and_a_file_of_another_program_are_refused(tmp_path):
    with Collector(tmp_path / "all.h5") as collector:
        with pytest.raises(LockTimeoutError, match="is locked by") as caught:
            Collector(tmp_path / "all.h5")
        assert caught.value.path == str(tmp_path / "all.h5")
        with collector.connect(World()) as client:
            client.append("x", [1])
    with h5py.File(tmp_path / "mine.h5", "w") as file:
        file["y"] = 1
    with pytest.raises(ExistsError, match="was not written by a collector"):
        Collector(tmp_path / "mine.h5")


def _state_of(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2]
    except FileNotFoundError:
        return "gone"


def _slow(write_end, place):
    with connect(place, World(rank=0, size=3), timeout_s=PATIENCE_S) as client:
        for row in range(20):
            client.append("x", np.full((4, 4096), row))
            os.kill(os.getpid(), signal.SIGSTOP) if row == 10 else time.sleep(0.01)


def _fast(write_end, place, rank):
    with connect(place, World(rank=rank, size=3), timeout_s=PATIENCE_S) as client:
        for row in range(200):
            client.append("y", np.full((4, 4096), row))


def test_a_slow_client_does_not_delay_others(tmp_path):
    collector = start_collector(tmp_path / "all.h5", memory_bytes=32 << 20)
    slow = start(_slow, str(tmp_path))
    eventually(lambda: _state_of(slow.pid) == "T", "the slow one has not come to its stop")
    fast = [start(_fast, str(tmp_path), rank) for rank in (1, 2)]
    for one in fast:
        assert one.join() == 0
    assert _state_of(slow.pid) == "T"
    os.kill(slow.pid, signal.SIGCONT)
    assert slow.join() == 0
    stop(collector)
    with h5py.File(tmp_path / "all.h5") as file:
        assert (file["x"][:, 0] == np.repeat(np.arange(20), 4)).all()
        assert len(file["y"]) == 1600


def _garbage(chance):
    kind = chance.choice(list(Kind))
    frames = pack(
        kind, sequence=chance.getrandbits(64), value=chance.getrandbits(64), parts=chance.choice([0, 1, 99])
    )
    frames += [chance.randbytes(chance.choice([0, 1, 24, 300])) for _ in range(chance.randrange(3))]
    if chance.random() < 0.5:
        frames = [bytearray(one) for one in frames]
        one = chance.choice(frames)
        for _ in range(chance.randrange(1, 4)):
            if one:
                one[chance.randrange(len(one))] = chance.randrange(256)
    return frames


def test_garbage_on_the_socket_does_not_disturb_clients(tmp_path):
    collector = start_collector(tmp_path / "all.h5")
    path = collector.address.removeprefix("ipc://")
    chance = random.Random(1)
    context = zmq.Context()
    with connect(tmp_path, World(rank=0, size=1)) as client:
        strangers = [context.socket(zmq.DEALER) for _ in range(3)]
        for one in strangers:
            one.linger = 0
            one.connect(collector.address)
        for row in range(300):
            client.append("x", [row])
            strangers[row % 3].send_multipart(_garbage(chance))
            if row % 30 == 0:
                with socket.socket(socket.AF_UNIX) as raw:  # no ZeroMQ at all, or a huge length
                    raw.connect(path)
                    raw.sendall(chance.choice([b"GET / HTTP/1.0\r\n\r\n", b"\xff" + b"\xff" * 200, b""]))
            if row % 100 == 0:
                client.flush()
        # A client that sends a valid HELLO, and then garbage and an enormous length.
        known = {"id": "00" * 16, "rank": 1, "world_size": 2, "pid": 1, "host": "nowhere"}
        strangers[0].send_multipart(pack(Kind.HELLO, data=known))
        for _ in range(100):
            strangers[0].send_multipart(_garbage(chance))
        strangers[1].send_multipart([b"SK", bytes(60 << 20)])
        client.flush()
    for one in strangers:
        one.close()
    context.term()
    stop(collector)
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["x"][:].tolist() == list(range(300))
    assert "refused" in (tmp_path / "all.h5.log").read_text()


class _Twice:
    """A relay between a client and the collector that sends each message again."""

    def __init__(self, address, mine):
        self.context = zmq.Context()
        self.front, self.back = self.context.socket(zmq.ROUTER), self.context.socket(zmq.DEALER)
        self.front.bind(mine)
        self.back.connect(address)

    def run(self):
        poller = zmq.Poller()
        poller.register(self.front, zmq.POLLIN)
        poller.register(self.back, zmq.POLLIN)
        route, kept = b"", []
        while True:
            ready = dict(poller.poll())
            if self.front in ready:
                route, *frames = self.front.recv_multipart()
                kept = [*kept[-20:], frames]
                for one in (frames, *kept):
                    self.back.send_multipart(one)
            if self.back in ready:
                self.front.send_multipart([route, *self.back.recv_multipart()])


def _relay(write_end, address, mine):
    relay = _Twice(address, mine)
    os.write(write_end, b"ready")
    relay.run()


def test_replayed_messages_are_stored_once(tmp_path):
    collector = start_collector(tmp_path / "all.h5")
    mine = f"ipc://{tmp_path}/relay"
    relay = start(_relay, collector.address, mine)
    relay.wait_for_word()
    client = connect(mine, World(rank=0, size=1))
    for row in range(300):
        client.append("x", [row])
        if row % 50 == 0:
            client.flush()
    client.flush()
    client.close()
    relay.kill()
    relay.join()
    stop(collector)
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["x"][:].tolist() == list(range(300))


def _in_child(client, row):
    client.append("x", [row])
    client.flush()
    client.close()
    return client.rank


def test_a_client_works_in_forked_and_spawned_processes(tmp_path):
    with Collector(tmp_path / "all.h5") as collector:
        with collector.connect(World(rank=0, size=1)) as client:
            client.append("x", [1])
            child = Child(lambda write_end: _in_child(client, 2))
            assert child.join() == 0
            client.append("x", [3])
            client.flush()
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                assert pool.submit(_in_child, client, 4).result() == 0
        copy = pickle.loads(pickle.dumps(collector))
        assert (copy.address, copy.pid) == (collector.address, None)
        copy.close()
        child = Child(lambda write_end: collector.close())
        assert child.join() == 0
        assert collector.pid is not None
    with h5py.File(tmp_path / "all.h5") as file:
        assert sorted(file["x"][:].tolist()) == [1, 2, 3, 4]


def _owner(write_end, path):
    collector = Collector(path, drain_s=PATIENCE_S)
    client = collector.connect(World(rank=0, size=1))
    client.append("x", [1])
    client.flush()
    os.write(write_end, str(collector.pid).encode())
    time.sleep(60)


def test_a_collector_drains_when_its_parent_dies(tmp_path):
    owner = start(_owner, str(tmp_path / "all.h5"))
    pid = int(owner.wait_for_word())
    other = connect(tmp_path, World(rank=0, size=1))
    other.append("x", [2])
    owner.kill()
    owner.join()
    eventually(lambda: _state_of(pid) in ("gone", "Z"))
    with pytest.raises(CollectorError, match="has stopped"):
        other.append("x", [3])
    other.close()
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["x"][:].tolist() == [1, 2]
    assert sorted(os.listdir(tmp_path)) == ["all.h5"]


def _spiller(write_end, place, folder):
    client = connect(place, World(rank=0, size=1), on_full="spill", spill_dir=folder, memory_bytes=1 << 16)
    for row in range(100):
        client.append("x", np.full((64, 64), row))
    deadline = time.monotonic() + PATIENCE_S
    state = client._state
    # In the guard: not while the thread drains the rows into the file.
    while state.run(lambda: bool(state.submitted or state.dirty)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.write(write_end, b"all of it")
    time.sleep(60)


def test_rows_wait_on_a_local_disk_for_a_collector(tmp_path):
    (tmp_path / "run").mkdir()
    child = start(_spiller, str(tmp_path / "run"), str(tmp_path / "spill"))
    child.wait_for_word()
    child.kill()
    child.join()
    assert len([name for name in os.listdir(tmp_path / "spill") if name.endswith(".spill")]) == 1
    collector = start_collector(tmp_path / "run/all.h5")
    options = {"on_full": "spill", "spill_dir": tmp_path / "spill", "memory_bytes": 1 << 16}
    with connect(tmp_path / "run", World(rank=0, size=1), timeout_s=PATIENCE_S, **options) as client:
        client.flush()  # the rest is sent before this client declares a dataset
        client.declare("x", "i8", (64,))
        client.append("x", np.full((64, 64), 100))
    stop(collector)
    assert os.listdir(tmp_path / "spill") == []
    with h5py.File(tmp_path / "run/all.h5") as file:
        rows = file["x"][:, 0]
    # Rows in memory only, before the first batch without room, were lost with their process.
    assert (rows == np.repeat(np.arange(rows[0], 101), 64)[-len(rows) :]).all()


@pytest.fixture
def disk_with_ballast(tmp_path):
    """Yield a small disk with room for the rows in memory of clients after the ballast is removed."""
    with mounted(tmp_path / "small", "24m") as folder:
        (folder / "ballast").write_bytes(bytes(20 << 20))
        yield folder


def test_a_full_spill_disk_is_an_error_until_there_is_room(disk_with_ballast, tmp_path):
    small_disk = disk_with_ballast
    ballast = small_disk / "ballast"
    collector = start_collector(tmp_path / "all.h5", durability="flush")
    options = {"on_full": "spill", "spill_dir": small_disk, "memory_bytes": 1 << 20, "timeout_s": 20}
    client = connect(tmp_path, World(rank=0, size=1), **options)
    client.append("x", np.zeros((0, 1024), "i8"))
    client.append("loss", 0.0)
    client.flush()
    os.kill(collector.pid, signal.SIGSTOP)
    try:
        added, losses = 0, [0.0]
        for _ in range(3):
            with pytest.raises(DurabilityError, match="No space left"):
                while added < 1000:
                    client.append("x", np.full((16, 1024), added))
                    added += 1
            # Sent rows stay in memory, and later ones may find room on the disk.
            with contextlib.suppress(DurabilityError):
                client.append("loss", 1.0)
                losses.append(1.0)
        ballast.unlink()  # room again, although the collector still does nothing
        for _ in range(10):
            client.append("x", np.full((16, 1024), added))
            added += 1
    finally:
        os.kill(collector.pid, signal.SIGCONT)
    client.append("loss", 2.0)
    client.close()
    stop(collector)
    with h5py.File(tmp_path / "all.h5") as file:
        assert (file["x"][:, 0] == np.repeat(np.arange(added), 16)).all()
        assert file["loss"][:].tolist() == [*losses, 2.0]
    assert os.listdir(small_disk) == []


def test_undelivered_rows_of_a_spilling_client_are_sent_by_the_next_one(tmp_path):
    collector = start_collector(tmp_path / "all.h5", durability="flush")
    options = {"on_full": "spill", "spill_dir": tmp_path / "spill", "timeout_s": 1}
    client = connect(tmp_path, World(rank=0, size=1), **options)
    client.append("x", [0])
    client.flush(20)
    os.kill(collector.pid, signal.SIGSTOP)
    try:
        client.append("x", [1, 2])
        with pytest.raises(CollectorError, match="did not make the rows durable within 1 s"):
            client.close()
    finally:
        os.kill(collector.pid, signal.SIGCONT)
    with connect(tmp_path, World(rank=0, size=1), **{**options, "timeout_s": 20}) as client:
        client.append("x", [3])
    stop(collector)
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["x"][:].tolist() == [0, 1, 2, 3]
    assert os.listdir(tmp_path / "spill") == []


def test_threads_share_a_client(tmp_path):
    collector = start_collector(tmp_path / "all.h5", durability="flush")
    client = connect(tmp_path, World(rank=0, size=1), timeout_s=60, memory_bytes=1 << 19)
    client.append("scalar", np.zeros(0, "i8"))
    client.append("array", np.zeros((0, 16), "i8"))

    def work(mine):
        for number in range(1, 40_001):
            client.append("scalar", mine * 100_000 + number)
            if number % 100 == 0:
                client.append("array", np.full((20, 16), mine * 100_000 + number))
            if number % 10_000 == 0:
                client.append(f"of/{mine}", [str(number)])
                client.append("many", np.full((150_000,), mine * 100_000 + number))
                client.flush()

    os.kill(collector.pid, signal.SIGSTOP)  # until all of them wait for room
    goes_on = threading.Timer(1.0, os.kill, (collector.pid, signal.SIGCONT))
    goes_on.start()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    goes_on.join()
    client.close()
    stop(collector)
    with h5py.File(tmp_path / "all.h5") as file:
        for name, step, times in (("scalar", 1, 1), ("array", 100, 20), ("many", 10_000, 150_000)):
            rows = file[name][:] if name != "array" else file[name][:, 0]
            for mine in range(8):
                wanted = mine * 100_000 + np.repeat(np.arange(step, 40_001, step), times)
                assert np.array_equal(rows[rows // 100_000 == mine], wanted), (name, mine)
        assert all(file[f"of/{mine}"].shape == (4,) for mine in range(8))


def _many(write_end, place, first, count):
    clients = [connect(place, World(rank=first + i, size=1000), timeout_s=PATIENCE_S) for i in range(count)]
    for client in clients:
        client.append("loss", float(client.rank))
    for client in clients:
        client.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_thousand_clients(tmp_path):
    collector = start_collector(tmp_path / "all.h5", until_done=True)
    children = [start(_many, str(tmp_path), first, 100) for first in range(0, 1000, 100)]
    for child in children:
        assert child.join() == 0
    assert collector.join() == 0
    with h5py.File(tmp_path / "all.h5") as file:
        assert sorted(file["loss"][:].tolist()) == list(range(1000))
        assert len(file["_collector/clients"]) == 1000
