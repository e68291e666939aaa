"""Jobs on Ray, of which a worker process is killed during the work."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path

import pytest

from tests.frameworks.data.ray_session import ray_session  # before Ray, for its settings

ray = pytest.importorskip("ray")

import shardkeep as sk  # noqa: E402
from shardkeep.errors import CorruptRecordError, EngineError  # noqa: E402
from shardkeep.files.threads import groups  # noqa: E402
from shardkeep.files.threads.work import Work  # noqa: E402
from tests.frameworks.engines.same_results import (  # noqa: E402
    JOBS,
    compare,
    compare_remote,
    damage,
    dies_always,
    dies_once,
    killing,
    make_data,
    work_files,
)
from tests.processes import descendants  # noqa: E402
from tests.waiting import PATIENCE_S  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
        patch.setenv("SHARDKEEP_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))  # of another host
        with ray_session(3):
            yield


@pytest.fixture
def executor(session: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Executor]:
    monkeypatch.setattr(groups, "_GROUP_FILES", 2)
    with sk.engine("ray") as executor:
        assert executor is not None
        yield executor
    assert ray.is_initialized()  # the session of the caller stays open


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("same"))


def workers() -> Iterator[int]:
    """Yield the processes that run tasks now, then those that wait for one."""
    names = {}
    for pid in descendants(os.getpid()):
        try:
            names[pid] = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
    for start in (b"ray::_call", b"ray::IDLE"):
        yield from (pid for pid, name in names.items() if name.startswith(start))


@pytest.mark.parametrize("name", JOBS)
def test_a_killed_worker_changes_no_byte(name: str, data: Path, tmp_path: Path, executor: Executor) -> None:
    compare(name, data, tmp_path, executor, killing(workers()))


def test_a_task_runs_again_when_its_worker_dies(tmp_path: Path, executor: Executor) -> None:
    items = work_files(tmp_path)
    found = Work(None, 0, executor).run(dies_once, items, 1)
    assert found == [os.path.basename(one.path) for one in items]


def test_a_task_that_kills_each_worker_is_an_error_that_names_its_file(
    tmp_path: Path, executor: Executor
) -> None:
    with pytest.raises(
        EngineError, match=r"kill: no worker finished this task \(WorkerCrashedError"
    ) as raised:
        Work(None, 0, executor).run(dies_always, work_files(tmp_path), 1)
    assert raised.value.path == str(tmp_path / "kill")
    assert (tmp_path / "kill.mark").read_text() == "xxxx"


def test_an_error_keeps_type_path_record_and_offset(tmp_path: Path, executor: Executor) -> None:
    data = make_data(tmp_path)
    path = sorted(data.glob("*.tfrecord"))[7]
    damage(path)
    errors = []
    for options in ({}, {"executor": executor}):
        with pytest.raises(CorruptRecordError) as raised:
            sk.split(data / "train-*", tmp_path / "x{shard}", shards=3, **options)
        errors.append((type(raised.value), str(raised.value), raised.value.path, raised.value.offset_bytes))
    assert errors[0] == errors[1]
    assert not list(tmp_path.glob("*x*"))


def test_workers_fetch_what_their_tasks_read(
    tmp_path: Path, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDKEEP_CACHE_DIR", str(tmp_path / "cache"))
    compare_remote(tmp_path, executor)


def test_the_command_starts_a_session_and_ends_it(data: Path) -> None:
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "shardkeep",
        "verify",
        "--engine",
        "ray",
        str(data / "train-*"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "all files are intact" in done.stdout
