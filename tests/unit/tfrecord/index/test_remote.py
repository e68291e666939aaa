"""Indexes that are built for shards in a store."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shardkeep import FixedLen, Loader, info
from shardkeep.errors import CorruptRecordError, NotFoundError
from shardkeep.files.remote import store
from shardkeep.jobs.inspection import folder
from shardkeep.tfrecord import build_index, read_text_index, write_text_index
from shardkeep.tfrecord.index import index
from tests.remote_memory import ALONE, MEMORY, write_shards

URL = "memory://index"


@pytest.fixture(autouse=True)
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("SHARDKEEP_CACHE_DIR", str(tmp_path / "cache"))
    write_shards(tmp_path / "local", URL)
    yield tmp_path / "local"
    MEMORY.rm("/index", recursive=True)
    store._listed.clear()


def shard(number: int) -> str:
    return f"t-{number:05d}-of-00004.tfrecord"


def indexes() -> list[str]:
    return [info.url for info in store.list_objects(f"{URL}/t-*.skidx")]


def values(paths: object) -> list[int]:
    loader = Loader(paths, {"x": FixedLen()}, batch_size=10, world=ALONE)  # type: ignore[arg-type]
    return [x for batch in loader for x in batch["x"].tolist()]


@pytest.mark.parametrize("threads", [None, 1, "executor"])
def test_an_index_is_stored_next_to_each_shard(threads: int | str | None, local: Path) -> None:
    here = build_index([local / "*.tfrecord"])
    done: list[tuple[int, int]] = []
    if threads == "executor":
        with ThreadPoolExecutor(2) as executor:
            found = build_index([f"{URL}/*.tfrecord"], executor=executor)
    else:
        found = build_index([f"{URL}/*.tfrecord"], threads=threads, progress=lambda *at: done.append(at))  # type: ignore[arg-type]
        assert done[-1] == (sum(one.size_bytes for one in here),) * 2
    assert found == here
    assert indexes() == [f"{URL}/{shard(number)}.skidx" for number in range(4)]
    assert values(f"{URL}/*.tfrecord") == list(range(200))  # without a warning
    assert build_index(f"{URL}/{shard(2)}") == here[2]


def test_indexes_in_the_copy_of_a_folder_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    build_index([f"{URL}/*.tfrecord"])
    monkeypatch.setattr(index, "_WORTH_BYTES", 0)
    monkeypatch.delattr(folder, "scan_in_parts")
    assert info(URL).records == 200  # without a warning about links to the cache


def test_an_index_for_a_store_without_writes_is_in_the_cache(local: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for number in range(4):
            archive.write(local / shard(number), shard(number))
    urls = [f"zip://{shard(number)}::{tmp_path}/all.zip" for number in range(4)]
    with pytest.warns(RuntimeWarning, match="indexes of zip://.* are only in the cache") as caught:
        build_index(urls)
    assert len(caught) == 1 and "objects there cannot be written" in str(caught[0].message)
    assert values(urls) == list(range(200))


@pytest.mark.parametrize("mode", ["cache", "off"])
def test_the_place_is_that_of_the_environment_variable(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDKEEP_INDEX", mode)
    build_index([f"{URL}/*.tfrecord"])
    assert indexes() == []
    kept = [name for *_, names in os.walk(os.environ["SHARDKEEP_CACHE_DIR"]) for name in names]
    assert sum(name.endswith(".skidx") for name in kept) == (4 if mode == "cache" else 0)


def test_errors_have_the_url() -> None:
    name = f"/index/{shard(1)}"
    content = bytearray(MEMORY.cat_file(name))
    content[20] ^= 1  # in the payload of the first record
    MEMORY.pipe_file(name, bytes(content))
    with pytest.raises(CorruptRecordError) as caught:
        build_index([f"{URL}/*.tfrecord"], verify=True)
    assert caught.value.path == f"{URL}/{shard(1)}"
    assert f"{URL}/{shard(1)}.skidx" not in indexes()
    with pytest.raises(NotFoundError, match="pass a pattern in a list"):
        build_index(f"{URL}/*.tfrecord")
    with pytest.raises(NotFoundError):
        build_index(f"{URL}/none")


def test_a_text_index_is_written_and_read(local: Path) -> None:
    url = f"{URL}/{shard(3)}"
    index = write_text_index(url, f"{url}.idx")
    assert index == build_index(local / shard(3)) == read_text_index(f"{url}.idx", url)
