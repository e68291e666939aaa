"""Verification of files, folders and runs.

Covers `shardkeep.jobs.verification.report` and `shardkeep.jobs.verification.runs`.
"""

import os

import h5py
import numpy as np
import pytest

from shardkeep.errors import NotFoundError
from shardkeep.hdf5 import WorkerFile, merge
from shardkeep.jobs import verify
from shardkeep.tfrecord import ShardWriter
from shardkeep.world import World
from tests.unit.jobs.verification.damage import DAMAGE, close_folder, flip, records, shards


@pytest.mark.parametrize("compression", [None, "gzip", "zlib"])
def testrecords(tmp_path, compression):
    path = records(tmp_path / "a.tfrecord", compression=compression)
    (one,) = verify(path).files
    assert (one.kind, one.items, one.findings) == ("tfrecord", 100, ())
    assert sorted(os.listdir(tmp_path)) == ["a.tfrecord"]
    flip(path, path.stat().st_size // 2)
    report = verify(path)
    assert not report.ok and report.to_dict()["files"][0]["findings"]


def test_many_kinds_at_once(tmp_path):
    run = tmp_path / "run"
    for rank in range(2):
        with WorkerFile(run, World(rank=rank, size=2)) as out:
            out.append("x", np.arange(10.0))
            out.commit(step=1)
    merge(run, tmp_path / "all.h5")
    merge(run, tmp_path / "virtual.h5", mode="virtual")
    records(tmp_path / "a.tfrecord", 5)
    (tmp_path / "notes.txt").write_text("hello")
    seen = []
    report = verify(
        [tmp_path / "*.h5", tmp_path / "a.tfrecord", run, tmp_path / "notes.txt"],
        progress=lambda done, total: seen.append((done, total)),
    )
    assert [(one.kind, one.items, bool(one.findings)) for one in report.files] == [
        ("merged", 20, False),
        ("virtual", 20, False),
        ("tfrecord", 5, False),
        ("segment", 10, False),
        ("segment", 10, False),
        ("other", 0, True),
        ("run", 2, False),
    ]
    assert seen[-1][0] == seen[-1][1] > 0
    os.unlink(next(run.glob("rank-00001/*.h5")))
    (finding,) = verify(run).files[-1].findings
    assert "rank 1 of 2 has no commit" in finding.message
    assert (finding.kind, finding.path) == ("incomplete-run", str(run))
    assert finding.next == f"shardkeep merge --incomplete warn {run} {run}.h5"


@pytest.fixture
def run(tmp_path):
    for rank in range(2):
        with WorkerFile(tmp_path / "run", World(rank=rank, size=2)) as out:
            for step in (1, 2):
                out.append("x", [step])
                out.commit(step=step)
    return tmp_path / "run"


@pytest.mark.parametrize("damage", ["cut", "empty", "copied", "foreign"])
def test_of_a_run_that_no_merge_reads_the_command_is_repair(run, tmp_path, damage):
    segment = run / "rank-00001" / "00000001-step-2.h5"
    if damage in ("cut", "empty"):
        os.truncate(segment, 1000 if damage == "cut" else 0)
    elif damage == "copied":
        segment.write_bytes((run / "rank-00000" / segment.name).read_bytes())
    else:
        (run / "rank-1").mkdir()
    commands = {finding.next for finding in verify(run).findings}
    assert commands - {None} == {f"shardkeep repair {run} {run}.repaired"}


def test_a_rank_that_cannot_be_read_is_a_finding(run, tmp_path, monkeypatch):
    records(tmp_path / "a.tfrecord")
    closed = os.fspath(run / "rank-00001")
    close_folder(monkeypatch, closed)
    report = verify(tmp_path)
    assert [(one.kind, one.path) for one in report.findings] == [("unreadable", closed)]
    assert [one.kind for one in report.files] == ["tfrecord", "segment", "segment", "other", "run"]


def test_a_folder_without_data_is_named(tmp_path):
    with pytest.raises(NotFoundError, match=f"^{tmp_path}: no TFRecord or HDF5 file found; pass others"):
        verify(tmp_path)
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(NotFoundError, match="found; 1 file of other kinds; pass others"):
        verify(tmp_path)


def test_folders(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    records(tmp_path / "deep" / "er" / "a.tfrecord")
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["x"] = [1]
    (tmp_path / "c.txt").write_text("no")
    report = verify(tmp_path)
    assert [one.kind for one in report.files] == ["hdf5", "tfrecord"]
    assert report.to_dict()["skipped"] == ({"path": str(tmp_path / "c.txt"), "described": "plain text"},)
    assert report.skipped_kinds == {"plain text": 1}
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "gone", tmp_path / "gone*"):
        with pytest.raises(NotFoundError):
            verify(path)


def test_what_lies_beside_and_below_the_ranks(tmp_path):
    for name in ("one", "two"):
        for step in range(3):
            with WorkerFile(tmp_path / "runs" / name, World(rank=0, size=1)) as out:
                out.append("x", np.arange(1000.0))
                out.commit(step=step)
        merge(tmp_path / "runs" / name, tmp_path / "runs" / name / "all.h5")
    records(tmp_path / "runs" / "one" / "logs.tfrecord")
    report = verify(tmp_path / "runs")
    assert report.ok and [file.kind for file in report.files].count("run") == 2
    assert len(report.files) == 2 * 3 + 2 + 1 + 2
    flip(tmp_path / "runs" / "one" / "all.h5", 4000)
    os.unlink(tmp_path / "runs" / "two" / "rank-00000" / "00000001-step-1.h5")
    bad = [file for file in verify(tmp_path / "runs").files if file.findings]
    assert [os.path.relpath(file.path, tmp_path) for file in bad] == ["runs/one/all.h5", "runs/two"]
    assert "commit 1 of rank 0 is missing" in bad[1].findings[0].message


def test_a_file_that_is_being_written(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = [1]
        file.flush()
        (one,) = verify(tmp_path / "a.h5").files
    (finding,) = one.findings
    assert finding.kind == "locked" and "is locked by" in finding.message
    assert finding.next == f"shardkeep verify {tmp_path / 'a.h5'}"


@pytest.mark.parametrize("suffix", [".tfrecord", ""])
@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_shard_of_a_folder_is_found(tmp_path, name, suffix):
    paths = shards(tmp_path, suffix=suffix)
    damage, kind = DAMAGE[name]
    damage(paths[1])
    report = verify(tmp_path)
    (finding,) = report.findings
    assert (finding.path, finding.kind) == (str(paths[1]), kind)
    assert str(paths[1]) in finding.message
    assert len(report.files) == 4 and not report.ok
    if kind != "missing":
        assert [one.kind for one in verify(paths).findings] == [kind]
        assert not verify(paths[1]).ok


def test_shards_that_are_all_damaged_are_found(tmp_path):
    for path in shards(tmp_path):
        flip(path)
    assert [one.kind for one in verify(tmp_path).findings] == ["damage"] * 4


def test_results_without_content_are_found(tmp_path):
    (tmp_path / "all.h5").touch()
    (tmp_path / "notes.txt").touch()
    (finding,) = verify(tmp_path).findings
    assert (finding.kind, finding.path) == ("empty", str(tmp_path / "all.h5"))


def test_missing_and_mixed_shards_are_found(tmp_path):
    paths = shards(tmp_path, 8, suffix=".tfrecord")
    assert verify(tmp_path).ok
    paths[3].unlink()
    (finding,) = verify(tmp_path).findings
    assert finding.kind == "incomplete-set"
    assert finding.path == str(tmp_path / "t-?????-of-00008.tfrecord")
    assert "shard 00003 is missing; found 7 of 8" in finding.message
    shards(tmp_path, 4, suffix=".tfrecord")
    (finding,) = verify(tmp_path).findings
    assert finding.kind == "mixed-sets" and "4 of the 4 and 7 of the 8 shards" in finding.message


def test_index_of_a_missing_shard_does_not_count(tmp_path):
    paths = shards(tmp_path)
    for path in paths:
        path.with_name(f"{path.name}.skidx").touch()
    paths[0].unlink()
    (finding,) = verify(tmp_path).findings
    assert "shard 00000 is missing; found 3 of 4" in finding.message


def test_shards_that_were_passed_are_complete_if_the_others_exist(tmp_path):
    paths = shards(tmp_path)
    assert verify(paths[:2]).ok and verify(tmp_path / "t-0000[01]*").ok
    paths[3].unlink()
    assert [one.kind for one in verify(paths[:2]).findings] == ["incomplete-set"]
    assert verify(paths[0]).ok
    for path in paths[1:3]:
        path.unlink()
    assert verify(paths[0]).ok
    assert [one.kind for one in verify(tmp_path / "t-*").findings] == ["incomplete-set"]


def test_shards_without_records_are_no_finding_if_there_are_fewer_records(tmp_path):
    with ShardWriter(str(tmp_path / "t-{shard}-of-{shards}"), shards=8) as writer:
        for i in range(5):
            writer.write(b"%d" % i)
    report = verify(tmp_path)
    assert report.ok and len(report.files) == 8
    for path in tmp_path.iterdir():
        os.truncate(path, 0)
    assert [one.kind for one in verify(tmp_path).findings] == ["empty"] * 8
