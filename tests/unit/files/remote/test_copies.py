"""Functions that read, called with URLs. Covers `shardkeep._paths_in_messages`."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest

import shardkeep as sk
from shardkeep.errors import CorruptRecordError, NotFoundError, PlanError, ShardkeepError
from shardkeep.files.remote import cache
from shardkeep.files.remote.copies import common_parent
from tests.remote_memory import MEMORY, write_shards

URL = "memory://data"
SHARD = f"{URL}/t-00001-of-00004.tfrecord"


@pytest.fixture
def local(tmp_path: Path) -> Path:
    write_shards(tmp_path / "local", URL)
    with h5py.File(tmp_path / "local/a.h5", "w") as f:
        f["x"] = np.arange(5)
    MEMORY.pipe_file("/data/a.h5", (tmp_path / "local/a.h5").read_bytes())
    return tmp_path / "local"


def no_copies(own_cache: Path) -> bool:
    return [path.name for path in (own_cache / "views").rglob("*") if path.is_file()] == [".lock"]


def test_reports_have_urls(local: Path, own_cache: Path) -> None:
    report = sk.verify(f"{URL}/*")
    assert report.ok
    assert [file.path for file in report.files][1:3] == [f"{URL}/t-00000-of-00004.tfrecord", SHARD]
    assert str(own_cache) not in str(report.to_dict())
    assert sk.info(SHARD).to_dict() == sk.info(local / "t-00001-of-00004.tfrecord").to_dict() | {
        "path": SHARD
    }
    assert no_copies(own_cache)


def test_a_folder_is_read_with_all_in_it(local: Path, own_cache: Path) -> None:
    assert {file.path for file in sk.verify(URL).files} >= {SHARD, f"{URL}/a.h5"}
    assert str(own_cache) not in str(sk.info(URL).to_dict())
    assert sk.info(URL).path == URL


def test_a_folder_with_one_folder_in_it_is_the_folder() -> None:
    run = f"{URL}/run"
    with sk.hdf5.WorkerFile(run, sk.World(rank=0, size=1)) as out:
        out.append("x", [1.0])
        out.commit(step=1)
    assert sk.verify(run).ok
    assert sk.info(run).path == run
    assert sk.hdf5.merge(run, f"{URL}/all.h5").rows == {"x": 1}


def test_data_is_that_of_local_files(local: Path, tmp_path: Path) -> None:
    pattern, shards = f"{URL}/t-*", sorted(map(str, local.glob("t-*")))
    features = {"x": sk.FixedLen()}
    assert sk.tfrecord.infer_schema(pattern) == sk.tfrecord.infer_schema(shards)
    columns = sk.tfrecord.read_columns(pattern, features)
    assert columns["x"].tolist() == list(range(200))
    assert sk.tfrecord.read_arrow(pattern, features).num_rows == 200
    assert len(list(sk.cat(SHARD, limit=3))) == 3
    sk.concat(pattern, tmp_path / "all.tfrecord")
    assert len(sk.tfrecord.Reader(tmp_path / "all.tfrecord")) == 200
    report = sk.split(pattern, tmp_path / "s-{shard}.tfrecord", shards=2)
    assert report.sources[1] == SHARD
    assert sk.hdf5.verify(f"{URL}/a.h5").path == f"{URL}/a.h5"
    sk.hdf5.merge([f"{URL}/a.h5"], tmp_path / "all.h5")
    with h5py.File(tmp_path / "all.h5") as f:
        assert f["x"][:].tolist() == list(range(5))


def test_an_iterator_keeps_its_copy_to_its_end(local: Path, own_cache: Path) -> None:
    items = sk.cat(SHARD)
    next(items)
    assert not no_copies(own_cache)
    assert len(list(items)) == 49
    assert no_copies(own_cache)


def test_a_reader_works_in_other_processes(local: Path) -> None:
    reader = sk.tfrecord.Reader(SHARD)
    copy = pickle.loads(pickle.dumps(reader))
    assert (copy.path, len(copy), copy[3]) == (SHARD, 50, reader[3])
    assert repr(reader) == f"<Reader '{SHARD}'>"
    with pytest.raises(PlanError, match="only a local file has a lock"):
        sk.tfrecord.Reader(SHARD, lock=True)


def test_an_hdf5_file_is_opened_for_reading(local: Path) -> None:
    with sk.hdf5.open(f"{URL}/a.h5") as file:
        copy = pickle.loads(pickle.dumps(file["x"]))
        assert file["x"][2:].tolist() == copy[2:].tolist() == [2, 3, 4]
        assert file.filename == f"{URL}/a.h5"
    with pytest.raises(PlanError, match="works with local files only"):
        sk.hdf5.open(f"{URL}/a.h5", "r+")


def test_damage_is_reported_with_the_url(local: Path, own_cache: Path) -> None:
    content = bytearray(MEMORY.cat_file("/data/t-00001-of-00004.tfrecord"))
    content[400] ^= 1
    MEMORY.pipe_file("/data/t-00001-of-00004.tfrecord", bytes(content))
    with pytest.raises(CorruptRecordError) as caught:
        list(sk.tfrecord.Reader(SHARD))
    assert caught.value.path == SHARD and str(caught.value).startswith(SHARD)
    assert not hasattr(caught.value, "__notes__")
    (finding,) = sk.verify(f"{URL}/t*").findings
    assert finding.path == SHARD and str(own_cache) not in finding.message
    assert finding.message.count(SHARD) == 1
    assert finding.next == f"shardkeep repair {SHARD} {URL}/t-00001-of-00004.repaired.tfrecord"
    with pytest.warns(RuntimeWarning, match=SHARD):
        list(sk.cat(SHARD, on_corrupt="skip"))


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (f"{URL}/none", "memory://data/none: no such object"),
        ([f"{URL}/none", SHARD], "memory://data/none: no such object"),
        (f"{URL}/*.none", r"memory://data/\*.none: no object matches this pattern"),
        ([SHARD, SHARD], "named twice"),
    ],
)
def test_absent_objects_are_errors(local: Path, paths: Any, message: str, own_cache: Path) -> None:
    with pytest.raises((NotFoundError, PlanError), match=message):
        sk.verify(paths)


def test_objects_that_the_disk_does_not_hold_are_refused_before_any_is_fetched(
    local: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = sum(path.stat().st_size for path in local.glob("*.tfrecord"))
    monkeypatch.setattr(cache.os, "statvfs", lambda _: SimpleNamespace(f_bavail=needed - 1, f_frsize=1))
    with pytest.raises(PlanError, match=r"t-00000-of-00004\.tfrecord and 3 more: .* pass fewer objects"):
        sk.concat(f"{URL}/*.tfrecord", f"{URL}/all")
    assert not (own_cache / "objects").exists()
    (own_cache / "used").write_text("1")
    assert sk.concat(f"{URL}/*.tfrecord", f"{URL}/all").records == 200


def test_shards_that_do_not_fit_in_the_cache_are_verified_one_by_one(
    local: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = bytearray(MEMORY.cat_file("/data/t-00001-of-00004.tfrecord"))
    damaged[400] ^= 1
    MEMORY.pipe_file("/data/t-00001-of-00004.tfrecord", bytes(damaged))
    MEMORY.pipe_file("/data/empty.tfrecord", b"")
    MEMORY.pipe_file("/data/page.tfrecord", b"<!DOCTYPE html><html><body>no such page</body></html>")
    MEMORY.pipe_file("/data/hdf5.tfrecord", (local / "a.h5").read_bytes())
    MEMORY.rm("/data/t-00003-of-00004.tfrecord")
    expected = [sk.verify(paths).to_dict() for paths in (URL, f"{URL}/t-*")]
    shutil.rmtree(own_cache / "objects")
    (own_cache / "used").unlink()
    sizes: list[int] = []
    make_room = cache._make_room

    def measured(part: str, size_bytes: int) -> None:
        make_room(part, size_bytes)
        sizes.append(sum(status.st_size for _, status in cache._objects(str(own_cache))))

    monkeypatch.setattr(cache, "_make_room", measured)
    limit = (local / "a.h5").stat().st_size * 5 // 2
    monkeypatch.setenv("SHARDKEEP_CACHE_BYTES", str(limit))
    assert sum(one["file_bytes"] for one in expected[0]["files"]) > limit
    found = [sk.verify(paths, threads=1).to_dict() for paths in (URL, f"{URL}/t-*")]
    assert found == expected
    assert {one["kind"] for one in found[0]["files"]} == {"tfrecord", "hdf5", "set"}
    assert max(sizes) <= limit and len(sizes) > 8
    assert no_copies(own_cache)


def test_missing_shards_are_found(local: Path) -> None:
    MEMORY.rm("/data/t-00002-of-00004.tfrecord")
    with pytest.raises(PlanError, match=r"memory://data/t-\?{5}-of-00004.tfrecord: shard 00002 is missing"):
        sk.tfrecord.read_columns(f"{URL}/t-*", {"x": sk.FixedLen()})


def test_the_common_folder_of_objects() -> None:
    assert common_parent(["s3://b/a/x", "s3://b/a/c/y"]) == "s3://b/a"
    assert common_parent(["s3://b/ab/x", "s3://b/a/y"]) == "s3://b"
    with pytest.raises(PlanError, match="different stores"):
        common_parent(["s3://b/x", "s3://c/x"])


def test_a_message_of_a_local_file_stays(tmp_path: Path) -> None:
    assert str(ShardkeepError(f"{tmp_path} is full")) == f"{tmp_path} is full"


def test_passwords_are_nowhere_in_what_is_shown(local: Path, tmp_path: Path) -> None:
    url = "memory://user:secret@data"
    shown: list[object] = []
    try:
        for number in range(2):
            with sk.tfrecord.Writer(f"{url}/{number}.tfrecord") as writer:
                writer.write(b"record")
            shown.append(writer)
            with sk.hdf5.WorkerFile(f"{url}/run", sk.World(rank=number, size=2)) as out:
                out.append("x", [1.0])
                out.commit(step=1)
            shown.append(out)
        with sk.tfrecord.ShardWriter(f"{url}/s-{{shard}}", shards=1) as shards:
            shown.append(shards)
        sources = f"{url}/[01].tfrecord"
        shown += [
            sk.concat(sources, f"{url}/all.tfrecord"),
            sk.split(sources, f"{url}/c-{{shard}}", shards=2),
            sk.pack({"x": np.arange(4)}, f"{url}/p-{{shard}}", shards=1),
            sk.merge(f"{url}/run", f"{url}/all.h5"),
            sk.repair(f"{url}/0.tfrecord", f"{url}/repaired.tfrecord"),
            sk.verify(f"{url}/*.tfrecord"),
            sk.info(f"{url}/0.tfrecord"),
        ]
        with pytest.raises(PlanError) as caught:
            sk.merge(f"{url}/run", f"{url}/virtual.h5", mode="virtual")
        shown += [caught.value, caught.value.path]
    finally:
        MEMORY.rm("/user:secret@data", recursive=True)
    texts = [repr(one.to_dict() if hasattr(one, "to_dict") else one) + str(one) for one in shown]
    assert [text for text in texts if "secret" in text] == []
    assert sum("memory://data/" in text for text in texts) >= 11
