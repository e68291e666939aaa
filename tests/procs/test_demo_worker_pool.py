"""The worker pool of the demo, with scripts in place of its workers.

Covers `shardkeep.demo.messages` and `shardkeep.demo.worker_pool`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from shardkeep.demo import worker_pool
from shardkeep.demo.messages import Assignment, Failed, Finished, Publish, Published
from shardkeep.demo.settings import Settings
from shardkeep.demo.worker_pool import WorkerPool
from shardkeep.errors import CorruptRecordError, InternalError
from tests.waiting import PATIENCE_S, eventually

HEAD = """
import json, os, signal, sys, time
sys.path[:] = json.loads(sys.argv[2])
from multiprocessing.connection import Connection
from shardkeep.demo.messages import *
from shardkeep.errors import *
parent = Connection(int(sys.argv[1]))
rank = parent.recv().rank
"""

ECHO = """
try:
    while True:
        parent.send(Published(parent.recv().step * 10 + rank))
except EOFError:
    pass
"""


def scripted_command(program: str) -> Callable[[str, str], list[str]]:
    """Return a replacement for `child_python` that runs `program` after `HEAD`."""

    def command(module: str, call: str) -> list[str]:
        socket = call.removeprefix("main(").removesuffix(")")
        return [sys.executable, "-c", HEAD + program, socket, json.dumps(sys.path)]

    return command


@dataclass
class ScriptedPools:
    """Factory of pools whose workers run `program` after `HEAD`."""

    patch: pytest.MonkeyPatch

    def __call__(self, size: int, program: str) -> WorkerPool:
        self.patch.setattr(worker_pool, "child_python", scripted_command(program))
        self.patch.setattr(worker_pool, "_STOP_TIMEOUT_S", 1.0)
        return WorkerPool([Assignment(rank, size, Settings(), (), "", "", 0.0) for rank in range(size)])


@pytest.fixture
def scripted_pool(monkeypatch: pytest.MonkeyPatch) -> ScriptedPools:
    return ScriptedPools(monkeypatch)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_messages_are_in_the_order_of_the_ranks(scripted_pool: ScriptedPools) -> None:
    with scripted_pool(3, "time.sleep(0.2 * (2 - rank))" + ECHO) as pool:
        pool.broadcast(Publish(4))
        result = pool.gather(Published)
    assert list(result.messages.items()) == [(0, Published(40)), (1, Published(41)), (2, Published(42))]
    assert result.dead == ()
    assert not any(map(is_running, pool.pids))


def test_death_is_reported_with_the_messages_of_the_other_ranks(scripted_pool: ScriptedPools) -> None:
    with scripted_pool(3, "if rank == 1: os.kill(os.getpid(), signal.SIGKILL)" + ECHO) as pool:
        pool.broadcast(Publish(1))
        result = pool.gather(Published)
        assert result.dead == (1,)
        assert sorted(result.messages) == [0, 2]
        assert pool.describe_exit(1) == "was killed by SIGKILL"
        # The remaining ranks still receive and send messages.
        pool.broadcast(Publish(2))
        assert sorted(pool.gather(Published, ranks=[0, 2]).messages) == [0, 2]


def test_rank_is_killed_after_its_message_has_arrived(scripted_pool: ScriptedPools) -> None:
    with scripted_pool(2, ECHO) as pool:
        pool.broadcast(Publish(1))
        result = pool.gather(Published, kill=0)
        assert (sorted(result.messages), result.dead) == ([0, 1], (0,))
        assert pool.describe_exit(0) == "was killed by SIGKILL"


def test_second_message_of_a_killed_rank_is_ignored(scripted_pool: ScriptedPools) -> None:
    # Both messages are in the socket before the kill.
    program = "parent.send(Published(1)); parent.send(Finished(2)); time.sleep(60)"
    with scripted_pool(1, program) as pool:
        time.sleep(1.0)
        result = pool.gather(Published, kill=0)
    assert (result.messages, result.dead) == ({0: Published(1)}, (0,))


def test_all_dead_ranks_are_reported(scripted_pool: ScriptedPools) -> None:
    with scripted_pool(3, "if rank: sys.exit(7)" + ECHO) as pool:
        pool.broadcast(Publish(1))
        assert pool.gather(Published).dead == (1, 2)
        assert pool.describe_exit(2) == "left with exit code 7"


def test_worker_that_does_not_exit_is_killed(scripted_pool: ScriptedPools) -> None:
    stubborn = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nparent.send(Finished(1))\nwhile True: time.sleep(60)"
    )
    with scripted_pool(2, stubborn) as pool:
        pool.gather(Finished)
    assert not any(map(is_running, pool.pids))


def test_error_in_the_parent_leaves_no_process(scripted_pool: ScriptedPools) -> None:
    with pytest.raises(KeyboardInterrupt), scripted_pool(3, ECHO) as pool:
        raise KeyboardInterrupt
    assert not any(map(is_running, pool.pids))


def test_error_of_a_worker_is_raised_in_the_parent(scripted_pool: ScriptedPools) -> None:
    program = (
        "error = CorruptRecordError('bad checksum', path='a', record=3)\n"
        "if rank == 1: parent.send(Failed(error, 'its stack'))" + ECHO
    )
    with pytest.raises(CorruptRecordError, match="bad checksum") as caught, scripted_pool(2, program) as pool:
        pool.gather(Published)
    assert (caught.value.path, caught.value.record) == ("a", 3)
    assert "in worker 1" in str(caught.value.__cause__)
    assert not any(map(is_running, pool.pids))


def test_unexpected_message_is_an_internal_error(scripted_pool: ScriptedPools) -> None:
    with (
        pytest.raises(InternalError, match="sent Finished instead of Published"),
        scripted_pool(1, "parent.send(Finished(0))") as pool,
    ):
        pool.gather(Published)


def test_workers_exit_when_the_parent_is_killed() -> None:
    """No other process holds a copy of the parent's socket, so its end reaches every worker."""
    program = f"""
import os, signal, sys, time
sys.path.insert(0, {os.getcwd()!r})
from shardkeep.demo import worker_pool
from tests.procs.test_demo_worker_pool import ECHO, scripted_command
from shardkeep.demo.messages import Assignment, Publish, Published
from shardkeep.demo.settings import Settings
worker_pool.child_python = scripted_command(ECHO)
made = worker_pool.WorkerPool([Assignment(rank, 3, Settings(), (), "", "", 0.0) for rank in range(3)])
made.broadcast(Publish(1))
made.gather(Published)
print(*made.pids, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False
    )
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 3
    eventually(lambda: not any(map(_is_alive, pids)))


def _is_alive(pid: int) -> bool:
    """Return True if the process runs; False for a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_death_in_the_middle_of_a_message_is_reported(scripted_pool: ScriptedPools) -> None:
    """A worker that dies in the middle of a message counts as dead and does not block the parent."""
    with scripted_pool(1, "os.write(parent.fileno(), b'\\0\\0\\1\\0abc')") as pool:
        result = pool.gather(Failed)
    assert result.dead == (0,)
