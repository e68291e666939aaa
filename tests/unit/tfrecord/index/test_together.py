from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardkeep import FixedLen, Loader, doctor
from shardkeep.files.remote import store
from shardkeep.tfrecord import build_index
from shardkeep.tfrecord.index import together
from tests.remote_memory import ALONE, MEMORY, reads, record_reads, write_shards

URL = "memory://together"
PATTERN = f"{URL}/*.tfrecord"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A log of the objects that a host reads, which has not read the folder before."""
    monkeypatch.setenv("SHARDKEEP_CACHE_DIR", str(tmp_path / "builder"))
    write_shards(tmp_path / "local", URL)
    build_index([PATTERN])
    monkeypatch.setenv("SHARDKEEP_CACHE_DIR", str(tmp_path / "reader"))
    store._listed.clear()
    record_reads(monkeypatch, tmp_path / "log")
    yield tmp_path / "log"
    MEMORY.rm("/together", recursive=True)
    store._listed.clear()


def values() -> list[int]:
    loader = Loader(PATTERN, {"x": FixedLen()}, batch_size=10, world=ALONE)
    return [x for batch in loader for x in batch["x"].tolist()]


def names(log: Path) -> list[str]:
    return [name.rpartition("/")[2] for name in reads(log)]


def shard(number: int) -> str:
    return f"t-{number:05d}-of-00004.tfrecord"


def test_one_object_has_the_indexes_of_all_shards(log: Path) -> None:
    assert values() == list(range(200))
    assert sorted(names(log)) == ["all.skidx", *map(shard, range(4))]
    assert values() == list(range(200))
    assert len(names(log)) == 5  # all is in the cache


def test_the_doctor_finds_no_fault_in_the_indexes_of_a_store(log: Path) -> None:
    assert not [one for one in doctor(URL).problems if one.check == "index"]


def test_a_large_object_is_fetched_into_the_cache(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "_FIRST_BYTES", 100)
    assert values() == list(range(200))
    assert sorted(names(log)) == ["all.skidx", "all.skidx", *map(shard, range(4))]


def test_an_index_of_another_version_of_a_shard_is_not_used(log: Path) -> None:
    MEMORY.pipe_file(f"/together/{shard(1)}", MEMORY.cat_file(f"/together/{shard(2)}"))
    build_index(f"{URL}/{shard(1)}")
    log.unlink()
    assert values() == [*range(50), *range(100, 150), *range(100, 200)]
    assert names(log)[:1] == ["all.skidx"] and f"{shard(2)}.skidx" not in names(log)


def test_a_shard_that_is_not_in_it_has_its_own_index(log: Path, tmp_path: Path) -> None:
    write_shards(tmp_path / "more", URL, shards=6)
    for number in range(4):
        MEMORY.rm(f"/together/{shard(number)}")
    build_index(f"{URL}/t-00005-of-00006.tfrecord")
    with pytest.warns(RuntimeWarning, match="5 of 6 shards have no index"):
        assert values() == list(range(300))


def test_a_damaged_object_is_not_used(log: Path) -> None:
    content = bytearray(MEMORY.cat_file("/together/all.skidx"))
    content[200] ^= 1
    MEMORY.pipe_file("/together/all.skidx", bytes(content))
    log.unlink()
    assert values() == list(range(200))
    assert sorted(names(log)[1:5]) == [f"{shard(number)}.skidx" for number in range(4)]


def test_indexes_of_other_shards_stay_and_those_of_removed_ones_do_not(log: Path, tmp_path: Path) -> None:
    write_shards(tmp_path / "more", URL, shards=2)
    MEMORY.rm(f"/together/{shard(3)}")
    build_index([f"{URL}/*-of-00002.tfrecord"])
    listed = {info.url: info for info in store.list_folder(URL)}
    found = sorted(url.rpartition("/")[2] for url, _ in together.read_together(URL, listed))
    assert found == sorted(["t-00000-of-00002.tfrecord", "t-00001-of-00002.tfrecord", *map(shard, range(3))])
