from __future__ import annotations

import ctypes
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from shardkeep.tfrecord import watch
from shardkeep.tfrecord.watch import Watch
from tests.descriptors import open_descriptors


def waited_s(one: Watch, timeout_s: float) -> float:
    start = time.monotonic()
    one.wait(timeout_s)
    return time.monotonic() - start


def test_a_write_is_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"")
    one = Watch(str(path))
    assert waited_s(one, 5) < 0.5, "what came before the watch has to be looked for"
    if not one.is_told:
        pytest.skip("the temporary folder is on a file system without inotify")
    thread = threading.Timer(0.05, path.write_bytes, [b"a"])
    thread.start()
    assert waited_s(one, 5) < 0.9
    thread.join()
    one.close()


def test_a_file_that_appears_is_told_at_once(tmp_path: Path) -> None:
    one = Watch(str(tmp_path / "x"))
    one.wait(5)
    if not one.is_told:
        pytest.skip("the temporary folder is on a file system without inotify")
    thread = threading.Timer(0.05, (tmp_path / "x").write_bytes, [b"a"])
    thread.start()
    assert waited_s(one, 5) < 0.9
    thread.join()
    one.close()


def test_silence_is_not_believed_for_long(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"")
    one = Watch(str(tmp_path / "x"))
    one.wait(5)
    assert waited_s(one, 60) < 2
    one.close()


def test_polling_pauses_grow_and_are_short_again_after_news(tmp_path: Path) -> None:
    one = Watch(str(tmp_path / "no" / "folder"))
    pauses = [waited_s(one, 60) for _ in range(5)]
    assert pauses[0] < 0.1 < pauses[4] < 1
    one.calm()
    assert waited_s(one, 60) < 0.1
    assert not one.is_told


def test_a_given_interval_is_kept(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"")
    one = Watch(str(tmp_path / "x"), poll_s=0.07)
    assert all(0.07 <= waited_s(one, 60) < 0.5 for _ in range(4))
    assert waited_s(one, 0.01) < 0.06
    assert not one.is_told


@pytest.mark.parametrize("what", ["inotify_init1", "inotify_add_watch", "network", "statfs"])
def test_where_inotify_is_refused_it_polls(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
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
    assert all(0.005 < waited_s(one, 60) < 0.2 for _ in range(3))
    assert not one.is_told
    assert len(open_descriptors()) == len(before)
