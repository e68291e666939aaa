"""ParameterServerStrategy: a coordinator, a server and two workers, one of which is killed, or the server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

import pytest
import tensorflow as tf

import shardkeep as sk
from tests.frameworks.consumers.program_runs import PROGRAMS, merged_epochs
from tests.frameworks.consumers.stories import Answer, case
from tests.frameworks.exactly_once import RECORDS, bare, write_shards
from tests.waiting import eventually

TASKS = [("ps", 0), ("worker", 0), ("worker", 1), ("chief", 0)]


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
                f"{PROGRAMS}.server_run",
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


def killed_worker(folder: Path) -> Answer:
    """Kill a worker; the step that it made is made again with its batch."""
    paths = write_shards(folder)
    with ExitStack() as stack:
        cluster = Cluster(folder, stack)
        cluster.wait_until((folder / "ready").exists)
        cluster.tasks.pop(("worker", 1)).kill()
        cluster.wait_until((folder / "answer.json").exists)
    answer = json.loads((folder / "answer.json").read_text())
    batches = answer["batches"]
    assert [batches[:14], batches[14:]] == bare(paths, 2)
    assert set(answer["reads"]) == set(range(28))
    assert answer["total"] >= 2 * sum(range(RECORDS))
    assert (answer["state"]["epoch"], answer["state"]["position"]) == (0, 80)
    return [list(chain(*batches[:14])), list(chain(*batches[14:]))], [answer["receipt"]]


def killed_server(folder: Path) -> Answer:
    """Kill the server; a new cluster continues from the checkpoint."""
    write_shards(folder)
    with ExitStack() as stack:
        cluster = Cluster(folder, stack, "checkpoints")
        cluster.wait_until((folder / "ready").exists)
        cluster.tasks.pop(("ps", 0)).kill()
        (folder / "killed").touch()
        eventually(lambda: "\ntensorflow.python.framework.errors_impl.UnavailableError" in cluster.log())
    assert tf.train.latest_checkpoint(str(folder / "checkpoints")).endswith("-160")
    with sk.hdf5.WorkerFile(folder / "run", sk.World(0, 1)) as out:
        assert out.committed_step == 160  # of 10 steps; 5 more had begun
    with ExitStack() as stack:
        Cluster(folder, stack, "checkpoints").wait_until((folder / "total").exists)
    assert int((folder / "total").read_text()) == 2 * sum(range(RECORDS))
    return merged_epochs(folder / "run", folder)


CASES = [
    case("repeats steps", "ParameterServerStrategy, a worker is killed", killed_worker),
    case(
        "loses the variables with its server",
        "ParameterServerStrategy",
        killed_server,
        marks=pytest.mark.slow,
    ),
]
