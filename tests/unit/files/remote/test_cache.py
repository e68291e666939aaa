from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardkeep.errors import DurabilityError, NotFoundError, PlanError, RemoteError, UntrustedFileError
from shardkeep.files.remote import cache, store
from shardkeep.files.remote.cache import View, object_path
from shardkeep.tfrecord import Reader, Writer
from tests.remote_memory import MEMORY, reads, record_reads

FORK = multiprocessing.get_context("fork")


def put(name: str, content: bytes = b"content") -> store.ObjectInfo:
    MEMORY.pipe_file(f"/data/{name}", content)
    return store.stat(f"memory://data/{name}")


def objects(root: Path) -> list[Path]:
    return sorted(path for path in (root / "objects").rglob("*") if path.is_file())


def in_child(function: Callable[[], Any]) -> multiprocessing.process.BaseProcess:
    child = FORK.Process(target=function)
    child.start()
    return child


def test_an_object_is_fetched_once_and_has_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    record_reads(monkeypatch, tmp_path / "log")
    info = put("a/x.tfrecord")
    for _ in range(2):
        view = View("memory://data")
        path = view.fetch(info)
        assert path.endswith("/a/x.tfrecord") and Path(path).read_bytes() == b"content"
        view.close()
        assert not os.path.exists(path)
    assert reads(tmp_path / "log") == ["/data/a/x.tfrecord"]


def test_processes_of_a_host_fetch_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    record_reads(monkeypatch, tmp_path / "log", lambda path: time.sleep(0.2))
    info = put("x")

    def use() -> None:
        view = View("memory://data")
        assert Path(view.fetch(info)).read_bytes() == b"content"

    children = [in_child(use) for _ in range(5)]
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0] * 5
    assert reads(tmp_path / "log") == ["/data/x"]


def test_another_process_takes_over_from_one_that_dies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own_cache: Path
) -> None:
    info = put("x", b"1" * 1000)
    parent = os.getpid()

    def die(_: str) -> None:
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    record_reads(monkeypatch, tmp_path / "log", die)
    child = in_child(lambda: View("memory://data").fetch(info))
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    assert not Path(object_path(info)).exists()
    view = View("memory://data")
    assert Path(view.fetch(info)).read_bytes() == b"1" * 1000
    assert objects(own_cache) == [Path(object_path(info))]


