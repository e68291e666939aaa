"""Addresses that a collector listens on, given or chosen by itself, and key files."""

import os
import socket

import pytest

from shardkeep.collector.protocol.address import SocketFolder, check_address
from shardkeep.collector.protocol.keys import new_key
from shardkeep.errors import LockTimeoutError, PlanError
from shardkeep.hdf5 import Collector, connect
from shardkeep.world import World
from tests.procs.collector_run import start_collector, stop

WORLD = World(rank=0, size=1)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("tcp://host:99999", "65535"),
        ("tcp://[::1:5555", "not an address"),
        ("tcp://::1:5555", "brackets"),
        ("tcp://[::g]:5555", "not an address"),
        ("tcp://[:::1]:5555", "no IPv6"),
        ("tcp://host:5555\n", "not an address"),
        ("ipc:///" + "x" * 200, "201 bytes, and the path of a Unix socket 103"),
    ],
)
def test_an_invalid_address_is_refused(address, why):
    with pytest.raises(PlanError, match=why):
        check_address(address)


@pytest.mark.parametrize("address", ["tcp://[::1]:5555", "tcp://[::]:*", "tcp://*:65535", "ipc:///tmp/x"])
def test_a_valid_address_is_accepted(address):
    assert check_address(address) == address


def test_a_restarted_collector_listens_at_the_same_address(tmp_path):
    first = start_collector(tmp_path / "all.h5")
    with connect(first.address, WORLD) as client:
        client.append("x", [1])
        client.flush()
        first.kill()
        first.join()
        second = start_collector(tmp_path / "all.h5")
        assert second.address == first.address
        client.append("x", [2])
        client.flush()
    stop(second)
    assert not os.path.exists(os.path.dirname(first.address[6:]))


def test_a_second_collector_of_a_file_does_not_take_the_socket_of_the_first(tmp_path):
    first = start_collector(tmp_path / "all.h5")
    with pytest.raises(LockTimeoutError):
        Collector(tmp_path / "all.h5")
    with connect(first.address, WORLD) as client:
        client.append("x", [1])
    stop(first)


def test_a_folder_that_others_may_enter_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mine = SocketFolder(str(tmp_path / "a.h5"))
    assert SocketFolder(str(tmp_path / "a.h5")).folder == mine.folder
    assert SocketFolder(str(tmp_path / "b.h5")).folder != mine.folder
    os.chmod(mine.folder, 0o755)  # others may enter it
    assert SocketFolder(str(tmp_path / "a.h5")).folder != mine.folder
    os.chmod(mine.folder, 0o700)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(mine.address[6:])
        other.listen()
        assert SocketFolder(str(tmp_path / "a.h5")).folder != mine.folder
    assert SocketFolder(str(tmp_path / "a.h5")).folder == mine.folder


def test_a_long_tmpdir_is_not_used_for_the_socket(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    place = SocketFolder(str(tmp_path / "a.h5"))
    try:
        assert check_address(place.address) == place.address
        assert os.listdir(long) == []
    finally:
        place.close()


def test_clients_connect_by_ipv6(tmp_path):
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    key, client_key = new_key(str(tmp_path / "key"))
    with Collector(tmp_path / "all.h5", "tcp://[::1]:*", key_file=key) as collector:
        assert collector.address.startswith("tcp://[::1]:")
        with connect(collector.address, WORLD, key_file=client_key) as client:
            client.append("x", [1])


def test_one_key_file_is_not_made_without_the_other(tmp_path):
    (tmp_path / "key.client").write_text("mine")
    with pytest.raises(FileExistsError):
        new_key(str(tmp_path / "key"))
    assert os.listdir(tmp_path) == ["key.client"]
