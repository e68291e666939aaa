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
from shardkeep.hdf5 import Collector, connect
from shardkeep.tfrecord.index import store
from shardkeep.tfrecord.index.binary import read_index_file
from shardkeep.tfrecord.index.scan import frame_starts

OLD = Path(__file__).parents[1] / "data" / "old"


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
