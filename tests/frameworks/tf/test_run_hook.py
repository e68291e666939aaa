"""`RunHook` in sessions that fail or are replaced, and with a collector.

Covers `shardkeep.adapters.tensorflow.run_hook`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import pytest

tf = pytest.importorskip("tensorflow")

import shardkeep as sk  # noqa: E402
from shardkeep.adapters.tensorflow import RunHook  # noqa: E402
from tests.doc_pages import ROOT, run_steps, steps_of  # noqa: E402
from tests.frameworks.exactly_once import make_loader, write_shards  # noqa: E402
from tests.waiting import eventually  # noqa: E402

v1 = tf.compat.v1


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
    collect_beside(tmp_path / "log", tmp_path)


def collect_beside(log: Path, folder: Path) -> None:
    """Collect the steps of a session that fails and of the next one; see rows only after their checkpoint."""
    with (
        sk.hdf5.Collector(folder / "all.h5") as collector,
        sk.hdf5.connect(collector.address, sk.World(0, 1)) as client,
    ):
        with pytest.raises(ZeroDivisionError):
            count_to(10, log, lambda number: RunHook(client, {"step": number}, log), runs=7)
        client.flush()
        eventually(lambda: _steps_shown(folder / "all.h5"))
        assert _steps_shown(folder / "all.h5") == [1, 2, 3, 4]
        count_to(10, log, lambda number: RunHook(client, {"step": number}, log))
    with h5py.File(folder / "all.h5") as file:
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
