"""The address file of a collector, after its end or kill, and with symbolic links.

Covers `shardkeep.collector.protocol.address_file`.
"""

import json
import os
import socket

import pytest

from shardkeep.collector.protocol.address_file import find_address_file, write_address_file
from shardkeep.collector.store.store import Store
from shardkeep.errors import CollectorError, LockTimeoutError
from shardkeep.hdf5 import connect, open, snapshot
from shardkeep.world import World
from tests.procs.collector_run import collecting, start_collector

WORLD = World(rank=0, size=1)


def _killed(path):
    collector = start_collector(path)
    collector.kill()
    collector.join()
    assert os.path.exists(f"{path}.collector.json")


def test_the_address_file_of_a_killed_collector_is_ignored_and_removed(tmp_path):
    _killed(tmp_path / "old.h5")
    with collecting(tmp_path / "new.h5"):
        with connect(tmp_path, WORLD) as client:
            client.append("x", [1])
        assert not os.path.exists(tmp_path / "old.h5.collector.json")
        assert find_address_file(str(tmp_path)).path == str(tmp_path / "new.h5")
    with snapshot(tmp_path / "new.h5") as file:
        assert file["x"][:].tolist() == [1]


def test_a_client_does_not_connect_to_a_killed_collector(tmp_path):
    _killed(tmp_path / "old.h5")
    with pytest.raises(CollectorError, match="searching for"):
        connect(tmp_path, WORLD, timeout_s=0.5)


def _change(path, **values):
    record = json.loads(path.read_text())
    owner = values.pop("owner", {})
    record.update(values)
    record["owner"] = None if owner is None else {**record["owner"], **owner}
    path.write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("changes", "stays"),
    [
        ({}, True),
        ({"owner": {"start_ticks": 1}}, False),  # the process id is used again
        ({"owner": {"boot": "before"}}, False),  # the machine was restarted: no process locks the file
        ({"owner": None}, False),
        ({"host": "elsewhere"}, True),
    ],
)
def test_an_address_file_is_valid_while_its_process_may_run(tmp_path, changes, stays):
    path, address_file = tmp_path / "all.h5", tmp_path / "all.h5.collector.json"
    write_address_file(str(path), "ipc:///nowhere", None)
    _change(address_file, **changes)
    assert (find_address_file(str(path)) is not None) == stays
    assert address_file.exists() == stays
    assert (find_address_file(str(tmp_path)) is not None) == stays


def test_an_address_file_is_valid_while_a_process_locks_the_file(tmp_path):
    path, address_file = tmp_path / "all.h5", tmp_path / "all.h5.collector.json"
    store = Store(str(path), synced=False)
    write_address_file(str(path), "ipc:///nowhere", None)
    _change(address_file, owner={"boot": "before"})
    assert find_address_file(str(tmp_path)) is not None
    store.close()
    assert find_address_file(str(tmp_path)) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 60_000, '{"owner": {"pid": "x"}}'])
def test_an_invalid_address_file_is_ignored(tmp_path, text):
    (tmp_path / "all.h5.collector.json").write_text(text)
    assert find_address_file(str(tmp_path)) is None


def test_several_collectors_in_a_folder_are_an_error_with_their_hosts(tmp_path):
    for name in "ab":
        write_address_file(str(tmp_path / name), "ipc:///nowhere", None)
    _change(tmp_path / "b.collector.json", host="elsewhere")
    with pytest.raises(
        CollectorError, match=f"'a' on host '{socket.gethostname()}', 'b' on host 'elsewhere'"
    ):
        find_address_file(str(tmp_path))


def test_a_symbolic_link_names_the_same_file(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").mkdir()
    path, link = tmp_path / "disk" / "all.h5", tmp_path / "run" / "named.h5"
    link.symlink_to(path)
    collector = start_collector(link)
    for name in (link, path):
        with pytest.raises(LockTimeoutError):
            Store(str(name), synced=False)
        with pytest.raises(LockTimeoutError):
            open(name, "r+")
    for place in (link, path, tmp_path / "run", tmp_path / "disk"):
        with connect(place, WORLD) as client:
            client.append("x", [1])
            client.flush()
    collector.kill()
    collector.join()
    with open(link) as file:  # the log is next to the file
        assert file["x"][:].tolist() == [1, 1, 1, 1]
    with collecting(path) as second, second.connect(WORLD) as client:
        client.append("x", [2])
    assert sorted(os.listdir(tmp_path / "disk")) == ["all.h5", "all.h5.log"]
    assert link.is_symlink()
