"""Run folders in a store: commits are uploads, resumes and merges read them.

Covers `shardkeep.hdf5.worker.remote_rank`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("hdfs_native")

import shardkeep as sk
from shardkeep.cli.app import run as cli
from shardkeep.errors import CorruptDataError, DurabilityError, LockError, RemoteError
from shardkeep.files.kinds.urls import url_name
from shardkeep.files.remote import store as store_room
from shardkeep.files.remote.uploads import upload_file
from tests.frameworks.remote.servers.fault_proxy import FaultProxy
from tests.frameworks.remote.servers.store import Store


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDKEEP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("SHARDKEEP_REMOTE_TIMEOUT_S", "60")


@pytest.fixture(params=["s3", "sftp", "hdfs", "webdav", "memory"])
def run(request: pytest.FixtureRequest) -> str:
    found: Store = request.getfixturevalue(f"{request.param}_store")
    return f"{found.root}/run"


def worker(run: str, rank: int = 0, size: int = 1, **options: object) -> sk.hdf5.WorkerFile:
    return sk.hdf5.WorkerFile(run, sk.World(rank=rank, size=size), **options)  # type: ignore[arg-type]


def segments(run: str, rank: int = 0) -> list[str]:
    names = (info.url.rpartition("/")[2] for info in store_room.list_folder(f"{run}/rank-{rank:05d}"))
    return sorted(name for name in names if name.endswith(".h5"))


@pytest.mark.parametrize("run", ["s3", "azure", "google", "sftp", "hdfs", "webdav", "memory"], indirect=True)
def test_commits_are_objects(run: str, tmp_path: Path) -> None:
    for rank in range(2):
        with worker(run, rank, 2) as out:
            out.append("loss", [float(rank)])
            out.commit(step=10, state={"at": 1})
            assert segments(run, rank) == ["00000000-step-10.h5"]
            out.append("loss", [rank + 0.5])
            out.commit(step=20)
    with worker(run, 0, 2) as out:  # the mirror is empty, as on another host
        assert out.committed_step == 20 and out.committed_rows == {"loss": 2}
        out.append("loss", [2.0])
        out.commit(step=30)
    with worker(run, 1, 2) as out:
        out.append("loss", [2.5])
        out.commit(step=30)
    report = sk.hdf5.merge(run, f"{run.rpartition('/')[0]}/all.h5")
    assert report.rows == {"loss": 6}
    with sk.hdf5.open(report.output) as file:
        assert sorted(file["loss"][:].tolist()) == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    assert sk.verify(run).ok


def test_a_run_is_rolled_back_in_its_store(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(2):
        with worker(run, rank, 2) as out:
            for step in (10, 20, 30):
                out.append("loss", [float(step), step + 1.0])
                if step == 20:
                    out.mark(step=15)
                    out.append("loss", [0.5])
                out.commit(step=step)
    names = segments(run, 1)
    assert sk.hdf5.rollback(run, step=15, dry_run=True) == {0: 15, 1: 15}
    assert segments(run, 1) == names
    assert cli(["rollback", run, "--step", "15", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ranks"][1] == {"rank": 1, "before": 30, "after": 15}
    assert segments(run, 1) == ["00000000-step-10.h5", "00000001-step-15.h5"]
    with worker(run, 0, 1) as out:
        assert out.committed_step == 15 and out.committed_rows == {"loss": 4}
    assert sk.hdf5.rollback(run, step=None) == {0: None, 1: None}
    assert segments(run, 1) == []
    assert sk.hdf5.rollback(f"{run}-none", step=None) == {}
    with pytest.raises(sk.NotFoundError, match=f"{run}-none"):
        sk.hdf5.rollback(f"{run}-none", step=3)


def test_a_rollback_excludes_a_worker(
    s3_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = f"{s3_store.root}/run"
    with worker(run) as out:
        out.append("loss", [1.0])
        out.commit(step=10)
        with pytest.raises(sk.errors.LockTimeoutError):
            sk.hdf5.rollback(run, step=-1)
        monkeypatch.setenv("SHARDKEEP_CACHE_DIR", str(tmp_path / "of-another-host"))
        assert sk.hdf5.rollback(run, step=-1) == {0: None}
        out.append("loss", [2.0])
        with pytest.raises(LockError, match="was opened by another process since"):
            out.commit(step=20)


@pytest.mark.parametrize("shard_by", ["records", "files"])
def test_an_audit_has_the_description_of_the_data(shard_by: str, s3_store: Store, tmp_path: Path) -> None:
    run, merged = f"{s3_store.root}/run", f"{s3_store.root}/all.h5"
    for shard in range(120):
        with sk.tfrecord.Writer(tmp_path / f"{'long-name-' * 5}{shard:03d}.tfrecord") as shards:
            shards.write_example({"x": shard})
    for rank in range(2):
        world = sk.World(rank=rank, size=2)
        loader = sk.Loader(tmp_path / "*.tfrecord", None, 30, world, shuffle="blocks", shard_by=shard_by)  # type: ignore[arg-type]
        with sk.hdf5.WorkerFile(run, world) as out:
            for step, _ in enumerate(loader):
                out.append("x", [step])
                out.commit(step=step, receipt=loader.receipt())
    receipts = sk.hdf5.receipts(run)
    assert not any(one["dataset"].get("shards") for one in receipts)
    described = [url_name(info.url) for info in store_room.list_folder(run)]
    assert described == [f"data-{receipts[0]['dataset']['fingerprint']}.json"]
    sk.hdf5.merge(run, merged)
    for url in (run, merged):
        assert sk.audit(url).ok and sk.verify(url).ok


def test_rollbacks_and_marks(run: str) -> None:
    with worker(run) as out:
        for step in (10, 20, 30):
            out.append("x", np.arange(step - 10, step - 5))
            out.mark(step - 5)
            out.append("x", np.arange(step - 5, step))
            out.commit(step=step)
        out.rollback(step=25)
        assert segments(run) == ["00000000-step-10.h5", "00000001-step-20.h5", "00000002-step-25.h5"]
    with worker(run) as out:
        assert out.committed_step == 25 and out.committed_rows == {"x": 25}
        out.rollback(step=10)
    assert segments(run) == ["00000000-step-10.h5"]
    worker(run, exists="replace").close()
    assert segments(run) == []


def test_a_cut_that_a_crash_left_with_two_names_is_completed(memory_store: Store) -> None:
    run = f"{memory_store.root}/run"
    with worker(run) as out:
        out.append("x", [1.0])
        out.mark(5)
        out.append("x", [2.0])
        out.commit(step=10)
        out.rollback(step=5)
    name = f"{run}/rank-00000/00000000-step-5"
    upload_file(bytes(store_room.read(f"{name}.h5")), f"{name}-from-10.h5", replace=False)
    with pytest.raises(CorruptDataError, match="contradict"):
        sk.hdf5.merge(run, f"{memory_store.root}/all.h5")
    worker(run).close()
    assert segments(run) == ["00000000-step-5.h5"]
    assert sk.hdf5.merge(run, f"{memory_store.root}/all.h5").rows == {"x": 1}


def test_an_older_process_of_the_rank_commits_no_more(
    s3_store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = f"{s3_store.root}/run"
    first = worker(run)
    first.append("x", [1.0])
    first.commit(step=1)
    monkeypatch.setenv("SHARDKEEP_CACHE_DIR", str(tmp_path / "other host"))
    with worker(run) as second:
        assert second.committed_step == 1
        first.append("x", [2.0])
        with pytest.raises(LockError, match="was opened by another process since"):
            first.commit(step=2)
        second.append("x", [3.0])
        second.commit(step=3)
    first.close()
    assert segments(run) == ["00000000-step-1.h5", "00000001-step-3.h5"]


_KILLED = """
import os, signal, sys, shardkeep as sk
from shardkeep.files.remote import base_upload
with sk.hdf5.WorkerFile(sys.argv[1], sk.World(rank=0, size=1)) as out:
    for step in range(1, 4):
        out.append("x", [float(step)])
        if step == 3:
            base_upload.Upload.place = lambda self: os.kill(os.getpid(), signal.SIGKILL)
        out.commit(step=step)
        print(step, flush=True)
