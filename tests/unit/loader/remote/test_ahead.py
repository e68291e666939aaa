"""Loaders of remote shards. Covers `shardkeep.loader.remote.shards`."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

import shardkeep as sk
from shardkeep import _core
from shardkeep.errors import CorruptRecordError, PlanError, RemoteError
from shardkeep.files.remote import cache
from shardkeep.loader.remote import ahead
from shardkeep.tfrecord.index.index import build_index
from tests.remote_memory import ALONE, MEMORY, reads, record_reads, write_shards

URL = "memory://data"
X = {"x": sk.FixedLen()}


@pytest.fixture
def local(tmp_path: Path) -> Path:
    write_shards(tmp_path / "local", URL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        put_indexes(tmp_path / "local")
    return tmp_path / "local"


def put_indexes(folder: Path) -> None:
    for path in folder.glob("*.tfrecord"):
        build_index(path)
        MEMORY.pipe_file(f"/data/{path.name}.skidx", Path(f"{path}.skidx").read_bytes())


def loader(paths: Any, **options: Any) -> sk.Loader:
    return sk.Loader(paths, X, **{"batch_size": 16, "world": ALONE, "remainder": "short"} | options)


def values(batches: Any) -> list[int]:
    return [x for batch in batches for x in batch["x"].tolist()]


def cached_bytes(folder: Path) -> int:
    """Return the size of the cache while no thread of a loader can begin to fetch an object."""
    with cache._locked(str(folder / "room"), lambda _: None):
        return sum(status.st_size for _, status in cache._objects(str(folder)))


def without_all(names: list[str]) -> list[str]:
    """Return the names without the object with all indexes, which is requested before the listing."""
    return [name for name in names if not name.endswith("/all.skidx")]


def shards_of(names: list[str]) -> list[str]:
    return [name for name in names if name.endswith(".tfrecord")]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shuffle": "global"},
        {"shuffle": "blocks"},
        {"shard_by": "files"},
        {"epochs": 3, "shuffle": "global"},
        {"remainder": "mask", "world": sk.World(rank=1, size=3)},
    ],
)
def test_batches_are_those_of_local_files(local: Path, options: dict[str, Any]) -> None:
    remote, here = loader(f"{URL}/*.tfrecord", **options), loader(local / "*.tfrecord", **options)
    assert values(remote) == values(here)
    both = [one.receipt() | {"id": "", "crc32c": ""} for one in (remote, here)]
    assert both[0] == both[1]


def test_no_shard_is_fetched_before_the_first_batch_if_there_are_indexes(
    local: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    record_reads(monkeypatch, tmp_path / "log")
    batches = loader(f"{URL}/*.tfrecord")
    assert shards_of(reads(tmp_path / "log")) == []
    assert len(without_all(reads(tmp_path / "log"))) == 4
    values(batches)
    assert len(shards_of(reads(tmp_path / "log"))) == 4
    values(loader(f"{URL}/*.tfrecord"))
    assert len(without_all(reads(tmp_path / "log"))) == 8


def test_shards_that_are_all_in_the_cache_are_not_looked_for_ahead_of_each_step(
    local: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> None:
    expected = values(loader(f"{URL}/*.tfrecord"))
    uses: list[int] = []
    monkeypatch.setattr(ahead.FetchedAhead, "__init__", lambda *_: uses.append(1))
    batches = iter(loader(f"{URL}/*.tfrecord"))
    assert [next(batches)["x"][0], *values(batches)[-1:]] == [0, expected[-1]]
    monkeypatch.setenv("SHARDKEEP_CACHE_BYTES", "1000")
    with pytest.raises(AttributeError):
        next(iter(loader(f"{URL}/*.tfrecord")))
    monkeypatch.delenv("SHARDKEEP_CACHE_BYTES")
    shards = [path for path, status in cache._objects(str(own_cache)) if status.st_size > 1000]
    os.unlink(min(shards))
    with pytest.raises(AttributeError):
        next(iter(loader(f"{URL}/*.tfrecord")))
    assert len(uses) == 2


def test_without_indexes_shards_are_fetched_and_scanned_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shards(tmp_path / "local", URL)
    record_reads(monkeypatch, tmp_path / "log")
    with pytest.warns(
        RuntimeWarning, match="4 of 4 shards have no index in their store, as memory://data/t-00000-of-00004"
    ):
        first = loader(f"{URL}/*.tfrecord")
    assert values(first) == values(loader(f"{URL}/*.tfrecord")) == list(range(200))
    assert len(without_all(reads(tmp_path / "log"))) == 4


def test_shards_are_fetched_in_the_order_of_the_plan_and_not_too_far_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shards(tmp_path / "local", URL, shards=20)
    put_indexes(tmp_path / "local")
    monkeypatch.setattr(ahead, "_AHEAD_SHARDS", 3)
    monkeypatch.setattr(ahead, "_THREADS", 1)
    record_reads(monkeypatch, tmp_path / "log")
    batches = iter(loader(f"{URL}/*.tfrecord", prefetch=1))
    next(batches)
    time.sleep(0.5)
    early = shards_of(reads(tmp_path / "log"))
    assert len(early) <= 5
    assert len(values(batches)) == 1000 - 16
    fetched = shards_of(reads(tmp_path / "log"))
    assert fetched == sorted(fetched) and len(fetched) == 20


@pytest.mark.parametrize("shuffle", [False, "blocks", "global"])
def test_an_epoch_over_data_larger_than_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shuffle: Any, own_cache: Path
) -> None:
    write_shards(tmp_path / "local", URL, shards=10, records=20, padding=1000)
    put_indexes(tmp_path / "local")
    size = sum(path.stat().st_size for path in (tmp_path / "local").glob("*.tfrecord"))
    limit = size * 9 // 20  # a step needs at most four of ten shards
    monkeypatch.setenv("SHARDKEEP_CACHE_BYTES", str(limit))
    batches = loader(f"{URL}/*.tfrecord", shuffle=shuffle, prefetch=2, batch_size=4, epochs=2)
    most, found = 0, []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for batch in batches:
            found += batch["x"].tolist()
            most = max(most, cached_bytes(own_cache))
    assert sorted(found) == sorted([*range(200), *range(200)])
    assert most <= limit
    if shuffle != "blocks":  # which mixes most of so few shards
        messages = [str(one.message)[:47] for one in caught]
        assert messages == (["each remote shard is fetched again and again, s"] if shuffle else [])


def test_a_step_that_needs_more_than_the_cache_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> None:
    write_shards(tmp_path / "local", URL, shards=10, padding=1000)
    put_indexes(tmp_path / "local")
    monkeypatch.setenv("SHARDKEEP_CACHE_BYTES", "100000")  # a shard has 53,000
    batches = loader(f"{URL}/*.tfrecord", shuffle="global", batch_size=50)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        assert sorted(values(batches)) == list(range(500))


def test_each_rank_of_a_host_has_its_part_of_a_cache_that_is_too_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> None:
    write_shards(tmp_path / "local", URL, shards=20, records=20, padding=1000)
    put_indexes(tmp_path / "local")
    size = sum(path.stat().st_size for path in (tmp_path / "local").glob("*.tfrecord"))
    monkeypatch.setenv("SHARDKEEP_CACHE_BYTES", str(size // 2))
    ranks = [
        iter(loader(f"{URL}/*.tfrecord", world=sk.World(rank, 4, rank, 4), batch_size=4)) for rank in range(4)
    ]
    most, found = 0, []
    for batches in zip(*ranks, strict=True):
        found += values(batches)
        most = max(most, cached_bytes(own_cache))
    assert sorted(found) == list(range(400))
    assert most <= size // 2


@pytest.mark.parametrize("shuffle", [False, "global"])
def test_shards_that_are_fetched_again_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shuffle: Any
) -> None:
    write_shards(tmp_path / "local", URL, shards=10, records=10, padding=2000)
    put_indexes(tmp_path / "local")
    monkeypatch.setenv("SHARDKEEP_CACHE_BYTES", "60000")
    limit = sk.files.budget().limit
    _core.set_descriptor_limit(2)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # again and again
            found = values(loader(f"{URL}/*.tfrecord", shuffle=shuffle, prefetch=1, batch_size=4, epochs=3))
    finally:
        _core.set_descriptor_limit(limit)
    assert sorted(found) == sorted([*range(100)] * 3)


def test_a_shard_that_is_dropped_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shards(tmp_path / "local", URL, shards=20, padding=2000)
    put_indexes(tmp_path / "local")
    monkeypatch.setenv("SHARDKEEP_CACHE_BYTES", "600000")
    batches = loader(f"{URL}/*.tfrecord", prefetch=1)
    assert max(sk.files.budget().open for _ in batches) < 10


def test_a_shard_that_has_changed_is_an_error(local: Path, tmp_path: Path) -> None:
    batches = loader(f"{URL}/*.tfrecord")
    write_shards(tmp_path / "other", URL)
    with pytest.raises(RemoteError, match=r"t-00000-of-00004.tfrecord has changed while it was in use"):
        values(batches)


def test_an_index_of_another_content_is_an_error(local: Path, tmp_path: Path) -> None:
    write_shards(tmp_path / "other", URL, padding=0)
    for path in (tmp_path / "other").glob("*.tfrecord"):
        content = bytearray(path.read_bytes())
        content[20] ^= 1
        MEMORY.pipe_file(f"/data/{path.name}", bytes(content))
    with pytest.raises(RemoteError, match=r"memory://data/t-.*: the index next to it is of another content"):
        values(loader(f"{URL}/*.tfrecord"))


def test_a_damaged_shard_is_reported_with_its_url(tmp_path: Path) -> None:
    write_shards(tmp_path / "local", URL)
    content = bytearray(MEMORY.cat_file("/data/t-00001-of-00004.tfrecord"))
    content[20] ^= 1
    MEMORY.pipe_file("/data/t-00001-of-00004.tfrecord", bytes(content))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batches = loader(f"{URL}/*.tfrecord")
    with pytest.raises(CorruptRecordError) as caught:
        values(batches)
    assert caught.value.path == f"{URL}/t-00001-of-00004.tfrecord"


def test_a_run_resumes_from_a_local_copy(local: Path) -> None:
    first = loader(f"{URL}/*.tfrecord", shuffle="global", epochs=2)
    batches = iter(first)
    before = values(next(batches) for _ in range(5))
    second = loader(local / "*.tfrecord", shuffle="global", epochs=2)
    second.load_state_dict(first.state_dict())
    assert sorted(before + values(second)) == sorted([*range(200), *range(200)])


def test_forks_and_pickles_have_their_own_copies(local: Path) -> None:
    batches = loader(f"{URL}/*.tfrecord")
    iterator = iter(batches)
    next(iterator)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=lambda: results.put(values(batches)))
    child.start()
    assert results.get(timeout=60) == list(range(16, 200))
    child.join()
    assert values(iterator) == list(range(16, 200))
    assert values(pickle.loads(pickle.dumps(loader(f"{URL}/*.tfrecord")))) == list(range(200))


def test_two_ranks_of_a_host_fetch_each_shard_once(
    local: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    record_reads(monkeypatch, tmp_path / "log", lambda _: time.sleep(0.02))
    context = multiprocessing.get_context("fork")
    results = context.Queue()

    def rank(number: int) -> None:
        results.put(
            values(loader(f"{URL}/*.tfrecord", world=sk.World(rank=number, size=2), shuffle="global"))
        )

    children = [context.Process(target=rank, args=(number,)) for number in range(2)]
    for child in children:
        child.start()
    assert sorted(results.get(timeout=60) + results.get(timeout=60)) == list(range(200))
    for child in children:
        child.join()
    assert len(shards_of(reads(tmp_path / "log"))) == 4


def test_threads_end_with_the_iterator(local: Path) -> None:
    batches = iter(loader(f"{URL}/*.tfrecord"))
    next(batches)
    assert any(thread.name == "shardkeep-fetch" for thread in threading.enumerate())
    del batches
    gc.collect()
    end_s = time.monotonic() + 10
    while any(thread.name == "shardkeep-fetch" for thread in threading.enumerate()):
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_a_mixture_of_remote_and_local_data(local: Path) -> None:
    mixed = sk.Loader.mix([(loader(f"{URL}/*.tfrecord"), 1.0), (loader(local / "*.tfrecord"), 1.0)])
    assert sorted(values(mixed)) == sorted([*range(200), *range(200)])
    with pytest.raises(PlanError, match="either remote or local"):
        loader(
            [f"{URL}/t-00000-of-00004.tfrecord", os.fspath(local / "t-00001-of-00004.tfrecord")],
            incomplete="allow",
        )


def test_a_batch_does_not_wait_for_the_shards_of_those_after_it(
    local: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    free = threading.Event()

    def fault(path: str) -> None:
        if path.endswith("t-00001-of-00004.tfrecord"):
            assert free.wait(60)

    record_reads(monkeypatch, tmp_path / "log", fault)
    batches = iter(loader(f"{URL}/*.tfrecord", prefetch=4))
    assert [values([next(batches)])[0] for _ in range(3)] == [0, 16, 32]
    assert not free.is_set()
    free.set()
    assert len(values(batches)) == 152
