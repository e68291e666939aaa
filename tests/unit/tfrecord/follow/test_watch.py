from __future__ import annotations

import ctypes
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from shardkeep.tfrecord.follow import watch
from shardkeep.tfrecord.follow.watch import Watch
from tests.descriptors import open_descriptors
from tests.waiting import PATIENCE_S


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the check every second, so that only events are reported."""
    monkeypatch.setattr(watch, "_LONGEST_SILENCE_S", 3600)


class Sleeps:
    """Records pauses instead of sleeping."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    noted = Sleeps()
    monkeypatch.setattr(watch, "time", noted)
    return noted.seconds


def waited_s(one: Watch, timeout_s: float) -> float:
    start = time.monotonic()
    one.wait(timeout_s)
    return time.monotonic() - start


def test_write_is_reported_immediately(tmp_path: Path, patient: None) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"")
    one = Watch(str(path))
    assert waited_s(one, PATIENCE_S) < PATIENCE_S / 2, "what came before the watch has to be looked for"
    if not one.is_notified:
        pytest.skip("the temporary folder is on a file system without inotify")
    thread = threading.Timer(0.05, path.write_bytes, [b"a"])
    thread.start()
    assert waited_s(one, PATIENCE_S) < PATIENCE_S / 2
    thread.join()
    one.close()


def test_new_file_is_reported_immediately(tmp_path: Path, patient: None) -> None:
    one = Watch(str(tmp_path / "x"))
    one.wait(PATIENCE_S)
    if not one.is_notified:
        pytest.skip("the temporary folder is on a file system without inotify")
    thread = threading.Timer(0.05, (tmp_path / "x").write_bytes, [b"a"])
    thread.start()
    assert waited_s(one, PATIENCE_S) < PATIENCE_S / 2
    thread.join()
    one.close()


def test_file_is_checked_every_second_without_events(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"")
    one = Watch(str(tmp_path / "x"))
    one.wait(5)
    assert waited_s(one, PATIENCE_S) < PATIENCE_S / 2
    one.close()


def test_polling_pauses_grow_and_are_reset_after_a_change(tmp_path: Path, sleeps: list[float]) -> None:
    one = Watch(str(tmp_path / "no" / "folder"))
    for _ in range(8):
        one.wait(60)
    assert sleeps == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]
    one.calm()
    one.wait(60)
    assert sleeps[-1] == 0.01
    assert not one.is_notified


def test_poll_interval_is_used(tmp_path: Path, sleeps: list[float]) -> None:
    (tmp_path / "x").write_bytes(b"")
    one = Watch(str(tmp_path / "x"), poll_s=0.07)
    for timeout_s in (60, 60, 60, 0.01):
        one.wait(timeout_s)
    assert sleeps == [0.07, 0.07, 0.07, 0.01]
    assert not one.is_notified


@pytest.mark.parametrize("what", ["inotify_init1", "inotify_add_watch", "network", "statfs"])
def test_watch_polls_if_inotify_is_refused(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch, sleeps: list[float]
) -> None:
    (tmp_path / "x").write_bytes(b"")
    libc = ctypes.CDLL(None)

    class Refusing:
        def __getattr__(self, name: str) -> Any:
            return (lambda *_: -1) if name == what else getattr(libc, name)

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Refusing())
    if what == "network":
        monkeypatch.setattr(watch, "_LOCAL_FILE_SYSTEMS", set())
    before = open_descriptors()
    one = Watch(str(tmp_path / "x"))
    for _ in range(3):
        one.wait(60)
    assert sleeps == [0.01, 0.02, 0.04]
    assert not one.is_notified
    assert not open_descriptors() - before