"""


@pytest.mark.parametrize("name", ["s3", "sftp"])
def test_a_kill_during_the_upload_keeps_the_commits(name: str, request: pytest.FixtureRequest) -> None:
    run = f"{request.getfixturevalue(f'{name}_store').root}/run"
    done = subprocess.run([sys.executable, "-c", _KILLED, run], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (-signal.SIGKILL, ["1", "2"]), done.stderr
    with worker(run) as out:
        assert out.committed_step == 2 and out.committed_rows == {"x": 2}
        out.append("x", [3.0])
        out.commit(step=3)
    assert len(segments(run)) == 3


def test_faults_of_the_store(faulty_s3: tuple[Store, FaultProxy], monkeypatch: pytest.MonkeyPatch) -> None:
    store, proxy = faulty_s3
    run = f"{store.root}/run"
    with worker(run) as out:
        out.append("x", [1.0])
        proxy.inject("status", times=2)
        proxy.inject("lost", times=2, method="PUT", target="step-1.h5")
        out.commit(step=1)
        monkeypatch.setenv("SHARDKEEP_REMOTE_TIMEOUT_S", "3")
        fault = proxy.inject("status", times=10_000, method="PUT", target="step-2.h5")
        out.append("x", [2.0])
        with pytest.raises(RemoteError):
            out.commit(step=2)
        with pytest.raises(DurabilityError, match="call rollback"):
            out.append("x", [2.0])
        fault.times = 0
        monkeypatch.setenv("SHARDKEEP_REMOTE_TIMEOUT_S", "60")
        out.rollback(step=1)
        assert out.committed_rows == {"x": 1}
        out.append("x", [2.5])
        out.commit(step=2)
    assert segments(run) == ["00000000-step-1.h5", "00000001-step-2.h5"]
