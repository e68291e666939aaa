"""The crew of the demo with programs that stand in for its workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from shardkeep.demo import crew as crew_module
from shardkeep.demo.crew import Crew
from shardkeep.demo.messages import Assignment, Failed, Finished, Publish, Published
from shardkeep.demo.settings import Settings
from shardkeep.errors import CorruptRecordError, DurabilityError, InternalError
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


def acting(program: str) -> Callable[[str, str], list[str]]:
    """Return what stands in for `child_python`, and runs `program` after `HEAD`."""

    def command(module: str, call: str) -> list[str]:
        socket = call.removeprefix("main(").removesuffix(")")
        return [sys.executable, "-c", HEAD + program, socket, json.dumps(sys.path)]

    return command


@dataclass
class Actors:
    """Makes crews whose workers run `program` after `HEAD`."""

    patch: pytest.MonkeyPatch

    def __call__(self, size: int, program: str) -> Crew:
        self.patch.setattr(crew_module, "child_python", acting(program))
        self.patch.setattr(crew_module, "_STOP_S", 1.0)
        return Crew([Assignment(rank, size, Settings(), (), 0, "", "", 0.0) for rank in range(size)])


@pytest.fixture
def actors(monkeypatch: pytest.MonkeyPatch) -> Actors:
    return Actors(monkeypatch)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_everybody_is_heard_in_the_order_of_the_ranks(actors: Actors) -> None:
    with actors(3, "time.sleep(0.2 * (2 - rank))" + ECHO) as crew:
        crew.broadcast(Publish(4))
        heard = crew.gather(Published)
    assert list(heard.said.items()) == [(0, Published(40)), (1, Published(41)), (2, Published(42))]
    assert heard.dead == ()
    assert not any(map(is_running, crew.pids))


def test_a_death_is_noticed_at_once_and_the_others_are_heard(actors: Actors) -> None:
    with actors(3, "if rank == 1: os.kill(os.getpid(), signal.SIGKILL)" + ECHO) as crew:
        crew.broadcast(Publish(1))
        heard = crew.gather(Published)
        assert heard.dead == (1,)
        assert sorted(heard.said) == [0, 2]
        assert crew.how_it_ended(1) == "was killed by SIGKILL"
        # The rest can be spoken to as if nothing had happened.
        crew.broadcast(Publish(2))
        assert sorted(crew.gather(Published, ranks=[0, 2]).said) == [0, 2]


def test_the_victim_is_killed_after_it_has_spoken(actors: Actors) -> None:
    with actors(2, ECHO) as crew:
        crew.broadcast(Publish(1))
        heard = crew.gather(Published, kill=0)
        assert (sorted(heard.said), heard.dead) == ([0, 1], (0,))
        assert crew.how_it_ended(0) == "was killed by SIGKILL"


def test_what_a_killed_worker_said_before_the_signal_reached_it_is_not_heard(actors: Actors) -> None:
    # Both messages are on their way before the kill.
    program = "parent.send(Published(1)); parent.send(Finished(2)); time.sleep(60)"
    with actors(1, program) as crew:
        time.sleep(1.0)
        heard = crew.gather(Published, kill=0)
    assert (heard.said, heard.dead) == ({0: Published(1)}, (0,))


def test_several_deaths_at_once(actors: Actors) -> None:
    with actors(3, "if rank: sys.exit(7)" + ECHO) as crew:
        crew.broadcast(Publish(1))
        assert crew.gather(Published).dead == (1, 2)
        assert crew.how_it_ended(2) == "left with exit code 7"


def test_a_worker_that_will_not_leave_is_made_to(actors: Actors) -> None:
    deaf = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nparent.send(Finished(1))\nwhile True: time.sleep(60)"
    )
    with actors(2, deaf) as crew:
        crew.gather(Finished)
    assert not any(map(is_running, crew.pids))


def test_an_error_in_the_parent_leaves_no_process(actors: Actors) -> None:
    with pytest.raises(KeyboardInterrupt), actors(3, ECHO) as crew:
        raise KeyboardInterrupt
    assert not any(map(is_running, crew.pids))


def test_an_error_of_a_worker_is_the_error_of_the_parent(actors: Actors) -> None:
    program = (
        "error = CorruptRecordError('bad checksum', path='a', record=3)\n"
        "if rank == 1: parent.send(Failed(error, 'its stack'))" + ECHO
    )
    with pytest.raises(CorruptRecordError, match="bad checksum") as caught, actors(2, program) as crew:
        crew.gather(Published)
    assert (caught.value.path, caught.value.record) == ("a", 3)
    assert "in worker 1" in str(caught.value.__cause__)
    assert not any(map(is_running, crew.pids))


def test_a_full_disk_at_a_worker_is_told_in_one_line(actors: Actors) -> None:
    program = "parent.send(Failed(OSError(28, 'No space left on device', 'run/rank-0'), ''))"
    with (
        pytest.raises(DurabilityError, match="worker 0: run/rank-0: No space left") as caught,
        actors(1, program) as crew,
    ):
        crew.gather(Published)
    assert "\n" not in str(caught.value)


def test_a_message_out_of_turn_is_a_bug(actors: Actors) -> None:
    with (
        pytest.raises(InternalError, match="said Finished instead of Published"),
        actors(1, "parent.send(Finished(0))") as crew,
    ):
        crew.gather(Published)


def test_a_worker_leaves_when_the_parent_is_killed() -> None:
    """No copy of the parent's socket is held by anybody else, so its end reaches every worker."""
    program = f"""
import os, signal, sys, time
sys.path.insert(0, {os.getcwd()!r})
from shardkeep.demo import crew
from tests.procs.test_demo_crew import ECHO, acting
from shardkeep.demo.messages import Assignment, Publish, Published
from shardkeep.demo.settings import Settings
crew.child_python = acting(ECHO)
made = crew.Crew([Assignment(rank, 3, Settings(), (), 0, "", "", 0.0) for rank in range(3)])
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
    """Running, and not only an entry that nobody has collected."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_end_of_an_unpicklable_message_is_not_a_hang(actors: Actors) -> None:
    """A worker that dies in the middle of a message is dead, not slow."""
    with actors(1, "os.write(parent.fileno(), b'\\0\\0\\1\\0abc')") as crew:
        heard = crew.gather(Failed)
    assert heard.dead == (0,)
