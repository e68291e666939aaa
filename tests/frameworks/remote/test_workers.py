"""Jobs with URLs by the workers of another host: processes that have another cache and another folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import fsspec
import pytest

pytest.importorskip("hdfs_native")

import shardkeep as sk
from shardkeep.errors import CorruptRecordError, EngineError, RemoteError
from shardkeep.files.remote import store as objects
from tests.frameworks.remote.servers.fault_proxy import FaultProxy
from tests.frameworks.remote.servers.store import Store
from tests.waiting import eventually

SHARDS = 4


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("SHARDKEEP_CACHE_DIR", str(tmp_path / "cache"))
    yield tmp_path / "cache"
    objects._listed.clear()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Executor]:
    """Two workers of another host; they start with the first task, so with the settings of the store."""
    (tmp_path / "other").mkdir()
    with ProcessPoolExecutor(2, get_context("spawn"), _move, (str(tmp_path / "other"),)) as pool:
        yield pool


def _move(folder: str) -> None:
    os.chdir(folder)
    os.environ["SHARDKEEP_CACHE_DIR"] = folder


def write(folder: Path, root: str) -> None:
    """Write shards, a damaged one, and the segments of a run to the store."""
    folder.mkdir()
    for shard in range(SHARDS):
        with sk.tfrecord.Writer(folder / f"t-{shard:05d}-of-{SHARDS:05d}.tfrecord") as writer:
            for _ in range(50):
                writer.write(os.urandom(3000))
    damaged = bytearray((folder / "t-00002-of-00004.tfrecord").read_bytes())
    damaged[70_000] ^= 1
    (folder / "damaged.tfrecord").write_bytes(damaged)
    for rank in range(2):
        with sk.hdf5.WorkerFile(folder / "run", sk.World(rank=rank, size=2)) as worker:
            worker.append("x", [1.0, 2.0])
            worker.commit(step=1)
    fs, path = fsspec.url_to_fs(root)
    for one in folder.rglob("*"):
        if one.is_file() and not one.name.endswith(".lock"):
            target = f"{path}/{one.relative_to(folder)}"
            fs.makedirs(target.rpartition("/")[0], exist_ok=True)
            fs.pipe_file(target, one.read_bytes())


@pytest.mark.parametrize("name", ["s3", "sftp"])
def test_verify_by_workers_of_another_host(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, workers: Executor, own_cache: Path
) -> None:
    store: Store = request.getfixturevalue(f"{name}_store")
    write(tmp_path / "local", store.root)
    found = sk.verify(store.root, executor=workers)
    (finding,) = found.findings
    assert (finding.path, finding.record) == (f"{store.root}/damaged.tfrecord", 23)
    assert str(tmp_path) not in json.dumps(found.to_dict())
    fetched = [one.stat().st_size for one in (own_cache / "objects").rglob("*") if one.is_file()]
    assert max(fetched, default=0) < 10_000
    assert found == sk.verify(store.root, threads=1)


def test_each_object_is_requested_once(
    faulty_s3: tuple[Store, FaultProxy], tmp_path: Path, workers: Executor
) -> None:
    store, proxy = faulty_s3
    write(tmp_path / "local", store.root)
    proxy.seen.clear()
    for _ in range(2):
        assert sk.verify(f"{store.root}/t-*", executor=workers).ok
    with pytest.raises(CorruptRecordError) as caught:
        sk.split(f"{store.root}/*.tfrecord", tmp_path / "{shard}", shards=2, executor=workers)
    assert caught.value.path == f"{store.root}/damaged.tfrecord" and caught.value.record == 23
    gets = [one.target.partition("?")[0] for one in proxy.seen if one.method == "GET"]
    shards = [one for one in gets if one.endswith("-of-00004.tfrecord")]
    # By the workers, and for the split by this process too.
    assert sorted(shards) == sorted([*set(shards)] * 2) and len(set(shards)) == SHARDS


def test_an_object_that_changes_after_the_listing_is_an_error(
    s3_store: Store, tmp_path: Path, workers: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "local", s3_store.root)
    fs, path = fsspec.url_to_fs(s3_store.root)
    submit = workers.submit

    def change_and_submit(*arguments: object) -> object:
        content = (tmp_path / "local/t-00000-of-00004.tfrecord").read_bytes()
        fs.pipe_file(f"{path}/t-00001-of-00004.tfrecord", content)
        return submit(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(workers, "submit", change_and_submit)
    with pytest.raises(RemoteError, match="has changed while it was in use") as caught:
        sk.verify(f"{s3_store.root}/t-*", executor=workers)
    assert caught.value.path == f"{s3_store.root}/t-00001-of-00004.tfrecord"


def test_a_worker_that_is_killed_while_it_fetches_leaves_nothing_that_another_reads(
    faulty_s3: tuple[Store, FaultProxy], tmp_path: Path, workers: Executor
) -> None:
    store, proxy = faulty_s3
    write(tmp_path / "local", store.root)
    proxy.inject("stall", method="GET", target="t-00003-of-00004.tfrecord$")

    def kill() -> None:
        eventually(lambda: any(one.fault for one in proxy.seen), "no request stalls")
        for one in list(workers._processes.values()):  # type: ignore[attr-defined]
            one.kill()

    with ThreadPoolExecutor(1) as thread, pytest.raises(EngineError, match="no worker finished") as caught:
        thread.submit(kill)
        sk.verify(f"{store.root}/t-*", executor=workers)
    assert str(caught.value.path).startswith(f"{store.root}/t-0000")
    with ProcessPoolExecutor(1, get_context("spawn"), _move, (str(tmp_path / "other"),)) as pool:
        assert sk.verify(f"{store.root}/t-*", executor=pool).ok
