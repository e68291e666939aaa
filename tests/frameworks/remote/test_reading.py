"""Reading from real stores, with faults between."""

from __future__ import annotations

import multiprocessing
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import fsspec
import h5py
import numpy as np
import pytest

pytest.importorskip("hdfs_native")

import shardkeep as sk
from shardkeep.cli.app import run
from shardkeep.errors import NotFoundError, RemoteError
from shardkeep.files.remote import store as objects
from shardkeep.tfrecord import Writer
from tests.frameworks.remote.servers.fault_proxy import FaultProxy
from tests.frameworks.remote.servers.store import Store

X = {"x": sk.FixedLen()}
SHARDS, RECORDS = 4, 50


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("SHARDKEEP_CACHE_DIR", str(tmp_path / "cache"))
    yield tmp_path / "cache"
    objects._listed.clear()


def write_shards(folder: Path, url: str, *, indexes: bool = True) -> None:
    folder.mkdir()
    for shard in range(SHARDS):
        with Writer(folder / f"t-{shard:05d}-of-{SHARDS:05d}.tfrecord") as w:
            for record in range(RECORDS):
                w.write_example({"x": shard * RECORDS + record, "pad": os.urandom(3000)})
    if indexes:
        for shard_path in sorted(folder.glob("*.tfrecord")):
            sk.tfrecord.build_index(shard_path)
    with h5py.File(folder / "a.h5", "w") as f:
        f["x"] = np.arange(5)
    fs, path = fsspec.url_to_fs(url)
    fs.makedirs(path, exist_ok=True)
    for one in folder.iterdir():
        fs.pipe_file(f"{path}/{one.name}", one.read_bytes())


def loader(paths: object, **options: object) -> sk.Loader:
    return sk.Loader(paths, X, **{"batch_size": 16, "world": sk.World(), "remainder": "short"} | options)  # type: ignore[arg-type]


def values(batches: object) -> list[int]:
    return [x for batch in batches for x in batch["x"].tolist()]  # type: ignore[attr-defined]


def test_each_store_is_read_as_local_files_are(any_store: Store, tmp_path: Path) -> None:
    local, root = tmp_path / "local", any_store.root
    write_shards(local, root)
    assert values(loader(f"{root}/*.tfrecord", shuffle="global")) == values(
        loader(local / "*.tfrecord", shuffle="global")
    )
    shard = f"{root}/t-00001-of-00004.tfrecord"
    reader, here = sk.tfrecord.Reader(shard), sk.tfrecord.Reader(local / "t-00001-of-00004.tfrecord")
    assert list(reader) == list(here) and reader[-1] == here[-1]
    report = sk.verify(root)
    assert report.ok and {file.path for file in report.files} >= {shard, f"{root}/a.h5"}
    assert sk.hdf5.open(f"{root}/a.h5")["x"][:].tolist() == list(range(5))
    content = (local / "t-00001-of-00004.tfrecord").read_bytes()
    for start, stop in ((0, 10), (7, 5000), (len(content) - 3, len(content))):
        assert objects.read(shard, start, stop) == content[start:stop]
    assert objects.reads_ranges(shard) == ("unconditional-s3" not in root)
    infos = {info.url: info for info in objects.list_objects(f"{root}/*.tfrecord")}
    assert infos[shard] == objects.stat(shard)
    with pytest.raises(NotFoundError) as caught:
        sk.tfrecord.Reader(f"{root}/none.tfrecord")
    assert caught.value.path == f"{root}/none.tfrecord"


