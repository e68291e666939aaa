"""Descriptions of data sets in run folders and merged files.

Covers `shardkeep.hdf5.sources.receipts`.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import shardkeep as sk
from shardkeep.errors import CorruptDataError, DurabilityError, PlanError
from shardkeep.hdf5 import WorkerFile, merge, receipts, rollback
from shardkeep.hdf5.segments.described_data import DescribedData
from shardkeep.jobs import audit, verify
from shardkeep.plan import Dataset
from shardkeep.plan.proof.description import DescribedReceipt, parse_description
from shardkeep.world import World

SHARDS, RECORDS = 60, 3


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("data")
    for i in range(SHARDS):
        with sk.tfrecord.Writer(folder / f"{'long-name-' * 8}{i:03d}.tfrecord") as writer:
            for number in range(RECORDS):
                writer.write_example({"x": i * RECORDS + number})
    return str(folder / "*.tfrecord")


def loader(data: str, rank: int, **options: Any) -> sk.Loader:
    return sk.Loader(data, None, 5, World(rank, 2), **{"shuffle": "blocks", **options})


def train(run: Path, data: str, rank: int, *, lost: int = 0, **options: Any) -> sk.Loader:
    mine = loader(data, rank, **options)
    with WorkerFile(run, World(rank, 2)) as out:
        for step, _ in enumerate(mine):
            out.append("loss", [0.5])
            if step < mine.steps_per_epoch - lost:
                out.commit(step=step, receipt=mine.receipt())
        rollback_to = mine.steps_per_epoch - lost - 1
        out.rollback(step=rollback_to)
    return mine


@pytest.fixture
def run(tmp_path: Path, data: str) -> Path:
    for rank in range(2):
        train(tmp_path / "run", data, rank, shard_by="files")
    return tmp_path / "run"


def described(run: Path) -> list[Path]:
    return sorted(run.glob("data-*.json"))


def test_a_run_has_one_description_and_small_commits(run: Path, data: str) -> None:
    (path,) = described(run)
    assert path.stat().st_size > 10 * len(json.dumps(receipts(run)[0]))
    content = json.loads(path.read_bytes())
    assert content == loader(data, 0).describe_data()
    assert parse_description(content).counts == (RECORDS,) * SHARDS
    assert not list(run.glob("*.lock"))


def test_the_first_rank_that_commits_writes_it_and_others_leave_it(tmp_path: Path, data: str) -> None:
    train(tmp_path / "run", data, 1)
    (path,) = described(tmp_path / "run")
    before = path.stat().st_ino, path.stat().st_mtime_ns
    train(tmp_path / "run", data, 0)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == before


def test_whole_files_are_proved_from_the_run_and_from_the_merged_file(run: Path, tmp_path: Path) -> None:
    assert audit(run).ok
    merge(run, tmp_path / "all.h5")
    merge([tmp_path / "all.h5"], tmp_path / "again.h5")
    for path in ("all.h5", "again.h5"):
        assert audit(tmp_path / path).ok
        assert sk.plan.audit(receipts(tmp_path / path)).ok
        assert verify(tmp_path / path).ok
        assert sk.info(tmp_path / path).merged.receipts == 2
    assert sk.plan.audit(receipts(run)).ok


def test_a_segment_finds_the_description_in_its_run_folder(run: Path) -> None:
    segments = [max(run.glob(f"rank-0000{rank}/*.h5")) for rank in range(2)]
    assert audit(segments).ok


def test_lost_records_are_named_from_the_merged_file(tmp_path: Path, data: str) -> None:
    for rank in range(2):
        train(tmp_path / "run", data, rank, lost=rank)
    merge(tmp_path / "run", tmp_path / "all.h5", incomplete="allow")
    for path in ("run", "all.h5"):
        (epoch,) = audit(tmp_path / path).epochs
        assert epoch.lost.records == 5
        assert "long-name" in str(epoch.lost_names[0])


def test_without_the_description_counts_prove_records_and_the_data_prove_files(
    tmp_path: Path, data: str, run: Path
) -> None:
    for rank in range(2):
        train(tmp_path / "records", data, rank)
    for folder in (run, tmp_path / "records"):
        (path,) = described(folder)
        path.unlink()
    assert audit(tmp_path / "records").ok
    with pytest.raises(PlanError, match="description is missing"):
        audit(run)
    assert audit(run, data=data).ok
    (found,) = [one for one in verify(run).files if one.findings]
    assert "which describes the data of the receipts, is missing" in found.findings[0].message
    with pytest.raises(PlanError, match="59 shards with 177 records, not the 180 of the receipts"):
        audit(run, data=sorted(Path(data).parent.glob("*.tfrecord"))[1:])


def test_loose_receipts_find_the_description_in_their_folder(tmp_path: Path, data: str) -> None:
    loaders = [loader(data, rank, shard_by="files") for rank in range(2)]
    for rank, one in enumerate(loaders):
        list(one)
        (tmp_path / f"{rank}.json").write_text(json.dumps(one.receipt()))
    with pytest.raises(PlanError, match="description is missing"):
        audit(tmp_path)
    (tmp_path / "train.json").write_text(json.dumps(loaders[0].describe_data(), indent=2))
    assert audit(tmp_path).ok
    assert audit([tmp_path / "0.json", tmp_path / "1.json", tmp_path / "train.json"]).ok


@pytest.mark.parametrize("damage", ["flip", "cut", "other", "empty"])
def test_a_damaged_description_is_an_error_with_its_path(run: Path, data: str, damage: str) -> None:
    (path,) = described(run)
    text = path.read_bytes()
    if damage == "flip":
        text = text.replace(b"long-name-000", b"long-name-001")
    elif damage == "cut":
        text = text[:-9]
    elif damage == "other":
        few = sk.Loader(sorted(Path(data).parent.glob("*.tfrecord"))[1:])
        text = json.dumps(few.describe_data()).encode()
    else:
        text = b"{}"
    path.write_bytes(text)
    for call in (audit, lambda path: merge(path, path.parent / "all.h5")):
        with pytest.raises(CorruptDataError) as caught:
            call(run)
        assert str(path) in str(caught.value)
    assert not (run.parent / "all.h5").exists()
    assert not verify(run).ok


def test_a_rollback_keeps_the_description(run: Path) -> None:
    rollback(run, step=None)
    assert len(described(run)) == 1


def test_a_mark_brings_its_description(tmp_path: Path, data: str) -> None:
    mine = loader(data, 0, shard_by="files")
    with WorkerFile(tmp_path / "run", World(0, 2)) as out:
        next(iter(mine))
        out.append("x", [1])
        out.mark(1, receipt=mine.receipt())
        assert not described(tmp_path / "run")
        out.append("x", [2])
        out.rollback(step=1)
        assert out.committed_rows == {"x": 1}
    assert len(described(tmp_path / "run")) == 1


def test_a_description_that_cannot_be_written_fails_the_commit_and_keeps_the_rows(
    tmp_path: Path, data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shardkeep.hdf5.segments import described_data

    def full(*args: Any, **options: Any) -> Any:
        raise DurabilityError("no space left")

    mine = loader(data, 0)
    next(iter(mine))
    with WorkerFile(tmp_path / "run", World(0, 2)) as out:
        out.append("x", [1])
        with monkeypatch.context() as patch:
            patch.setattr(described_data, "publish", full)
            with pytest.raises(DurabilityError):
                out.commit(step=1, receipt=mine.receipt())
        assert out.uncommitted_rows == {"x": 1}
        out.commit(step=1, receipt=mine.receipt())
        assert out.committed_rows == {"x": 1}


def test_a_rank_does_not_wait_forever_for_another_one(
    tmp_path: Path, data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shardkeep.hdf5.segments import described_data

    monkeypatch.setattr(described_data, "_WAIT_S", 0.5)
    mine = loader(data, 0)
    fingerprint = mine.describe_data()["fingerprint"]
    next(iter(mine))
    with (
        WorkerFile(tmp_path / "run", World(0, 2)) as out,
        sk.files.lock(described_data.data_path(str(tmp_path / "run"), fingerprint)),
    ):
        begun = time.monotonic()
        out.append("x", [1])
        out.commit(step=1, receipt=mine.receipt())
        assert 0.5 < time.monotonic() - begun < 30
    assert len(described(tmp_path / "run")) == 1


def test_one_of_many_ranks_that_commit_at_once_describes_the_data(tmp_path: Path) -> None:
    told: list[Dataset] = []

    def describe() -> Dataset:
        time.sleep(0.3)
        told.append(Dataset("f" * 32, 10**6, ("a",), (10**6,), (10**9,)))
        return told[-1]

    def commit() -> None:
        mine = DescribedData(str(tmp_path), durable=False)
        mine.add(DescribedReceipt({"dataset": {"fingerprint": "f" * 32, "records": 10**6}}, describe))
        mine.store()

    threads = [threading.Thread(target=commit) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(told) == 1
    assert [path.name for path in tmp_path.iterdir()] == [f"data-{'f' * 32}.json"]


def test_a_mixture_names_the_data_set_of_a_shard(tmp_path: Path, data: str) -> None:
    mixed = sk.Loader.mix([(loader(data, 0), 1.0), (loader(data, 0, seed=3), 2.0)])
    assert mixed.receipt()["receipt_version"] == 4
    shards = mixed.describe_data()["shards"]
    assert (len(shards), shards[0][:7], shards[SHARDS][:7]) == (2 * SHARDS, "0:long-", "1:long-")
