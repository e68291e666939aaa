"""The note of a collector, after its end of any kind, and a file with two names."""

import json
import os
import socket

import pytest

from shardkeep.collector.protocol.address_file import find_note, write_note
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


def test_the_note_of_a_killed_collector_is_ignored_and_removed(tmp_path):
    _killed(tmp_path / "old.h5")
    with collecting(tmp_path / "new.h5"):
        with connect(tmp_path, WORLD) as client:
            client.append("x", [1])
        assert not os.path.exists(tmp_path / "old.h5.collector.json")
        assert find_note(str(tmp_path)).path == str(tmp_path / "new.h5")
    with snapshot(tmp_path / "new.h5") as file:
        assert file["x"][:].tolist() == [1]


def test_nobody_connects_where_only_a_killed_one_was(tmp_path):
    _killed(tmp_path / "old.h5")
    with pytest.raises(CollectorError, match="looking for"):
        connect(tmp_path, WORLD, timeout_s=0.5)


def _change(path, **values):
    note = json.loads(path.read_text())
    owner = values.pop("owner", {})
    note.update(values)
    note["owner"] = None if owner is None else {**note["owner"], **owner}
    path.write_text(json.dumps(note))


@pytest.mark.parametrize(
    ("changes", "stays"),
    [
        ({}, True),
        ({"owner": {"start_ticks": 1}}, False),  # the process id is used again
        ({"owner": {"boot": "before"}}, False),  # the machine was started anew: nobody holds the file
        ({"owner": None}, False),
        ({"host": "elsewhere"}, True),
    ],
)
def test_whose_note_is_believed(tmp_path, changes, stays):
    path, note = tmp_path / "all.h5", tmp_path / "all.h5.collector.json"
    write_note(str(path), "ipc:///nowhere", None)
    _change(note, **changes)
    assert (find_note(str(path)) is not None) == stays
    assert note.exists() == stays
    assert (find_note(str(tmp_path)) is not None) == stays


def test_a_note_is_believed_while_somebody_holds_the_file(tmp_path):
    path, note = tmp_path / "all.h5", tmp_path / "all.h5.collector.json"
    store = Store(str(path), synced=False)
    write_note(str(path), "ipc:///nowhere", None)
    _change(note, owner={"boot": "before"})
    assert find_note(str(tmp_path)) is not None
    store.close()
    assert find_note(str(tmp_path)) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 60_000, '{"owner": {"pid": "x"}}'])
def test_a_note_that_is_none(tmp_path, text):
    (tmp_path / "all.h5.collector.json").write_text(text)
    assert find_note(str(tmp_path)) is None


def test_several_collectors_are_told_with_their_hosts(tmp_path):
    for name in "ab":
        write_note(str(tmp_path / name), "ipc:///nowhere", None)
    _change(tmp_path / "b.collector.json", host="elsewhere")
    with pytest.raises(
        CollectorError, match=f"'a' on host '{socket.gethostname()}', 'b' on host 'elsewhere'"
    ):
        find_note(str(tmp_path))


def test_a_symbolic_link_is_the_file_itself(tmp_path):
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
    with open(link) as file:  # the log lies beside the file
        assert file["x"][:].tolist() == [1, 1, 1, 1]
    with collecting(path) as second, second.connect(WORLD) as client:
        client.append("x", [2])
    assert sorted(os.listdir(tmp_path / "disk")) == ["all.h5", "all.h5.log"]
    assert link.is_symlink()
