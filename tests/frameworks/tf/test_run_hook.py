"""`RunHook` in real sessions: processes that are killed, parameter servers, a collector, the audit as judge.

Covers `shardkeep.adapters.tensorflow.run_hook`.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import pytest

tf = pytest.importorskip("tensorflow")

import shardkeep as sk  # noqa: E402
from shardkeep.adapters.tensorflow import RunHook, to_dataset  # noqa: E402
from tests.doc_pages import ROOT, run_steps, steps_of  # noqa: E402
from tests.frameworks.exactly_once import RECORDS, make_loader, write_shards  # noqa: E402
from tests.waiting import PATIENCE_S, eventually  # noqa: E402

v1 = tf.compat.v1

EPOCHS = 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shards").mkdir()
    write_shards(tmp_path / "shards")
    return tmp_path


class Tasks:
    """Processes of `tests.frameworks.tf.session_child` in one folder."""

    def __init__(self, folder: Path, workers: int = 0) -> None:
        self.folder = folder
        self.cluster: dict[str, list[str]] = {}
        if workers:
            self.cluster = {"ps": _addresses(1), "worker": _addresses(workers)}
        self.all: list[subprocess.Popen[str]] = []

    def start(self, job: str, number: int = 0, **options: Any) -> subprocess.Popen[str]:
        arguments = [str(self.folder), job, str(number), json.dumps(self.cluster), json.dumps(options)]
        with (self.folder / f"{job}-{number}-{len(self.all)}.log").open("w") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "tests.frameworks.tf.session_child", *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.all.append(child)
        return child

    def logs(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in sorted(self.folder.glob("*.log")))


def _addresses(number: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return addresses


@pytest.fixture
def tasks(folder: Path, request: pytest.FixtureRequest) -> Iterator[Tasks]:
    made = Tasks(folder, getattr(request, "param", 0))
    yield made
    for child in made.all:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def first_line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline()


def run(child: subprocess.Popen[str]) -> tuple[int, list[str]]:
    output, _ = child.communicate(timeout=PATIENCE_S)
    return child.returncode, output.splitlines()


def merged(folder: Path) -> tuple[list[int], list[int]]:
    """Return the rows of the merged file, and of how many there should be; the merge refuses findings."""
    sk.hdf5.merge(folder / "run", folder / "all.h5")
    with h5py.File(folder / "all.h5") as file:
        return file["x"][:].tolist(), file["loss"][:].tolist()


def assert_exact(folder: Path) -> None:
    rows, losses = merged(folder)
    assert sorted(rows) == sorted([*range(RECORDS)] * EPOCHS)
    assert sum(losses) == 2 * sum(rows)
    report = sk.plan.audit(sk.hdf5.receipts(folder / "run"))
    assert report.ok, report
    assert [epoch.delivered for epoch in report.epochs] == [RECORDS] * EPOCHS


def test_a_killed_process_continues_from_its_checkpoint(folder: Path, tasks: Tasks) -> None:
    code, lines = run(tasks.start("alone", epochs=EPOCHS, kill_after=17))
    assert (code, lines[0]) == (-9, "began None"), tasks.logs()
    # A rollback that cuts: steps 11 to 17 were committed, without a checkpoint.
    code, lines = run(tasks.start("alone", epochs=EPOCHS, kill_after=7, commit_secs=0.0))
    assert (code, lines[0]) == (-9, "began 10"), tasks.logs()
    code, lines = run(tasks.start("alone", epochs=EPOCHS))
    assert (code, lines[0], lines[-1]) == (0, "began 10", "ended 28"), tasks.logs()
    assert_exact(folder)
    # The model has seen each record as often as the file has it.
    assert tf.train.load_variable(str(folder / "log"), "seen") == EPOCHS * RECORDS


@pytest.mark.parametrize("tasks", [2], indirect=True)
def test_a_killed_worker_of_a_parameter_server_continues_from_its_rows(folder: Path, tasks: Tasks) -> None:
    options = {"epochs": EPOCHS, "commit_secs": 0.2, "sleep_s": 0.05}
    tasks.start("ps")
    chief = tasks.start("worker", 0, **options)
    assert first_line(chief) == "began None\n", tasks.logs()
    code, lines = run(tasks.start("worker", 1, kill_after=8, **options))
    assert (code, lines[0], lines[-1]) == (-9, "began None", "step 8"), tasks.logs()
    code, lines = run(tasks.start("worker", 1, **options))
    assert code == 0, tasks.logs()
    assert lines[0] != "began None"  # what was committed in time was not made again
    assert run(chief)[0] == 0, tasks.logs()
    assert_exact(folder)


# -- in this process -----------------------------------------------------------------------------------


def session(logdir: Path, hooks: list[Any], **options: Any) -> Any:
    return v1.train.MonitoredTrainingSession(
        checkpoint_dir=str(logdir), hooks=hooks, save_summaries_steps=0, log_step_count_steps=0, **options
    )


def count_to(last_step: int, logdir: Path, hook_of: Any, save_steps: int = 4, runs: int = 1000) -> None:
    """Run a session whose training step is the global step, at most `runs` times."""
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        train_op = v1.assign_add(step, 1)
        with tf.control_dependencies([train_op]):
            number = step.read_value()
        stop = v1.train.StopAtStepHook(last_step=last_step)
        with session(logdir, [hook_of(number), stop], save_checkpoint_steps=save_steps) as run_session:
            while not run_session.should_stop() and runs:
                run_session.run(train_op)
                runs -= 1
            if not runs:
                raise ZeroDivisionError


def _steps_shown(path: Path) -> list[int]:
    with sk.hdf5.open(path) as file:
        return file["step"][:].tolist() if "step" in file else []


def test_rows_of_a_collector_wait_for_the_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("zmq")
    log = tmp_path / "log"
    with (
        sk.hdf5.Collector(tmp_path / "all.h5") as collector,
        sk.hdf5.connect(collector.address, sk.World(0, 1)) as client,
    ):
        with pytest.raises(ZeroDivisionError):
            count_to(10, log, lambda number: RunHook(client, {"step": number}, log), runs=7)
        client.flush()
        eventually(lambda: _steps_shown(tmp_path / "all.h5"))
        assert _steps_shown(tmp_path / "all.h5") == [1, 2, 3, 4]
        count_to(10, log, lambda number: RunHook(client, {"step": number}, log))
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["step"][:].tolist() == list(range(1, 11))


@pytest.mark.parametrize("commit_secs", [0.0, 1000.0])
def test_a_session_that_failed_keeps_the_rows_of_its_checkpoint(tmp_path: Path, commit_secs: float) -> None:
    log = tmp_path / "log"

    def make(out: sk.hdf5.WorkerFile) -> Any:
        return lambda number: RunHook(out, {"step": number}, log, commit_secs=commit_secs)

    with (
        pytest.raises(ZeroDivisionError),
        sk.hdf5.WorkerFile(tmp_path / "run", sk.World(0, 1)) as out,
    ):
        count_to(10, log, make(out), runs=7)
    with sk.hdf5.WorkerFile(tmp_path / "run", sk.World(0, 1)) as out:
        # A commit follows a step at the beginning of the next one.
        assert out.committed_step == (6 if commit_secs == 0 else 4)
        count_to(10, log, make(out))
    rows = sk.hdf5.merge(tmp_path / "run", tmp_path / "all.h5").rows
    assert rows == {"step": 10}
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["step"][:].tolist() == list(range(1, 11))


def test_a_session_that_is_replaced_rolls_back(tmp_path: Path) -> None:
    """TensorFlow replaces a session whose parameter server was started again."""
    log, failed = tmp_path / "log", []

    class Fail(v1.train.SessionRunHook):  # type: ignore[misc]
        def after_run(self, run_context: Any, run_values: Any) -> None:
            if run_context.session.run(v1.train.get_global_step()) == 6 and not failed:
                failed.append(True)
                raise tf.errors.AbortedError(None, None, "the server is another one")

    with sk.hdf5.WorkerFile(tmp_path / "run", sk.World(0, 1)) as out, tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        train_op = v1.assign_add(step, 1)
        with tf.control_dependencies([train_op]):
            hook = RunHook(out, {"step": step.read_value()}, log)
        stop = v1.train.StopAtStepHook(last_step=10)
        with session(log, [hook, stop, Fail()], save_checkpoint_steps=4) as run_session:
            while not run_session.should_stop():
                run_session.run(train_op)
    assert failed
    sk.hdf5.merge(tmp_path / "run", tmp_path / "all.h5")
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["step"][:].tolist() == list(range(1, 11))


def test_a_dataset_of_the_loader_continues_where_rows_are_left(tmp_path: Path) -> None:
    paths, log = write_shards(tmp_path), tmp_path / "log"
    for steps in (17, 1000):
        with (
            contextlib.suppress(ZeroDivisionError),
            sk.hdf5.WorkerFile(tmp_path / "run", sk.World(0, 1)) as out,
            tf.Graph().as_default(),
        ):
            dataset = to_dataset(make_loader(paths, epochs=EPOCHS))
            iterator = v1.data.make_initializable_iterator(dataset)
            v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
            batch = iterator.get_next()
            x = tf.boolean_mask(batch["x"], batch["valid"])
            with tf.control_dependencies([x]):
                train_op = v1.assign_add(v1.train.get_or_create_global_step(), 1)
            hook = RunHook(out, {"x": x}, log, data=dataset)
            with session(log, [hook], save_checkpoint_steps=10) as run_session:
                while not run_session.should_stop():
                    run_session.run(train_op)
                    steps -= 1
                    if not steps:
                        raise ZeroDivisionError
    sk.hdf5.merge(tmp_path / "run", tmp_path / "all.h5")
    with h5py.File(tmp_path / "all.h5") as file:
        assert sorted(file["x"][:].tolist()) == sorted([*range(RECORDS)] * EPOCHS)
    assert sk.plan.audit(sk.hdf5.receipts(tmp_path / "run")).ok


def test_what_does_not_fit_together_is_refused(tmp_path: Path) -> None:
    write_shards(tmp_path)
    loader = make_loader(sorted(map(str, tmp_path.glob("*.tfrecord"))))
    with sk.hdf5.WorkerFile(tmp_path / "run", sk.World(0, 1)) as out:
        with pytest.raises(sk.PlanError, match="place= is the place of each batch of a Loader"):
            RunHook(out, {}, data=loader)
        with tf.Graph().as_default(), pytest.raises(sk.PlanError, match="RunHook needs a global step"):
            RunHook(out, {}).begin()
    with pytest.raises(sk.PlanError, match="data= needs a WorkerFile"):
        RunHook(object(), {}, data=loader, place="place:0")


def test_the_page_on_sessions_runs(tmp_path: Path) -> None:
    run_steps(steps_of(ROOT / "docs/frameworks/tensorflow-sessions.md"), tmp_path)
