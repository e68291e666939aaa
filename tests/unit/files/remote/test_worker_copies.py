"""Jobs with URLs by the workers of another host: a process with a cache and a folder of its own."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardkeep as sk
from shardkeep.errors import CorruptRecordError, EngineError, RemoteError
from shardkeep.files.threads import groups
from tests.frameworks.engines.same_results import contents, receipt
from tests.png_files import deep_png
from tests.remote_memory import MEMORY, record_reads

URL = "memory://data"
SHARDS = 6


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("workers")
    random = np.random.default_rng(4)
    with sk.tfrecord.ShardWriter(data / f"t-{{shard:05d}}-of-{SHARDS:05d}.tfrecord", shards=SHARDS) as out:
        for number in range(SHARDS * 40):
            out.write(random.bytes(int(random.integers(0, 3000))) + b"%d" % number)
    with sk.tfrecord.Writer(data / "more.tfrecord.gz", compression="gzip") as writer:
        writer.write(b"compressed")
    for name in ("cats", "dogs"):
        (data / "photos" / name).mkdir(parents=True)
        png = deep_png(random.integers(0, 255, (9, 7, 3), np.uint8))
        (data / "photos" / name / "1.png").write_bytes(png)
    for rank in range(2):
        with sk.hdf5.WorkerFile(data / "run", sk.World(rank=rank, size=2)) as worker:
            worker.declare("packed", "i8", (20,), compression="gzip", chunk_rows=500)
            for step in range(2):
                worker.append("packed", random.integers(0, 9, (3000, 20)))
                worker.commit(step=step, receipt=receipt(rank, step))
    sk.merge(data / "run", data / "all.h5")
    (data / "bad").mkdir()
    for number in range(2):
        (data / f"bad/{number}.tfrecord").write_bytes((data / "t-00000-of-00006.tfrecord").read_bytes())
        (data / f"bare-{number:05d}-of-00002").write_bytes((data / "t-00000-of-00006.tfrecord").read_bytes())
    (data / "numbers-00000-of-00001").write_text("1,2\n" * 9000)
    (data / "page.tfrecord").write_text("<!DOCTYPE html><html><body>no such page</body></html>")
    return data


@pytest.fixture
def start(local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Executor]]:
    """Put the data into the store; return a function that starts a worker, which sees what is there then."""
    MEMORY.put(f"{local}/", "/data/", recursive=True)
    monkeypatch.setattr(groups, "_GROUP_FILES", 8)
    record_reads(monkeypatch, tmp_path / "log", lambda path: _note(tmp_path / "reads", path))
    pools: list[Executor] = []

    def begin(cache: Path = tmp_path / "other") -> Executor:
        pools.append(ProcessPoolExecutor(1, get_context("fork"), _move, (str(cache),)))
        pools[-1].submit(int).result()
        return pools[-1]

    yield begin
    for pool in pools:
        pool.shutdown()


def _move(cache: str) -> None:
    os.makedirs(cache, exist_ok=True)
    os.chdir(cache)
    os.environ["SHARDKEEP_CACHE_DIR"] = cache


def _note(log: Path, path: str) -> None:
    with log.open("a") as file:
        file.write(f"{os.getpid()} {path}\n")


def break_byte(name: str) -> None:
    content = bytearray(MEMORY.cat_file(f"/data/{name}"))
    content[len(content) // 2] ^= 1
    MEMORY.pipe_file(f"/data/{name}", bytes(content))


def fetched(folder: Path, *, here: bool) -> list[str]:
    """Return the objects that this process fetched, or those of its workers."""
    lines = [line.split() for line in (folder / "reads").read_text().splitlines()]
    return [path for pid, path in lines if (int(pid) == os.getpid()) == here]


def has_no_copies(cache: Path) -> bool:
    return [path.name for path in (cache / "views").rglob("*") if path.is_file()] == [".lock"]


def test_verify_fetches_each_file_once_and_where_it_is_checked(
    local: Path, start: Callable[..., Executor], tmp_path: Path, own_cache: Path
) -> None:
    break_byte("t-00001-of-00006.tfrecord")
    MEMORY.rm("/data/t-00003-of-00006.tfrecord")
    (tmp_path / "reads").unlink()
    found = sk.verify(URL, executor=start())
    there = fetched(tmp_path, here=False)
    data = [path for path in MEMORY.find("/data") if path.endswith(("tfrecord", ".gz", ".h5", "-00002"))]
    assert sorted(there) == data and len(data) == 16
    heads = [path for path in fetched(tmp_path, here=True) if path in data]
    assert sorted(heads) == ["/data/bare-00000-of-00002", "/data/bare-00001-of-00002"]
    here = [path.stat().st_size for path in (own_cache / "objects").rglob("*") if path.is_file()]
    assert max(here) < min(local.joinpath(Path(path).name).stat().st_size for path in heads)
    assert has_no_copies(own_cache) and has_no_copies(tmp_path / "other")
    assert found == sk.verify(URL, threads=1)
    assert {one.kind for one in found.findings} == {"damage", "replaced", "incomplete-set"}
    damaged = next(one for one in found.findings if one.kind == "damage")
    assert damaged.path == f"{URL}/t-00001-of-00006.tfrecord" and damaged.offset_bytes
    assert str(tmp_path) not in json.dumps(found.to_dict())


JOBS: dict[str, Callable[..., Any]] = {
    "audit": lambda out, **options: sk.audit(f"{URL}/run", **options),
    "split": lambda out, **options: sk.split(
        [f"{URL}/t-*.tfrecord", f"{URL}/more.tfrecord.gz"], out / "{shard}", shards=3, **options
    ),
    "split gzip": lambda out, **options: sk.split(
        f"{URL}/t-*.tfrecord", out / "{shard}", shards=9, compression="gzip", **options
    ),
    "concat": lambda out, **options: sk.concat(f"{URL}/bad/*", out / "all", on_corrupt="skip", **options),
    "pack": lambda out, **options: sk.pack(f"{URL}/photos", out / "{shard}", shards=2, **options),
    "merge": lambda out, **options: sk.merge(f"{URL}/run", out / "all.h5", **options),
    "repair": lambda out, **options: sk.repair(f"{URL}/bad", out / "whole", **options),
}


@pytest.mark.parametrize("name", JOBS)
def test_each_job_has_the_results_that_it_has_without_an_executor(
    name: str, start: Callable[..., Executor], tmp_path: Path
) -> None:
    break_byte("bad/1.tfrecord")
    outcomes = []
    for folder, options in (("there", {"executor": start()}), ("here", {})):
        (tmp_path / folder).mkdir()
        report = JOBS[name](tmp_path / folder, **options).to_dict()
        report.pop("seconds", None)
        text = json.dumps(report, default=repr).replace(f"{tmp_path}/{folder}", "OUT")
        assert str(tmp_path) not in text
        outcomes.append((text, contents(tmp_path / folder)))
        if folder == "there":
            assert fetched(tmp_path, here=False)
    assert outcomes[0] == outcomes[1]


def test_a_worker_of_the_same_host_fetches_nothing_again(
    start: Callable[..., Executor], tmp_path: Path, own_cache: Path
) -> None:
    sk.split(f"{URL}/t-*", tmp_path / "{shard}", shards=2, executor=start(own_cache))
    assert len(fetched(tmp_path, here=True)) == SHARDS
    assert fetched(tmp_path, here=False) == []


def test_an_error_has_the_url_and_the_place(start: Callable[..., Executor], tmp_path: Path) -> None:
    break_byte("t-00004-of-00006.tfrecord")
    executor = start()
    errors = []
    for options in ({}, {"executor": executor}):
        with pytest.raises(CorruptRecordError) as caught:
            sk.concat(f"{URL}/t-*", tmp_path / "all", **options)  # type: ignore[arg-type]
        errors.append(caught.value)
    assert str(errors[0]) == str(errors[1])
    assert errors[1].path == f"{URL}/t-00004-of-00006.tfrecord"
    assert errors[1].offset_bytes == errors[0].offset_bytes is not None


def test_a_worker_refuses_an_object_that_is_another_than_the_driver_has_listed(
    start: Callable[..., Executor], tmp_path: Path
) -> None:
    executor = start()
    break_byte("t-00004-of-00006.tfrecord")  # which the worker does not see: its store is older
    for job in (sk.verify, sk.concat):
        arguments = () if job is sk.verify else (tmp_path / "all",)
        with pytest.raises(RemoteError, match="has changed while it was in use") as caught:
            job(f"{URL}/t-*", *arguments, executor=executor)  # type: ignore[operator]
        assert caught.value.path == f"{URL}/t-00004-of-00006.tfrecord"
    assert not (tmp_path / "all").exists()


def test_a_worker_that_is_killed_is_an_error_with_the_url(
    start: Callable[..., Executor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> None:
    driver = os.getpid()

    def die(_: str) -> None:
        if os.getpid() != driver:
            os.kill(os.getpid(), signal.SIGKILL)

    record_reads(monkeypatch, tmp_path / "log", die)
    with pytest.raises(EngineError, match=f"^{URL}/t-00000-of-00006.tfrecord and 5 files after it") as caught:
        sk.verify(f"{URL}/t-*", executor=start())
    assert caught.value.path == f"{URL}/t-00000-of-00006.tfrecord"
    assert str(tmp_path) not in str(caught.value) and has_no_copies(own_cache)


def test_a_file_that_refers_to_others_is_checked_with_them(
    local: Path, start: Callable[..., Executor]
) -> None:
    sk.merge(local / "run", local / "virtual.h5", mode="virtual")
    MEMORY.put_file(local / "virtual.h5", "/data/virtual.h5")
    (local / "virtual.h5").unlink()
    paths = [f"{URL}/virtual.h5", f"{URL}/run"]
    found = sk.verify(paths, executor=start())
    assert found.ok and found == sk.verify(paths, threads=1) and found.files[0].kind == "virtual"
