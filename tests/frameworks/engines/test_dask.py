"""Jobs on a Dask cluster of three worker processes, of which one is killed during the work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import pytest

distributed = pytest.importorskip("distributed")

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
from tests.waiting import PATIENCE_S, eventually  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("dask")
    file = folder / "scheduler.json"
    cache = str(folder / "cache")  # of another host than that of the tests
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "SHARDKEEP_CACHE_DIR": cache}
    commands = [
        ["distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", "--host", "127.0.0.1"],
        ["distributed.cli.dask_worker", "--nworkers", "3", "--nthreads", "1", "--no-dashboard"],
    ]
    with open(folder / "log", "wb") as log:
        started = [
            subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", *command, "--scheduler-file", str(file)],
                env=environment,
                cwd=folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            for command in commands
        ]
    try:
        eventually(file.exists, "no scheduler file", pause_s=0.1)
        with distributed.Client(scheduler_file=str(file), set_as_default=False) as client:
            client.wait_for_workers(3, timeout=PATIENCE_S)
        yield str(file)
    finally:
        for one in reversed(started):
            one.terminate()
        for one in started:
            try:
                one.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(one.pid, signal.SIGKILL)
                one.wait()


@pytest.fixture
def client(scheduler: str) -> Iterator[Any]:
    with distributed.Client(scheduler_file=scheduler, set_as_default=False) as client:
        client.wait_for_workers(3, timeout=PATIENCE_S)
        yield client


@pytest.fixture
def executor(client: Any, scheduler: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Executor]:
    monkeypatch.setattr(groups, "_GROUP_FILES", 2)  # many tasks of few files
    with sk.engine("dask", address=scheduler) as executor:
        assert executor is not None
        yield executor


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("same"))


@pytest.mark.parametrize("name", JOBS)
def test_a_killed_worker_changes_no_byte(
    name: str, data: Path, tmp_path: Path, client: Any, executor: Executor
) -> None:
    workers = client.run(os.getpid)
    compare(name, data, tmp_path, executor, killing(iter(workers.values())))


def test_a_task_runs_again_when_its_worker_dies(tmp_path: Path, executor: Executor) -> None:
    items = work_files(tmp_path)
    found = Work(None, 0, executor).run(dies_once, items, 1)
    assert found == [os.path.basename(one.path) for one in items]


def test_a_task_that_kills_each_worker_is_an_error_that_names_its_file(
    tmp_path: Path, executor: Executor
) -> None:
    items = work_files(tmp_path)
    with pytest.raises(EngineError, match=r"kill: no worker finished this task \(KilledWorker") as raised:
        Work(None, 0, executor).run(dies_always, items, 1)
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
        errors.append(raised.value)
    here, there = errors
    assert (there.path, there.record, there.offset_bytes) == (str(path), here.record, here.offset_bytes)
    assert str(here) == str(there)
    assert not list(tmp_path.glob("*x*"))


def test_the_command_has_the_same_output(data: Path, scheduler: str) -> None:
    reports = []
    for options in ([], ["--engine", "dask", "--address", scheduler]):
        command = [sys.executable, "-m", "shardkeep", "verify", "--json", *options, str(data / "train-*")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        reports.append(json.loads(done.stdout))
    assert reports[0] == reports[1]


def test_workers_fetch_what_their_tasks_read(
    tmp_path: Path, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDKEEP_CACHE_DIR", str(tmp_path / "cache"))
    compare_remote(tmp_path, executor)


def test_ctrl_c_ends_the_driver_promptly(tmp_path: Path, scheduler: str, client: Any) -> None:
    program = f"""
import sys, time
import shardkeep as sk
from shardkeep.files.threads.work import Work, WorkFile
from tests.frameworks.engines.test_dask import sleeps
with sk.engine("dask", address={scheduler!r}) as executor:
    files = [WorkFile(__file__, 64 << 20)] * 200
    Work(lambda *_: print("begun", flush=True), 1, executor).run(sleeps, files, 1)
"""
    (tmp_path / "driver.py").write_text(program)
    driver = subprocess.Popen(
        [sys.executable, "-W", "ignore", str(tmp_path / "driver.py")],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "begun\n"
    driver.send_signal(signal.SIGINT)
    begin = time.monotonic()
    _, errors = driver.communicate(timeout=PATIENCE_S)
    assert "KeyboardInterrupt" in errors
    assert time.monotonic() - begin < 100  # all tasks take 200 s
    # No task that had not begun runs: three are running, and the cluster is free when they end.
    eventually(
        lambda: not any(client.processing().values()), "tasks of the dead driver still wait", pause_s=0.2
    )


def sleeps(item: Any, tick: Any) -> None:
    time.sleep(3)
