"""Sessions of `tf.compat.v1.train` and Estimator with `RunHook`: killed processes, and parameter servers."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import shardkeep as sk
from shardkeep.adapters.tensorflow import RunHook, to_dataset
from tests.frameworks.consumers.program_runs import EPOCHS, PROGRAMS, merged_epochs
from tests.frameworks.consumers.stories import Answer, case
from tests.frameworks.exactly_once import RECORDS, make_loader, write_shards
from tests.waiting import PATIENCE_S

v1 = tf.compat.v1


class Tasks(contextlib.AbstractContextManager["Tasks"]):
    """Processes of `session_run` in one folder."""

    def __init__(self, folder: Path, workers: int = 0) -> None:
        write_shards(folder)
        self.folder = folder
        self.cluster: dict[str, list[str]] = {}
        if workers:
            self.cluster = {"ps": _addresses(1), "worker": _addresses(workers)}
        self.all: list[subprocess.Popen[str]] = []

    def start(self, job: str, number: int = 0, **options: Any) -> subprocess.Popen[str]:
        arguments = [str(self.folder), job, str(number), json.dumps(self.cluster), json.dumps(options)]
        with (self.folder / f"{job}-{number}-{len(self.all)}.log").open("w") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", f"{PROGRAMS}.session_run", *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.all.append(child)
        return child

    def run(self, *arguments: Any, **options: Any) -> tuple[int, list[str]]:
        return self.end(self.start(*arguments, epochs=EPOCHS, **options))

    def end(self, child: subprocess.Popen[str]) -> tuple[int, list[str]]:
        output, _ = child.communicate(timeout=PATIENCE_S)
        return child.returncode, output.splitlines()

    def logs(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in sorted(self.folder.glob("*.log")))

    def __exit__(self, *exception: object) -> None:
        for child in self.all:
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()


def _addresses(number: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return addresses


def killed_alone(folder: Path) -> Answer:
    """Kill a process twice; it continues from its checkpoint."""
    with Tasks(folder) as tasks:
        code, lines = tasks.run("alone", kill_after=17)
        assert (code, lines[0]) == (-9, "began None"), tasks.logs()
        # A rollback that cuts: steps 11 to 17 were committed, without a checkpoint.
        code, lines = tasks.run("alone", kill_after=7, commit_secs=0.0)
        assert (code, lines[0]) == (-9, "began 10"), tasks.logs()
        code, lines = tasks.run("alone")
        assert (code, lines[0], lines[-1]) == (0, "began 10", "ended 28"), tasks.logs()
    # The model has seen each record as often as the file has it.
    assert tf.train.load_variable(str(folder / "log"), "seen") == EPOCHS * RECORDS
    return merged_epochs(folder / "run", folder)


def killed_worker_of_a_server(folder: Path) -> Answer:
    """Kill one of two workers of a parameter server; it continues from its rows."""
    with Tasks(folder, 2) as tasks:
        options = {"commit_secs": 0.2, "sleep_s": 0.05}
        tasks.start("ps")
        chief = tasks.start("worker", 0, epochs=EPOCHS, **options)
        assert chief.stdout is not None
        assert chief.stdout.readline() == "began None\n", tasks.logs()
        code, lines = tasks.run("worker", 1, kill_after=8, **options)
        assert (code, lines[0], lines[-1]) == (-9, "began None", "step 8"), tasks.logs()
        code, lines = tasks.run("worker", 1, **options)
        assert code == 0, tasks.logs()
        assert lines[0] != "began None"  # what was committed in time was not made again
        assert tasks.end(chief)[0] == 0, tasks.logs()
    return merged_epochs(folder / "run", folder)


def killed_estimator(folder: Path) -> Answer:
    """Kill an Estimator with two replicas; it continues from its checkpoint."""
    write_shards(folder)
    for kill_after, code in ((17, -9), (0, 0)):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                f"{PROGRAMS}.estimator_run",
                str(folder),
                str(kill_after),
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == code, done.stderr
    assert done.stdout == "ended 28\n"
    return merged_epochs(folder / "run", folder)


def dataset_in_a_session(folder: Path) -> Answer:
    """Leave a session over `to_dataset`, and continue with its rows."""
    paths, log = write_shards(folder), folder / "log"
    for steps in (17, 1000):
        with (
            contextlib.suppress(ZeroDivisionError),
            sk.hdf5.WorkerFile(folder / "run", sk.World(0, 1)) as out,
            tf.Graph().as_default(),
        ):
            dataset = to_dataset(make_loader(paths, epochs=EPOCHS))
            iterator = v1.data.make_initializable_iterator(dataset)
            v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
            batch = iterator.get_next()
            x = tf.boolean_mask(batch["x"], batch["valid"])
            with tf.control_dependencies([x]):
                train_op = v1.assign_add(v1.train.get_or_create_global_step(), 1)
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=str(log),
                hooks=[RunHook(out, {"x": x}, log, data=dataset)],
                save_checkpoint_steps=10,
                save_summaries_steps=0,
                log_step_count_steps=0,
            ) as session:
                while not session.should_stop():
                    session.run(train_op)
                    steps -= 1
                    if not steps:
                        raise ZeroDivisionError
    return merged_epochs(folder / "run", folder)


CASES = [
    case("reads ahead", "MonitoredTrainingSession", killed_alone),
    case("reads ahead", "MonitoredTrainingSession, to_dataset", dataset_in_a_session),
    case("has ranks out of step", "parameter server", killed_worker_of_a_server),
    case(
        "drops the last batch without a partner",
        "Estimator, MirroredStrategy",
        killed_estimator,
        # Estimator left TensorFlow with 2.16.
        marks=pytest.mark.skipif(not hasattr(tf, "estimator"), reason="needs Estimator"),
    ),
]
