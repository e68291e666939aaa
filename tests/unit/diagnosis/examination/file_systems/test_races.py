"""Races on wrong file systems: calls of this process and of its forks are replaced.

Covers `shardkeep.diagnosis.examination.file_systems.peers` and
`shardkeep.diagnosis.examination.file_systems.operations`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path
from typing import Any

import pytest

from shardkeep.diagnosis.examination.file_systems import races
from shardkeep.diagnosis.examination.file_systems.operations import SHARED, create
from shardkeep.diagnosis.examination.file_systems.peers import Fork

RACES = {one.__name__.removeprefix("_"): one for one in (*SHARED, *races.RACES, *races.SPEED)}


def peers() -> list[Fork]:
    return [Fork(), Fork()]


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def race(name: str) -> Any:
    return RACES[name](peers())


def test_exclusive_creation_without_effect_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, flags, *args: real(path, flags & ~os.O_EXCL, *args))
    found = race("create_race")
    assert 0 < found["wrong"] <= found["tried"]


def test_a_link_that_replaces_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", lambda source, target: Path(target).touch())
    assert race("link_race")["wrong"] > 0


def test_a_name_that_no_process_can_create_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "")

    monkeypatch.setattr(os, "link", refuse)
    found = race("link_race")
    assert found["wrong"] == found["tried"] > 0


def test_a_replacement_in_two_steps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(source: str, target: str) -> None:
        os.unlink(target)
        time.sleep(0.1)
        os.rename(source, target)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(races, "_RACE_S", 2.0)  # a busy machine may start the readers late
    assert race("replace_race")["wrong"] > 0


def test_a_lock_without_effect_loses_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda fd, operation: None)
    assert race("counter")["wrong"] > 0


def test_a_lock_that_outlives_its_process_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise BlockingIOError(errno.EAGAIN, "")

    monkeypatch.setattr(races, "try_lock", refuse)
    monkeypatch.setattr(races, "_PATIENCE_S", 0.1)
    assert race("dead_lock") is None


def test_bytes_that_never_come_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(races, "_PATIENCE_S", 0.5)
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: bytes(size) if at else real(fd, size, at))
    found = race("append")
    assert found == {"tried": 32, "wrong": 31}


def test_a_name_that_stays_missing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(races, "_VISIBLE_S", 0.1)
    monkeypatch.setattr(os, "listdir", lambda *_: [])
    assert race("visible") is None


def test_an_error_in_the_other_process_is_raised_here() -> None:
    with pytest.raises(FileNotFoundError):
        Fork().call(create, "missing/name")
    assert Fork().failure(create, "missing/name") == errno.ENOENT
    ended = Fork()
    ended.start(os._exit, 0)
    assert ended.read() == {"error": errno.ECHILD}