def test_the_least_recently_used_object_is_removed(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    monkeypatch.setenv("SHARDKEEP_CACHE_BYTES", "3500")
    infos = [put(f"x{i}", bytes([i]) * 1000) for i in range(5)]
    for i in (0, 1, 2, 0):
        view = View("memory://data")
        view.fetch(infos[i])
        view.close()
        time.sleep(0.01)
    used = View("memory://data")
    used.fetch(infos[2])
    View("memory://data").fetch(infos[3])
    left = [i for i in range(5) if Path(object_path(infos[i])).exists()]
    assert 1 not in left and {2, 3} <= set(left)
    assert sum(path.stat().st_size for path in objects(own_cache)) <= 3500


def test_an_object_in_use_stays_although_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDKEEP_CACHE_BYTES", "1500")
    infos = [put(f"x{i}", bytes([i]) * 1000) for i in range(3)]
    view = View("memory://data")
    paths = [view.fetch(info) for info in infos]
    assert [Path(path).read_bytes()[:1] for path in paths] == [b"\0", b"\1", b"\2"]


def test_the_views_of_a_process_that_was_killed_are_removed(
    monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> None:
    info = put("x")

    def leave() -> None:
        view = View("memory://data")
        view.fetch(info)
        os.kill(os.getpid(), signal.SIGKILL)

    in_child(leave).join(60)
    assert os.stat(object_path(info)).st_nlink == 2
    in_child(lambda: View("memory://data").close()).join(60)
    assert os.stat(object_path(info)).st_nlink == 1


@pytest.mark.parametrize("step", ["mkdir", "open", "flock"])
def test_a_folder_of_views_that_is_not_yet_locked_may_be_removed(
    step: str, monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> None:
    own_cache.mkdir(mode=0o700)
    (module, name) = {"mkdir": (os, "mkdir"), "open": (os, "open"), "flock": (fcntl, "flock")}[step]
    original = getattr(module, name)
    sweeps = []

    def then_sweep(first: Any, *arguments: Any, **options: Any) -> Any:
        result = original(first, *arguments, **options)
        if not sweeps and ("views/" in str(first) or name == "flock"):
            sweeps.append(first)
            cache._remove_dead_views(str(own_cache))
        return result

    monkeypatch.setattr(module, name, then_sweep)
    view = View("memory://data")
    assert sweeps
    assert Path(view.fetch(put("x"))).read_bytes() == b"content"
    cache._remove_dead_views(str(own_cache))
    assert os.listdir(own_cache / "views") == [Path(view.folder).parent.name]


def test_a_child_reads_from_a_view_that_its_parent_has_closed(tmp_path: Path) -> None:
    view = View("memory://data")
    path = Path(view.fetch(put("x")))

    def use() -> None:
        while not (tmp_path / "closed").exists():
            time.sleep(0.01)
        assert path.read_bytes() == b"content"

    child = in_child(use)
    view.close()
    (tmp_path / "closed").touch()
    child.join(60)
    assert child.exitcode == 0


def test_a_changed_object_is_fetched_again() -> None:
    before = put("x", b"1")
    old = View("memory://data")
    path = old.fetch(before)
    after = put("x", b"2")
    new = View("memory://data")
    assert Path(new.fetch(after)).read_bytes() == b"2"
    assert Path(path).read_bytes() == b"1"


def test_an_object_that_changed_before_it_was_fetched_is_an_error(own_cache: Path) -> None:
    before = put("x", b"1")
    put("x", b"2")
    with pytest.raises(RemoteError, match=r"memory://data/x has changed while it was in use"):
        View("memory://data").fetch(before)
    MEMORY.rm("/data/x")
    with pytest.raises(NotFoundError):
        View("memory://data").fetch(before)
    assert objects(own_cache) == []


@pytest.mark.parametrize("name", ["../x", "a//x", "./x"])
def test_a_name_that_leads_out_of_the_view_is_refused(name: str) -> None:
    with pytest.raises(PlanError, match="no file can have"):
        View("memory://data").path(f"memory://data/{name}")


def test_a_folder_that_others_may_write_is_refused(own_cache: Path) -> None:
    own_cache.mkdir()
    own_cache.chmod(0o777)
    with pytest.raises(UntrustedFileError, match="other users may write into the cache"):
        View("memory://data")


@pytest.mark.parametrize("views", [0, 1])
def test_a_full_disk_is_an_error_that_names_the_cache(
    views: int, monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> None:
    kept = [View("memory://data") for _ in range(views)]
    own_cache.mkdir(mode=0o700, exist_ok=True)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "mkdir", full)
    with pytest.raises(DurabilityError, match=f"cannot create a folder in the cache '{own_cache}': "):
        View("memory://data")
    del kept


@pytest.mark.parametrize("value", ["0", "many", "-5"])
def test_an_invalid_limit_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDKEEP_CACHE_BYTES", value)
    with pytest.raises(PlanError, match="SHARDKEEP_CACHE_BYTES"):
        View("memory://data").fetch(put("x"))


def test_the_copies_of_objects_are_private(own_cache: Path) -> None:
    view = View("memory://data")
    path = view.fetch(put("x"))
    assert os.stat(path).st_mode & 0o077 == 0
    assert own_cache.stat().st_mode & 0o077 == 0
    assert cache.cache_folder() == str(own_cache)


@pytest.mark.parametrize("call", [Reader, Writer])
def test_a_cache_that_cannot_be_created_is_a_typed_error(
    call: Callable[[str], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = put("x.tfrecord")
    (tmp_path / "file").touch()
    monkeypatch.setenv("SHARDKEEP_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(DurabilityError, match=r"cannot create the cache .* a part of that path is a file"):
        call(info.url if call is Reader else "memory://data/new.tfrecord")
