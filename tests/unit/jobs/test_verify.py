"""Verification of files, folders and runs.

Covers `shardkeep.jobs.verify_child`.
"""

import os
import signal

import h5py
import numpy as np
import pytest

from shardkeep.errors import NotFoundError
from shardkeep.hdf5 import WorkerFile, merge
from shardkeep.jobs import verify
from shardkeep.jobs import verify as job
from shardkeep.tfrecord import Writer
from shardkeep.world import World


def _records(path, count=100, **options):
    with Writer(path, **options) as writer:
        for i in range(count):
            writer.write(b"record %d" % i * 10)
    return path


def _flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("compression", [None, "gzip", "zlib"])
def test_records(tmp_path, compression):
    path = _records(tmp_path / "a.tfrecord", compression=compression)
    (one,) = verify(path).files
    assert (one.kind, one.items, one.findings) == ("tfrecord", 100, ())
    assert sorted(os.listdir(tmp_path)) == ["a.tfrecord"]
    _flip(path, path.stat().st_size // 2)
    report = verify(path)
    assert not report.ok and report.to_dict()["files"][0]["findings"]


def test_it_goes_on_behind_damage(tmp_path):
    path = _records(tmp_path / "a.tfrecord")
    for offset in (300, 3000, 6000):
        _flip(path, offset)
    os.truncate(path, path.stat().st_size - 5)
    (one,) = verify(path).files
    assert one.items == 96
    assert len(one.findings) == 4
    assert all(str(path) in text for text in one.findings)


def test_many_kinds_at_once(tmp_path):
    run = tmp_path / "run"
    for rank in range(2):
        with WorkerFile(run, World(rank=rank, size=2)) as out:
            out.append("x", np.arange(10.0))
            out.commit(step=1)
    merge(run, tmp_path / "all.h5")
    merge(run, tmp_path / "virtual.h5", mode="virtual")
    _records(tmp_path / "a.tfrecord", 5)
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
    (text,) = verify(run).files[-1].findings
    assert "rank 1 of 2 has no commit" in text


def test_folders(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    _records(tmp_path / "deep" / "er" / "a.tfrecord")
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["x"] = [1]
    (tmp_path / "c.txt").write_text("no")
    assert [one.kind for one in verify(tmp_path).files] == ["hdf5", "tfrecord"]
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
    _records(tmp_path / "runs" / "one" / "logs.tfrecord")
    report = verify(tmp_path / "runs")
    assert report.ok and [file.kind for file in report.files].count("run") == 2
    assert len(report.files) == 2 * 3 + 2 + 1 + 2
    _flip(tmp_path / "runs" / "one" / "all.h5", 4000)
    os.unlink(tmp_path / "runs" / "two" / "rank-00000" / "00000001-step-1.h5")
    bad = [file for file in verify(tmp_path / "runs").files if file.findings]
    assert [os.path.relpath(file.path, tmp_path) for file in bad] == ["runs/one/all.h5", "runs/two"]
    assert "segment 1 is missing in" in bad[1].findings[0]


def test_a_file_that_crashes_hdf5(tmp_path, monkeypatch):
    for name in ("a.h5", "b.h5"):
        with h5py.File(tmp_path / name, "w") as file:
            file["x"] = [1]
    code = "import os,sys\nsys.stdin.readline()\nos.kill(os.getpid(), 11)"
    original = job.__globals__["subprocess"].Popen
    started = []

    def popen(arguments, **options):
        started.append(1)
        return original([arguments[0], "-c", code] if len(started) == 1 else arguments, **options)

    monkeypatch.setattr(job.__globals__["subprocess"], "Popen", popen)
    one, two = verify([tmp_path / "a.h5", tmp_path / "b.h5"], threads=1).files
    assert signal.SIGSEGV.name in one.findings[0] and "malformed" in one.findings[0]
    assert two.findings == ()


def test_a_file_that_never_ends(tmp_path, monkeypatch):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = [1]
    monkeypatch.setitem(job.__globals__, "_SILENT_S", 0.2)
    original = job.__globals__["subprocess"].Popen
    monkeypatch.setattr(
        job.__globals__["subprocess"],
        "Popen",
        lambda arguments, **options: original([arguments[0], "-c", "import time; time.sleep(60)"], **options),
    )
    (one,) = verify(tmp_path / "a.h5").files
    assert "did not finish reading" in one.findings[0]


def test_a_file_that_is_being_written(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = [1]
        file.flush()
        (one,) = verify(tmp_path / "a.h5").files
    assert "is locked by" in one.findings[0]
