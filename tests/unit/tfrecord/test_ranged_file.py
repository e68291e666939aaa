"""Single records of remote shards."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from shardkeep.errors import CorruptRecordError, PlanError, RemoteError
from shardkeep.files.remote import store
from shardkeep.files.remote.cache import object_path
from shardkeep.files.remote.store import stat
from shardkeep.tfrecord import Reader, build_index, ranged_file
from tests.remote_memory import MEMORY, reads, record_reads, write_shards

URL = "memory://ranged"
NAME = "t-00000-of-00001.tfrecord"
SHARD = f"{URL}/{NAME}"


@pytest.fixture(autouse=True)
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("SHARDKEEP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(ranged_file, "_ROUND_BYTES", 10_000)
    monkeypatch.setattr(ranged_file, "_GAP_BYTES", 100)
    write_shards(tmp_path, URL, shards=1, padding=3000)
    build_index(SHARD)
    os.unlink(object_path(stat(SHARD)))
    record_reads(monkeypatch, tmp_path / "log")
    yield tmp_path / NAME
    MEMORY.rm("/ranged", recursive=True)


def is_fetched() -> bool:
    return os.path.exists(object_path(stat(SHARD)))


def test_records_are_read_by_ranges_until_the_whole_is_cheaper(local: Path, tmp_path: Path) -> None:
    remote, here = Reader(SHARD), Reader(local)
    assert (len(remote), remote.compression, remote.path) == (50, None, SHARD)
    assert reads(tmp_path / "log") == []  # the index is in the cache
    assert remote[7] == here[7] and remote[-1] == here[-1]
    assert remote.read_many([3, 1, 1, 2, 40]) == here.read_many([3, 1, 1, 2, 40])
    assert remote[:0] == []
    assert reads(tmp_path / "log") == [f"/ranged/{NAME}"] * 4  # records 1 to 3 are one range
    assert not is_fetched()
    for number in range(50):
        assert remote[number] == here[number]
    assert is_fetched() and 8 < len(reads(tmp_path / "log")) < 16
    assert list(remote) == list(here)
    with pytest.raises(IndexError, match="50 does not exist"):
        Reader(SHARD)[50]


def test_a_pass_fetches_the_shard(local: Path) -> None:
    remote = pickle.loads(pickle.dumps(Reader(SHARD)))
    assert not is_fetched()
    assert list(remote) == list(Reader(local)) and is_fetched()
    assert remote[3] == Reader(local)[3]


@pytest.mark.parametrize(("mode", "small"), [("ranges", 1 << 20), ("whole", 10)])
def test_one_way_can_be_forced(mode: str, small: int, local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranged_file, "_ROUND_BYTES", small)
    monkeypatch.setenv("SHARDKEEP_REMOTE_READ", mode)
    remote = Reader(SHARD)
    assert [remote[number] for number in range(50)] == list(Reader(local))
    assert is_fetched() == (mode == "whole")
    monkeypatch.setenv("SHARDKEEP_REMOTE_READ", "some")
    with pytest.raises(PlanError, match="SHARDKEEP_REMOTE_READ='some' is not valid: use \"auto\""):
        Reader(SHARD)


def test_without_an_index_and_where_it_is_small_the_shard_is_fetched(
    local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranged_file, "_ROUND_BYTES", 1 << 20)
    assert Reader(SHARD)[3] == Reader(local)[3] and is_fetched()
    MEMORY.pipe_file("/ranged/other", local.read_bytes())
    monkeypatch.setattr(ranged_file, "_ROUND_BYTES", 10)
    assert Reader(f"{URL}/other")[3] == Reader(local)[3]
    assert os.path.exists(object_path(stat(f"{URL}/other")))


def test_a_shard_of_a_store_that_ignores_ranges_is_fetched(
    local: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(store, "_ranges", {})
    content = local.read_bytes()
    monkeypatch.setattr(MemoryFileSystem, "cat_file", lambda *_, **__: content)
    remote, here = Reader(SHARD), Reader(local)
    assert remote[0] == here[0] and not is_fetched()
    assert remote[7] == here[7] and is_fetched()


def test_damage_and_changes_are_errors(local: Path) -> None:
    remote = Reader(SHARD)
    content = local.read_bytes()
    MEMORY.pipe_file(f"/ranged/{NAME}", content)
    with pytest.raises(RemoteError, match="has changed while it was in use"):
        remote[3]
    MEMORY.pipe_file(f"/ranged/{NAME}", content[:-50] + bytes(50))
    MEMORY.pipe_file(f"/ranged/{NAME}.skidx", Path(object_path(remote._ranged._info) + ".skidx").read_bytes())  # type: ignore[union-attr]
    again = Reader(SHARD)
    assert again[3] == Reader(local)[3]
    with pytest.raises(CorruptRecordError, match=f"{SHARD}: record 49") as caught:
        again[-1]
    assert (caught.value.path, caught.value.record) == (SHARD, 49)
