"""Files of earlier versions; ``make_old_files.py`` says how they were made."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

import shardkeep as sk
from shardkeep.files.remote.store import list_folder
from shardkeep.hdf5 import Collector, connect
from shardkeep.hdf5.segments.commit_record import read_record
from shardkeep.hdf5.segments.described_data import read_described_data
from shardkeep.hdf5.segments.series_end import is_ended
from shardkeep.tfrecord.index import store
from shardkeep.tfrecord.index.binary import decode, read_index_file
from shardkeep.tfrecord.index.dataset_file import open_dataset
from shardkeep.tfrecord.index.scan import frame_starts
from shardkeep.tfrecord.index.together import read_together

OLD = Path(__file__).parents[1] / "data" / "old"
# As `dataset_file` has them: size, times and inode of a shard.
VERSION = np.dtype([("size", "<i8"), ("mtime", "<i8"), ("ctime", "<i8"), ("inode", "<u8")])


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """A copy of the files that a test may change, with the usual permissions."""
    shutil.copytree(OLD, tmp_path / "old", copy_function=shutil.copyfile)
    return tmp_path / "old"


def test_an_index_is_used_while_its_shard_is_unchanged(copies: Path) -> None:
    shard = copies / "train.tfrecord"
    found = read_index_file(f"{shard}.skidx", shard_bytes=shard.stat().st_size)
    assert found is not None
    (scanned,) = frame_starts([shard])
    assert np.array_equal(found[0], scanned)
    os.utime(shard, ns=(0, found[1].mtime_ns))
    with open(shard, "rb") as file:
        stored = store.find(str(shard), file.fileno(), os.fstat(file.fileno()))
    assert stored is not None
    assert np.array_equal(stored, scanned)


def test_a_state_is_resumed() -> None:
    loader = sk.Loader(
        OLD / "train.tfrecord", batch_size=4, world=sk.World(0, 1), shuffle="global", seed=3, epochs=2
    )
    loader.load_state_dict(json.loads((OLD / "state.json").read_text()))
    assert (loader.epoch, loader.position) == (1, 0)
    assert sum(int(batch["valid"].sum()) for batch in loader) == 20


@pytest.mark.parametrize(("name", "version"), [("receipts.json", 2), ("receipts-3.json", 3)])
def test_receipts_prove_their_epoch(name: str, version: int) -> None:
    receipts = json.loads((OLD / name).read_text())
    assert {one["receipt_version"] for one in receipts} == {version}
    report = sk.audit(OLD / name)
    assert (report.ok, report.receipts) == (True, 2)


def test_worker_files_are_merged_and_continued(copies: Path, tmp_path: Path) -> None:
    assert sk.audit(copies / "run-2").ok
    sk.merge(copies / "run-2", tmp_path / "again.h5")
    with h5py.File(tmp_path / "again.h5") as again, h5py.File(OLD / "merged-2.h5") as before:
        assert np.array_equal(again["loss"][:], before["loss"][:])
    for rank in range(2):
        with sk.hdf5.WorkerFile(copies / "run-2", sk.World(rank, 2)) as worker:
            assert (worker.committed_step, worker.committed_rows) == (2, {"loss": 10})
            worker.append("loss", np.float32([3]))
            worker.commit(step=3)
    assert sk.merge(copies / "run-2", tmp_path / "more.h5").rows["loss"] == 22


def test_a_receipt_of_described_data_proves_its_epoch(copies: Path, tmp_path: Path) -> None:
    run = copies / "run-4"
    (receipt,) = sk.hdf5.receipts(run)
    assert (receipt["receipt_version"], "shards" in receipt["dataset"]) == (4, False)
    assert sk.audit(run).ok
    assert read_described_data(str(next(run.glob("data-*.json")))).records == 80
    sk.merge(run, tmp_path / "all.h5")
    assert sk.audit(tmp_path / "all.h5").ok


def test_the_end_of_a_rank_is_kept(copies: Path) -> None:
    newest = copies / "run-4" / "rank-00000" / "00000000-step-1.h5"
    with h5py.File(newest) as file:
        record = read_record(file, str(newest))
    assert record is not None
    assert is_ended(str(newest.parent), record.crc32c)


def test_the_index_of_a_data_set_is_mapped(copies: Path) -> None:
    path = copies / "train.skset"
    path.chmod(0o600)
    # Times and inodes are those of the files that were indexed.
    shard = np.dtype([("version", "<i8", 4), ("rest", "V16")])
    versions = np.frombuffer(path.read_bytes()[-100:-4], shard)["version"]
    found = open_dataset(str(path), versions.copy().view(VERSION)[:, 0])
    assert found is not None
    assert found.records.tolist() == [20, 20]
    assert found.sizes_bytes.tolist() == [600, 600]


def test_the_indexes_of_a_remote_folder_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    monkeypatch.setenv("SHARDKEEP_CACHE_DIR", str(tmp_path))
    memory.pipe_file("/old/all.skidx", (OLD / "all.skidx").read_bytes())
    try:
        found = read_together("memory://old", {one.url: one for one in list_folder("memory://old")})
    finally:
        memory.rm("/old", recursive=True)
    assert sorted(url for url, _ in found) == ["memory://old/a.tfrecord", "memory://old/b.tfrecord"]
    (scanned,) = frame_starts([OLD / "train.tfrecord"])
    for data in found.values():
        decoded = decode(data, shard_bytes=600)
        assert decoded is not None and np.array_equal(decoded[0], scanned)


def test_a_merged_file_is_verified() -> None:
    report = sk.hdf5.verify(OLD / "merged-2.h5")
    assert (report.findings, report.rows) == ((), 20)
    assert sk.audit(OLD / "merged-2.h5").ok


def check_collected(path: Path, rows: int) -> None:
    with sk.hdf5.open(path, "r") as file:
        assert file["loss"][:].tolist() == list(range(rows))
        assert file["labels"][:].tolist() == [0, 1, 2]
        assert file.attrs["note"] == "größe"


def test_the_file_of_a_collector_is_read_and_continued(copies: Path) -> None:
    path = copies / "collected.h5"
    check_collected(path, 6)
    with Collector(path) as collector, connect(collector.address, sk.World(0, 1)) as client:
        client.append("loss", np.float32([6]))
    check_collected(path, 7)


def test_the_file_of_a_killed_collector_is_recovered_with_the_rows_of_its_client(copies: Path) -> None:
    path = copies / "killed.h5"
    check_collected(path, 6)
    with Collector(path) as collector:
        connect(collector.address, sk.World(0, 1), on_full="spill", spill_dir=copies / "spill").close()
    check_collected(path, 9)
