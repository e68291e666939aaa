"""Objects of a store in memory. Covers `shardkeep.files.remote.requests`."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from shardkeep.errors import MissingExtraError, NotFoundError, PlanError, RemoteError
from shardkeep.files.remote import requests, store

MEMORY = fsspec.filesystem("memory")


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(requests, "_FIRST_PAUSE_S", 0.001)
    for i in range(5):
        MEMORY.pipe_file(f"/data/x{i}.tfrecord", bytes([i]) * (10 + i))
    yield "memory://data"
    MEMORY.rm("/data", recursive=True)


def replace(monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any]) -> None:
    monkeypatch.setattr(MemoryFileSystem, "cat_file", function)


def test_a_listing_has_the_sizes_and_versions_that_stat_has(folder: str) -> None:
    found = store.list_folder(folder)
    assert [info.size_bytes for info in found] == [10, 11, 12, 13, 14]
    assert found == [store.stat(f"{folder}/x{i}.tfrecord") for i in range(5)]
    assert store.stat_many([found[i].url for i in (3, 0, 2)]) == [found[i] for i in (3, 0, 2)]


@pytest.mark.parametrize("pattern", ["x[13].tfrecord", "**/x[13].*"])
def test_a_pattern_yields_the_urls_that_match(folder: str, pattern: str) -> None:
    assert [info.url for info in store.list_objects(f"{folder}/{pattern}")] == [
        f"{folder}/x1.tfrecord",
        f"{folder}/x3.tfrecord",
    ]


def test_an_object_that_is_written_again_has_another_version(folder: str) -> None:
    before = store.stat(f"{folder}/x1.tfrecord")
    MEMORY.pipe_file("/data/x1.tfrecord", b"b" * 11)
    after = store.stat(f"{folder}/x1.tfrecord")
    assert before.size_bytes == after.size_bytes and before.version != after.version


def test_ranges_and_whole_objects_are_read(folder: str) -> None:
    urls = [f"{folder}/x{i}.tfrecord" for i in range(5)]
    assert store.read(urls[2], 3, 7) == b"\x02" * 4
    assert store.read_many(urls) == [bytes([i]) * (10 + i) for i in range(5)]


def test_a_member_of_an_archive_is_read(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "all.zip", "w") as z:
        z.writestr("a/x.tfrecord", b"123")
    (info,) = store.list_objects(f"zip://a/*.tfrecord::file://{tmp_path}/all.zip")
    assert info.url == f"zip://a/x.tfrecord::file://{tmp_path}/all.zip"
    assert store.read(info.url) == b"123"


@pytest.mark.parametrize("size", [0, 7, store.PART_BYTES + 3])
def test_a_download_is_the_object(tmp_path: Path, folder: str, size: int) -> None:
    content = os.urandom(size)
    MEMORY.pipe_file("/data/big", content)
    counted: list[int] = []
    store.download(store.stat(f"{folder}/big"), str(tmp_path / "big"), counted.append)
    assert (tmp_path / "big").read_bytes() == content
    assert sum(counted) == size


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_a_large_object_of_a_store_that_ignores_ranges_is_downloaded_whole(
    parts: int, tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = store.stat(f"{folder}/x1.tfrecord")
    monkeypatch.setattr(store, "PART_BYTES", -(-info.size_bytes // parts))
    monkeypatch.setattr(store, "_ranges", {})
    calls = []

    def cat_file(self: Any, path: str, **kwargs: Any) -> bytes:
        calls.append(path)
        return b"\x01" * 11

    replace(monkeypatch, cat_file)
    for _ in range(2):
        store.download(info, str(tmp_path / "x"))
        assert (tmp_path / "x").read_bytes() == b"\x01" * 11
    assert len(calls) == (2 if parts == 1 else 1)
    assert store.reads_ranges(info.url) == (parts == 1)


def test_a_download_of_an_object_that_changes_is_an_error(tmp_path: Path, folder: str) -> None:
    info = store.stat(f"{folder}/x1.tfrecord")
    MEMORY.pipe_file("/data/x1.tfrecord", b"b" * 11)
    with pytest.raises(RemoteError, match="has changed while it was in use"):
        store.download(info, str(tmp_path / "x"))


@pytest.mark.parametrize(
    "fault",
    [ConnectionResetError("reset"), TimeoutError("slow"), b"", type("E", (Exception,), {"status": 503})()],
)
def test_transient_faults_are_repeated(
    folder: str, fault: Exception | bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    original = MemoryFileSystem.cat_file

    def cat_file(self: Any, path: str, **kwargs: Any) -> bytes:
        calls.append(path)
        if len(calls) > 3:
            return bytes(original(self, path, **kwargs))
        if isinstance(fault, bytes):
            return fault
        raise fault

    replace(monkeypatch, cat_file)
    assert store.read(f"{folder}/x1.tfrecord", 1, 4) == b"\x01" * 3
    assert len(calls) == 4


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (FileNotFoundError("x"), NotFoundError),
        (PermissionError("x"), RemoteError),
        (type("E", (Exception,), {"status": 403})(), RemoteError),
        (type("E", (Exception,), {"code": 404})(), NotFoundError),
        (ImportError("install gcsfs"), MissingExtraError),
    ],
)
def test_final_answers_are_not_repeated(
    folder: str, fault: Exception, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def cat_file(self: Any, path: str, **kwargs: Any) -> bytes:
        calls.append(path)
        raise fault

    replace(monkeypatch, cat_file)
    with pytest.raises(expected) as caught:
        store.read(f"{folder}/x1.tfrecord")
    assert len(calls) == 1
    assert caught.value.path == f"{folder}/x1.tfrecord"  # type: ignore[attr-defined]


def test_an_error_that_is_handled_does_not_make_a_final_answer_transient(folder: str) -> None:
    with pytest.raises(NotFoundError):
        try:
            raise ConnectionError("of an upload")
        except ConnectionError:
            store.stat(f"{folder}/none")  # its undo


def test_a_silent_store_is_an_error_after_the_time_limit(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDKEEP_REMOTE_TIMEOUT_S", "0.3")
    replace(monkeypatch, lambda self, path, **kwargs: time.sleep(5))
    start_s = time.monotonic()
    with pytest.raises(RemoteError, match=r"the store did not answer for 0.3 s"):
        store.read(f"{folder}/x1.tfrecord")
    assert time.monotonic() - start_s < 5


def test_a_store_that_stays_overloaded_is_an_error(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDKEEP_REMOTE_TIMEOUT_S", "0.3")
    fault = type("SlowDown", (Exception,), {"status": 503, "headers": {"X-Amz-Request-Id": "r7"}})

    def cat_file(self: Any, path: str, **kwargs: Any) -> bytes:
        raise fault("reduce your rate")

    replace(monkeypatch, cat_file)
    with pytest.raises(RemoteError, match=r"with status 503, request r7 .*: try again later") as caught:
        store.read(f"{folder}/x1.tfrecord")
    assert (caught.value.status, caught.value.request_id) == (503, "r7")


def test_a_last_attempt_that_is_too_short_hides_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDKEEP_REMOTE_TIMEOUT_S", "0.3")
    monkeypatch.setattr(requests, "_FIRST_PAUSE_S", 0.001)

    def attempt(limit_s: float) -> None:
        if limit_s < 0.09:
            raise requests._SilentError
        raise type("SlowDown", (Exception,), {"status": 503})

    with pytest.raises(RemoteError, match="status 503"):
        requests.repeated("memory://x", "read", attempt)


@pytest.mark.parametrize("value", ["0", "soon", "-1", "inf", "nan"])
def test_an_invalid_time_limit_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDKEEP_REMOTE_TIMEOUT_S", value)
    with pytest.raises(PlanError, match="SHARDKEEP_REMOTE_TIMEOUT_S"):
        requests.timeout_s()


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(PlanError, match="cannot open foo://bucket/x: Protocol not known"):
        store.stat("foo://bucket/x")


def test_errors_have_no_credentials(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    def cat_file(self: Any, path: str, **kwargs: Any) -> bytes:
        raise PermissionError("https://u:pass@host/x?sig=SECRET refused")

    replace(monkeypatch, cat_file)
    with pytest.raises(RemoteError) as caught:
        store.read("memory://me:pass@data/x1.tfrecord")
    assert "pass" not in f"{caught.value}{caught.value.path}" and "SECRET" not in str(caught.value)


def _read_in_child(url: str, results: Any) -> None:
    results.put(store.read(url))


def test_a_forked_child_has_its_own_file_systems(folder: str) -> None:
    store.read(f"{folder}/x1.tfrecord")
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_read_in_child, args=(f"{folder}/x1.tfrecord", results))
    child.start()
    assert results.get(timeout=30) == b"\x01" * 11
    child.join()