def test_a_shard_that_changes_under_a_loader_is_an_error(any_store: Store, tmp_path: Path) -> None:
    write_shards(tmp_path / "local", any_store.root)
    batches = loader(f"{any_store.root}/*.tfrecord")
    time.sleep(1.1)  # versions of some stores are times in seconds
    fs, path = fsspec.url_to_fs(any_store.root)
    name = "t-00002-of-00004.tfrecord"
    content = (tmp_path / "local" / name).read_bytes()
    fs.pipe_file(f"{path}/{name}", content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(RemoteError, match="has changed while it was in use") as caught:
        values(batches)
    assert caught.value.path == f"{any_store.root}/{name}"


def test_an_index_is_built_in_each_store(
    any_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shards(tmp_path / "local", any_store.root, indexes=False)
    here = sk.tfrecord.build_index([tmp_path / "local" / "*.tfrecord"])
    assert run(["index", "--verify", f"{any_store.root}/*.tfrecord"]) == 0
    assert len(objects.list_objects(f"{any_store.root}/*.skidx")) == SHARDS + 1  # with that of all
    monkeypatch.setenv("SHARDKEEP_CACHE_DIR", str(tmp_path / "other"))
    monkeypatch.setenv("SHARDKEEP_REMOTE_READ", "ranges")
    remote = [one.url for one in objects.list_objects(f"{any_store.root}/*.tfrecord")]
    assert [sk.tfrecord.Reader(url)[-1] for url in remote] == [
        sk.tfrecord.Reader(path)[-1] for path in sorted((tmp_path / "local").glob("*.tfrecord"))
    ]
    assert values(loader(remote)) == list(range(SHARDS * RECORDS))  # without a warning
    assert sk.tfrecord.build_index(remote) == here


def test_the_index_for_a_bucket_that_refuses_writes_is_kept_in_the_cache(
    faulty_s3: tuple[Store, FaultProxy], tmp_path: Path
) -> None:
    store, proxy = faulty_s3
    write_shards(tmp_path / "local", store.root, indexes=False)
    proxy.inject("status", 100, status=403, method="PUT")
    with pytest.warns(RuntimeWarning, match=f"indexes of {store.root} are only in the cache of this host"):
        sk.tfrecord.build_index([f"{store.root}/*.tfrecord"])
    assert objects.list_objects(f"{store.root}/*.skidx") == []
    assert values(loader(f"{store.root}/*.tfrecord")) == list(range(SHARDS * RECORDS))


def test_two_ranks_of_a_host_fetch_each_shard_once(
    faulty_s3: tuple[Store, FaultProxy], tmp_path: Path
) -> None:
    store, proxy = faulty_s3
    write_shards(tmp_path / "local", store.root)
    proxy.seen.clear()
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    ranks = [context.Process(target=_rank, args=(store.root, number, results)) for number in range(2)]
    for one in ranks:
        one.start()
    assert sorted(results.get(timeout=120) + results.get(timeout=120)) == list(range(SHARDS * RECORDS))
    for one in ranks:
        one.join()
    gets = [
        seen for seen in proxy.seen if seen.method == "GET" and seen.target.partition("?")[0].endswith("d")
    ]
    assert len(gets) == SHARDS


def _rank(root: str, number: int, results: multiprocessing.Queue[list[int]]) -> None:
    results.put(values(loader(f"{root}/*.tfrecord", world=sk.World(rank=number, size=2))))


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "status", "status": 503},
        {"kind": "status", "status": 429},
        {"kind": "status", "status": 500},
        {"kind": "reset"},
        {"kind": "cut", "after_bytes": 1000},
        {"kind": "shorten", "after_bytes": 1000},
        {"kind": "slow", "after_bytes": 30_000, "pause_s": 0.05},
    ],
    ids=lambda fault: f"{fault['kind']}-{fault.get('status', '')}".strip("-"),
)
def test_a_faulty_store_loses_nothing(
    faulty_s3: tuple[Store, FaultProxy], tmp_path: Path, fault: dict[str, object]
) -> None:
    store, proxy = faulty_s3
    write_shards(tmp_path / "local", store.root)
    proxy.inject(times=6, method="GET", target="tfrecord", **fault)  # type: ignore[arg-type]
    assert values(loader(f"{store.root}/*.tfrecord")) == list(range(SHARDS * RECORDS))
    assert sum(bool(seen.fault) for seen in proxy.seen) == 6


