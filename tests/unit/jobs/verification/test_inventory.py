from __future__ import annotations

import os
import socket
from pathlib import Path

import h5py
import pytest

from shardkeep.errors import NotFoundError
from shardkeep.files.leftovers import find_companion
from shardkeep.jobs.verification.inventory import take_inventory
from shardkeep.tfrecord import build_index
from tests.second_user import OTHER, needs_root, run_as, shared_folder
from tests.unit.jobs.verification.damage import records


def test_every_entry_of_a_folder_is_in_one_list(tmp_path: Path) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    build_index(records(tmp_path / "deep/er/a.tfrecord"))
    with h5py.File(tmp_path / "deep/b.h5", "w") as file:
        file["x"] = [1]
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "more.txt").write_text("other words")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "a.lock").touch()
    (tmp_path / "link").symlink_to("deep")
    (tmp_path / "dangling").symlink_to("gone")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "socket"))
    found = take_inventory([str(tmp_path)])
    tasks = {os.path.relpath(task.path, tmp_path): task for task in found.tasks}
    skipped = {os.path.relpath(one.path, tmp_path): one.described for one in found.skipped}
    server.close()
    assert {name: task.expected for name, task in tasks.items()} == {
        "dangling": None,
        "loop": None,
        "deep/b.h5": "hdf5",
        "deep/er/a.tfrecord": "tfrecord",
    }
    kinds = {name: task.finding.kind for name, task in tasks.items() if task.finding}
    assert kinds == {"dangling": "missing", "loop": "unreadable"}
    assert skipped == {
        "notes.txt": "plain text",
        "more.txt": "plain text",
        "_SUCCESS": "an empty file",
        "a.lock": "a lock file",
        "link": "a link to a folder",
        "pipe": "a named pipe",
        "socket": "a socket",
        "deep/er/a.tfrecord.skidx": "an index of Shardkeep",
    }


def test_files_keep_their_order(tmp_path: Path) -> None:
    paths = [records(tmp_path / name) for name in ("c.tfrecord", "a.tfrecord", "b.tfrecord")]
    names = [str(path) for path in paths]
    assert [task.path for task in take_inventory(names).tasks] == names
    assert [task.path for task in take_inventory([str(tmp_path)]).tasks] == sorted(names)


def test_file_that_was_passed_must_be_data(tmp_path: Path) -> None:
    contents = {
        "a": (b"hello", "wrong-kind"),
        "b": (b"", "empty"),
        "c": (b"<html>404", "replaced"),
        "d": (bytes(range(256)), None),
    }
    for name, (content, _) in contents.items():
        (tmp_path / name).write_bytes(content)
    found = take_inventory([str(tmp_path / name) for name in contents])
    kinds = [task.finding and task.finding.kind for task in found.tasks]
    assert kinds == [kind for _, kind in contents.values()]
    (tmp_path / "a.tfrecord.skidx").touch()
    assert take_inventory([str(tmp_path / "a.tfrecord.skidx")]).tasks == []


def test_link_without_target_that_was_passed_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("gone")
    (task,) = take_inventory([str(tmp_path / "dangling")]).tasks
    assert task.finding is not None and task.finding.kind == "missing"
    with pytest.raises(NotFoundError):
        take_inventory([str(tmp_path / "gone")])


def test_link_to_a_folder_that_was_passed_is_followed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    records(tmp_path / "data/a.tfrecord")
    (tmp_path / "link").symlink_to("data")
    assert [task.path for task in take_inventory([str(tmp_path / "link")]).tasks] == [
        str(tmp_path / "link/a.tfrecord")
    ]


@needs_root
def test_files_and_folders_without_rights_are_findings() -> None:
    with shared_folder() as folder:
        records(folder / "a.tfrecord").chmod(0o600)
        (folder / "closed").mkdir()
        records(folder / "closed/b.tfrecord")
        (folder / "closed").chmod(0o700)
        found = run_as(OTHER, lambda: take_inventory([str(folder)]))
        (passed,) = run_as(OTHER, lambda: take_inventory([str(folder / "a.tfrecord")])).tasks
    assert passed.finding.kind == "unreadable"
    assert sorted((task.path, task.finding.kind) for task in found.tasks) == [
        (str(folder / "a.tfrecord"), "unreadable"),
        (str(folder / "closed"), "unreadable"),
    ]
    assert all("Permission denied" in task.finding.message for task in found.tasks)


@pytest.mark.parametrize("name", ["a.tfrecord", "a.json", "lock", "a.idx.tfrecord", "skidx", "readers"])
def test_other_names_are_no_companions(name: str) -> None:
    assert find_companion(name) is None
