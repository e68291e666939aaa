"""Clients that are dropped, and processes that end without `close`: rows are delivered, or reported."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import h5py
import numpy as np
import pytest

from shardkeep.hdf5 import connect
from shardkeep.world import World
from tests.procs.collector_run import collecting
from tests.waiting import PATIENCE_S

HEAD = """
import gc, multiprocessing, os, signal, sys, threading, time
import numpy as np
from shardkeep.hdf5 import connect
from shardkeep.world import World
place = sys.argv[1]
"""


def run_program(body, *args, code=0, python=()):
    """Run a program in another process; return its stderr."""
    program = HEAD + textwrap.dedent(body)
    done = subprocess.run(
        [sys.executable, *python, "-c", program, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == code, done.stderr
    return done.stderr


def rows_of(path, name="x"):
    with h5py.File(path) as file:
        return file[name][:].tolist()


@pytest.mark.parametrize(
    "end",
    [
        "pass",
        "del client",
        "threading.Thread(target=lambda: [time.sleep(0.2), client.append('x', 100.0)]).start(); rows += 1",
    ],
)
def test_a_program_that_ends_without_close_delivers_its_rows(tmp_path, end):
    path = tmp_path / "all.h5"
    with collecting(path):
        said = run_program(
            f"""
            client = connect(place, World(rank=0, size=1), timeout_s=100)
            rows = 100
            for row in range(rows):
                client.append("x", float(row))
            {end}
            """,
            tmp_path,
        )
    assert said == ""
    assert rows_of(path)[:100] == list(range(100))
    assert len(rows_of(path)) == 100 + ("Thread" in end)


def test_a_program_that_ends_by_an_exception_delivers_its_rows(tmp_path):
    path = tmp_path / "all.h5"
    with collecting(path):
        said = run_program(
            """
            def work():
                client = connect(place, World(rank=0, size=1), timeout_s=100)
                client.append("x", np.arange(1000))
                client.append("x", np.arange(1000, 300_000))
                client.append("word", "last")
                raise ValueError("a bug in the training")
            work()
            """,
            tmp_path,
            code=1,
        )
    assert "a bug in the training" in said
    assert "shardkeep" not in said.splitlines()[-1]
    assert rows_of(path) == list(range(300_000))
    assert rows_of(path, "word") == [b"last"]


def test_a_dropped_client_delivers_in_the_background(tmp_path):
    with collecting(tmp_path / "all.h5") as collector:
        client = collector.connect(World(rank=0, size=1))
        client.append("x", np.arange(10))
        client.append("x", np.arange(10, 20))
        sender = client._calls.sender
        del client
        sender._thread.join(PATIENCE_S)
        assert not sender._thread.is_alive()
        again = collector.connect(World(rank=0, size=1))
        again.close()
    assert rows_of(tmp_path / "all.h5") == list(range(20))


def test_rows_that_cannot_be_delivered_are_reported_in_time(tmp_path):
    with collecting(tmp_path / "all.h5") as collector:
        started = time.monotonic()
        try:
            said = run_program(
                """
                clients = [connect(place, World(rank=rank, size=8), timeout_s=100) for rank in (6, 7)]
                for client in clients:
                    client.append("x", 1.0)
                    client.append("y", ["a", "b"])
                    client.flush()
                os.kill(int(sys.argv[2]), signal.SIGSTOP)
                for client in clients:
                    client.timeout_s = 3
                    for row in range(5):
                        client.append("x", float(row))
                    client.append("y", ["c"])
                clients.pop(0)  # one is dropped, the other one lives until the end
                """,
                tmp_path,
                collector.pid,
                python=["-Wdefault"],
            )
        finally:
            os.kill(collector.pid, signal.SIGCONT)
        assert time.monotonic() - started < 100
    lines = sorted(line for line in said.splitlines() if line.startswith("shardkeep: "))
    assert [line.split(":")[1] for line in lines] == [" client of rank 6", " client of rank 7"]
    assert all("6 rows may be lost (5 of 'x', 1 of 'y')" in line for line in lines)
    assert said.count("ResourceWarning") >= 2


def _multiprocessing_child(place):
    client = connect(place, World(rank=0, size=1), timeout_s=100)
    for row in range(100):
        client.append("x", float(row))
    globals()["kept"] = client  # neither closed nor dropped


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_of_multiprocessing_delivers_without_close(tmp_path, method):
    path = tmp_path / "all.h5"
    with collecting(path):
        said = run_program(
            """
            from tests.procs.test_collector_shutdown import _multiprocessing_child
            if __name__ == "__main__":
                child = multiprocessing.get_context(sys.argv[2]).Process(
                    target=_multiprocessing_child, args=(place,))
                child.start()
                child.join(150)
                sys.exit(child.exitcode)
            """,
            tmp_path,
            method,
        )
    assert said == ""
    assert rows_of(path) == list(range(100))


def test_a_forked_child_does_not_send_rows_of_its_parent(tmp_path):
    path = tmp_path / "all.h5"
    with collecting(path):
        said = run_program(
            """
            client = connect(place, World(rank=0, size=1), timeout_s=100)
            client.append("x", np.arange(5))
            def child():
                if sys.argv[2] == "use":
                    client.append("x", [-1])
            process = multiprocessing.get_context("fork").Process(target=child)
            process.start()
            process.join(150)
            client.append("x", np.arange(5, 10))
            sys.exit(process.exitcode)
            """,
            tmp_path,
            "use",
        )
    assert said == ""
    rows = rows_of(path)
    assert [row for row in rows if row >= 0] == list(range(10))
    assert rows.count(-1) == 1