def test_a_changed_byte_is_found_by_the_checksums(
    faulty_s3: tuple[Store, FaultProxy], tmp_path: Path
) -> None:
    store, proxy = faulty_s3
    write_shards(tmp_path / "local", store.root)
    proxy.inject("flip", method="GET", target="t-00001-of-00004.tfrecord$")
    with pytest.raises(sk.CorruptRecordError) as caught:
        values(loader(f"{store.root}/*.tfrecord"))
    assert caught.value.path == f"{store.root}/t-00001-of-00004.tfrecord"


@pytest.mark.parametrize("kind", ["stall", "status"])
def test_a_store_that_stays_broken_is_an_error_in_time(
    faulty_s3: tuple[Store, FaultProxy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    store, proxy = faulty_s3
    write_shards(tmp_path / "local", store.root)
    batches = loader(f"{store.root}/*.tfrecord")
    monkeypatch.setenv("SHARDKEEP_REMOTE_TIMEOUT_S", "5")
    proxy.inject(kind, 10_000, method="GET", target="tfrecord")
    start_s = time.monotonic()
    with pytest.raises(RemoteError) as caught:
        values(batches)
    assert time.monotonic() - start_s < 100
    assert caught.value.path == f"{store.root}/t-00000-of-00004.tfrecord"
    if kind == "status":
        assert (caught.value.status, caught.value.request_id) == (503, "request-of-the-proxy")


@pytest.mark.parametrize("name", ["s3", "azure", "google"])
def test_refused_credentials_are_not_tried_again(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store, proxy = request.getfixturevalue(f"faulty_{name}")
    write_shards(tmp_path / "local", store.root)
    proxy.seen.clear()
    proxy.inject("status", 100, status=403, method="GET|HEAD")
    with pytest.raises(RemoteError, match="check the credentials") as caught:
        sk.tfrecord.Reader(f"{store.root}/t-00001-of-00004.tfrecord")
    assert caught.value.status == 403
    # gcsfs asks for the object and for its folder at the same time, and lists after a refusal.
    assert sum(bool(seen.fault) for seen in proxy.seen) <= (3 if name == "google" else 1)
    secret = str(store.options)
    assert not any(
        word in str(caught.value) for word in re.split("[';]", secret) if len(word) > 8 and "://" not in word
    )


@pytest.mark.parametrize("name", ["azure", "google"])
@pytest.mark.parametrize(
    "fault",
    [{"kind": "status", "status": 429}, {"kind": "reset"}, {"kind": "cut", "after_bytes": 1000}],
    ids=lambda fault: str(fault["kind"]),
)
def test_faults_are_repeated_whatever_the_client(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, fault: dict[str, object]
) -> None:
    store, proxy = request.getfixturevalue(f"faulty_{name}")
    write_shards(tmp_path / "local", store.root)
    proxy.inject(times=2, method="GET", target=r"\.tfrecord", **fault)
    assert values(loader(f"{store.root}/*.tfrecord")) == list(range(SHARDS * RECORDS))
    assert sum(bool(seen.fault) for seen in proxy.seen) == 2


@pytest.mark.parametrize("built", ["in the store", "before the copy"])
def test_the_first_batch_needs_a_listing_the_indexes_and_one_shard(
    faulty_s3: tuple[Store, FaultProxy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built: str
) -> None:
    store, proxy = faulty_s3
    write_shards(tmp_path / "local", store.root)
    if built == "in the store":
        sk.tfrecord.build_index([f"{store.root}/*.tfrecord"])
        monkeypatch.setenv("SHARDKEEP_CACHE_DIR", str(tmp_path / "other"))
        objects._listed.clear()
    proxy.seen.clear()
    next(iter(loader(f"{store.root}/*.tfrecord", prefetch=1)))
    asked = [seen.target.partition("?")[0].rpartition("/")[2] for seen in proxy.seen]
    before = asked[: asked.index("t-00000-of-00004.tfrecord")]
    apart = [] if built == "in the store" else [f"t-{i:05d}-of-00004.tfrecord.skidx" for i in range(4)]
    assert sorted(before) == sorted(["bucket", "all.skidx", *apart])
    assert {seen.method for seen in proxy.seen} == {"GET"}
