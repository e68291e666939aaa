"""A coordinator, a parameter server and two workers, one of which is killed: each step's batch once.

Covers `shardkeep.adapters.tensorflow.parameter_server`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")

import shardkeep as sk  # noqa: E402
from shardkeep.adapters.tensorflow import StepReader, distribute  # noqa: E402
from tests.frameworks.exactly_once import RECORDS, bare, judge, make_loader, rows, write_shards  # noqa: E402
from tests.waiting import eventually  # noqa: E402

TASKS = [("ps", 0), ("worker", 0), ("worker", 1), ("chief", 0)]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_shards(tmp_path_factory.mktemp("shards"))


class Cluster:
    """One process for each task, the coordinator last: it gives up on servers that do not answer."""

    def __init__(self, folder: Path, stack: ExitStack, *options: str) -> None:
        self.folder, self.stack, self.options = folder, stack, options
        self.tasks: dict[tuple[str, int], subprocess.Popen[bytes]] = {}
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in TASKS]
        ports = [one.getsockname()[1] for one in sockets]
        self.addresses: dict[str, list[str]] = {}
        for (kind, _), port in zip(TASKS, ports, strict=True):
            self.addresses.setdefault(kind, []).append(f"127.0.0.1:{port}")
        for one in sockets:
            one.close()
        for task in TASKS[:-1]:
            self.start(*task)
        for port in ports[:-1]:
            self.wait_until(lambda port=port: answers(port))
        self.start(*TASKS[-1])

    def start(self, kind: str, index: int) -> None:
        config = json.dumps({"cluster": self.addresses, "task": {"type": kind, "index": index}})
        log = self.stack.enter_context((self.folder / f"{kind}{index}.log").open("wb"))
        child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.frameworks.tf.parameter_server_child",
                str(self.folder),
                *self.options,
            ],
            env={**os.environ, "TF_CONFIG": config, "GRPC_FAIL_FAST": "use_caller"},
            stdout=log,
            stderr=log,
        )
        self.stack.callback(child.wait)
        self.stack.callback(child.kill)
        self.tasks[kind, index] = child

    def log(self) -> str:
        """Return the log of the coordinator."""
        return (self.folder / "chief0.log").read_text() if TASKS[-1] in self.tasks else ""

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Wait; fail if a process ends before. A coordinator that has raised keeps its process."""
        codes: list[int | None] = []

        def is_over() -> bool:
            codes[:] = [child.poll() for child in self.tasks.values()]
            return any(code is not None for code in codes) or "Traceback" in self.log()

        eventually(lambda: condition() or is_over(), self.log())
        assert condition(), (codes, [path.read_text()[-3000:] for path in self.folder.glob("*.log")])


def answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def test_a_step_of_a_killed_worker_reads_its_batch_again(tmp_path: Path) -> None:
    paths = write_shards(tmp_path)
    with ExitStack() as stack:
        cluster = Cluster(tmp_path, stack)
        cluster.wait_until((tmp_path / "ready").exists)
        cluster.tasks.pop(("worker", 1)).kill()
        cluster.wait_until((tmp_path / "answer.json").exists)
    answer = json.loads((tmp_path / "answer.json").read_text())
    batches = answer["batches"]
    assert [batches[:14], batches[14:]] == bare(paths, 2)
    assert answer["ok"], answer["audit"]
    assert set(answer["reads"]) == set(range(28))
    assert answer["total"] >= 2 * sum(range(RECORDS))
    assert (answer["state"]["epoch"], answer["state"]["position"]) == (0, 80)


@pytest.mark.slow
def test_a_run_whose_parameter_server_was_killed_continues_from_its_checkpoint(tmp_path: Path) -> None:
    write_shards(tmp_path)
    with ExitStack() as stack:
        cluster = Cluster(tmp_path, stack, "checkpoints")
        cluster.wait_until((tmp_path / "ready").exists)
        cluster.tasks.pop(("ps", 0)).kill()
        (tmp_path / "killed").touch()
        eventually(lambda: "\ntensorflow.python.framework.errors_impl.UnavailableError" in cluster.log())
    assert tf.train.latest_checkpoint(str(tmp_path / "checkpoints")).endswith("-160")
    with sk.hdf5.WorkerFile(tmp_path / "run", sk.World(0, 1)) as out:
        assert out.committed_step == 160  # of 10 steps; 5 more had begun
    with ExitStack() as stack:
        Cluster(tmp_path, stack, "checkpoints").wait_until((tmp_path / "total").exists)
    sk.hdf5.merge(tmp_path / "run", tmp_path / "all.h5")
    with sk.hdf5.open(tmp_path / "all.h5") as file:
        rows = file["x"][:].tolist()
    judge([rows[:RECORDS], rows[RECORDS:]], sk.hdf5.receipts(tmp_path / "run"))
    assert int((tmp_path / "total").read_text()) == 2 * sum(range(RECORDS))


def read(steps: StepReader, number: object) -> list[int]:
    return rows({name: tensor.numpy() for name, tensor in steps.read(number).items()})


def test_steps_in_any_order_and_again_are_those_of_the_loader(paths: list[str]) -> None:
    first = make_loader(paths, epochs=2)
    list(zip(range(3), first, strict=False))
    loader = make_loader(paths, epochs=2)
    loader.load_state_dict(first.state_dict())
    steps = StepReader(loader)
    numbers = list(steps)
    read_first = {
        int(numbers[i]): read(steps, numbers[i]) for i in (2, 0, 1, 13, *range(3, 13), *range(14, 25))
    }
    again = {i: read(steps, numbers[i]) for i in (24, 0, 12)}
    steps.consume()
    assert not steps._places
    batches = [read_first[i] for i in range(25)]
    expected = bare(paths, 2)
    assert [batches[:11], batches[11:]] == [expected[0][3:], expected[1]]
    assert {i: batches[i] for i in again} == again
    assert sk.plan.audit([first.receipt(), loader.receipt()]).ok
    assert loader.epoch == 2


def test_a_checkpoint_has_the_steps_that_were_made(paths: list[str], tmp_path: Path) -> None:
    loader, later = make_loader(paths), make_loader(paths)
    steps, resumed = StepReader(loader), StepReader(later)
    seen = []
    for number in steps:
        seen.append(read(steps, number))
        if len(seen) == 6:
            break
    steps.consume()
    path = tf.train.Checkpoint(data=steps).save(str(tmp_path / "state"))
    tf.train.Checkpoint(data=resumed).restore(path).assert_consumed()
    seen += [read(resumed, number) for number in resumed]
    resumed.consume()
    assert seen == bare(paths, 1)[0]
    judge([[row for batch in seen for row in batch]], [loader.receipt(), later.receipt()])


def test_a_step_that_was_not_made_is_named(paths: list[str]) -> None:
    steps = StepReader(make_loader(paths))
    numbers = list(steps)
    read(steps, numbers[0])
    read(steps, numbers[2])
    with pytest.raises(sk.PlanError, match=r"step 1 was scheduled but not read.*join"):
        steps.consume()


def test_a_loader_of_a_rank_is_refused(paths: list[str]) -> None:
    with pytest.raises(sk.PlanError, match=r"rank 1 of 3.*pass world=World\(0, 1\)"):
        StepReader(make_loader(paths, 1, 3))


def test_distribute_names_the_reader_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    class Strategy(tf.distribute.experimental.ParameterServerStrategy):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

    with pytest.raises(sk.PlanError, match="StepReader"):
        distribute(Strategy(), lambda context: pytest.fail("it reads nothing"))
