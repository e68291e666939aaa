"""A collector in another network namespace, over TCP with keys; the connection is cut and restored.

Covers `shardkeep.collector.protocol.keys` and `shardkeep.collector.protocol.zeromq`.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import h5py
import numpy as np
import pytest
import zmq

from shardkeep.collector.client import shutdown
from shardkeep.collector.protocol.keys import client_key_path, new_key
from shardkeep.errors import CollectorError, PlanError
from shardkeep.hdf5 import Collector, connect
from shardkeep.world import World
from tests.waiting import PATIENCE_S, eventually

WORLD = World(rank=0, size=1)


def _ip(*words):
    try:
        return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no ip command here")


@pytest.fixture
def other_host():
    """Yield (name of a namespace, its address, our end of the cable)."""
    name, ours = f"sk{os.getpid()}", f"skv{os.getpid() % 100000}"
    # Concurrent runs of these tests use different networks.
    network = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
    made = _ip("netns", "add", name)
    if made.returncode:
        pytest.skip(f"no network namespace can be made here: {made.stderr.strip()}")
    try:
        steps = [
            ("link", "add", ours, "type", "veth", "peer", "name", "eth0", "netns", name),
            ("addr", "add", f"{network}.1/24", "dev", ours),
            ("link", "set", ours, "up"),
            ("-n", name, "addr", "add", f"{network}.2/24", "dev", "eth0"),
            ("-n", name, "link", "set", "eth0", "up"),
            ("-n", name, "link", "set", "lo", "up"),
        ]
        for step in steps:
            done = _ip(*step)
            if done.returncode:
                pytest.skip(f"no cable between namespaces here: {done.stderr.strip()}")
        yield name, f"{network}.2", ours
    finally:
        _ip("link", "del", ours)
        _ip("netns", "del", name)


def _collect_there(name, path, key, *options):
    command = [
        "ip",
        "netns",
        "exec",
        name,
        str(Path(sys.executable).with_name("shardkeep")),
        "collect",
        str(path),
    ]
    command += ["--listen", "tcp://0.0.0.0:*", "--key-file", str(key), "--json", *options]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for line in child.stdout:
        event = json.loads(line)
        if event["event"] == "listening":
            return child, event["address"].rpartition(":")[2]
    raise AssertionError("it did not start")


def test_rows_are_stored_once_after_the_connection_is_cut(tmp_path, other_host):
    name, address, cable = other_host
    key, client_key = new_key(str(tmp_path / "key"))
    path = tmp_path / "all.h5"
    collector, port = _collect_there(name, path, key)
    try:
        with connect(f"tcp://{address}:{port}", WORLD, key_file=client_key, timeout_s=PATIENCE_S) as client:
            for row in range(40):
                if row == 10:
                    _ip("link", "set", cable, "down")
                    with pytest.raises(CollectorError, match=r"within 0\.5 s"):
                        client.append("x", np.full((1000, 8), row))
                        client.flush(timeout_s=0.5)
                    continue
                if row == 20:
                    _ip("link", "set", cable, "up")
                client.append("x", np.full((1000, 8), row))
            client.flush()
        stranger_key = client_key_path(new_key(str(tmp_path / "other"))[0])
        with pytest.raises(CollectorError, match="within 1 s"):
            connect(f"tcp://{address}:{port}", WORLD, key_file=stranger_key, timeout_s=1)
    finally:
        collector.terminate()
        said = collector.stdout.read()
        collector.stdout.close()
    assert collector.wait(PATIENCE_S) == 0
    assert "refused" in said
    with h5py.File(path) as file:
        assert (file["x"][:, 0] == np.repeat(np.arange(40), 1000)).all()


def test_tcp_without_a_key_is_refused(tmp_path):
    with pytest.raises(PlanError, match="needs a key"):
        Collector(tmp_path / "all.h5", "tcp://127.0.0.1:*")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CollectorError, match="needs the key"):
        connect("tcp://127.0.0.1:1", WORLD)


def test_only_an_allowed_key_is_accepted(tmp_path):
    key, _ = new_key(str(tmp_path / "key"))
    with Collector(tmp_path / "all.h5", "tcp://127.0.0.1:*", key_file=key) as collector:
        # It knows the server's public key, but its own key is not allowed.
        mine = json.loads((tmp_path / "key.client").read_text())
        public, secret = zmq.curve_keypair()
        mine |= {"public": public.decode(), "secret": secret.decode()}
        (tmp_path / "forged").write_text(json.dumps(mine))
        (tmp_path / "forged").chmod(0o600)
        other = client_key_path(new_key(str(tmp_path / "other"))[0])
        for wrong in (tmp_path / "forged", other):
            _check_reason("it does not accept this key", collector.address, wrong)
        with pytest.raises(CollectorError, match="within 1 s"):
            connect(collector.address, WORLD, key_file=tmp_path / "forged", timeout_s=1)
        with collector.connect(WORLD) as client:
            client.append("x", [1.0])
        # A client that connects by the folder finds the key too.
        with connect(tmp_path, WORLD) as client:
            client.append("x", [2.0])
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["x"][:].tolist() == [1.0, 2.0]
    # A collector that has ended, and a host that does not exist.
    for address in (collector.address, "tcp://nobody.invalid:5555"):
        _check_reason("no process listens there", address, client_key_path(key))


def _check_reason(words, address, key_file):
    """Wait until a client that waits reports this reason."""
    before = set(shutdown._senders)
    client = threading.Thread(target=_connect_in_vain, args=(address, key_file))
    client.start()
    try:
        eventually(lambda: any(words in str(one.state.silence) for one in set(shutdown._senders) - before))
    finally:
        for one in set(shutdown._senders) - before:
            one.state.run(one.state.fail, CollectorError("the test ends it"))
        client.join()


def _connect_in_vain(address, key_file):
    with contextlib.suppress(CollectorError):
        connect(address, WORLD, key_file=key_file, timeout_s=PATIENCE_S)
