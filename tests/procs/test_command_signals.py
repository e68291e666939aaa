"""The command after Ctrl-C, SIGTERM and SIGHUP, while it starts and in the middle of its work.

Covers `shardkeep.cli.start.main`.
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from shardkeep.tfrecord import Writer
from tests.waiting import PATIENCE_S, eventually

COMMAND = [sys.executable, "-m", "shardkeep"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    rng = np.random.default_rng(0)
    for name in ("a.tfrecord", "b.tfrecord"):
        with Writer(folder / name) as w:
            for _ in range(100):
                w.write(rng.bytes(100_000))
    for i in range(4):
        with h5py.File(folder / f"{i}.h5", "w") as f:
            f.create_dataset("x", data=rng.random((1_000_000 + i, 2)), chunks=(10_000 + i, 2))
    return folder


WORK = {
    "split": ["split", "a.tfrecord", "--output", "out/{shard}.tfrecord", "--shards", "2"],
    "split to gzip": ["split", "a.tfrecord", "-o", "out/{shard}", "--shards", "2", "--compression", "gzip"],
    "concat": ["concat", "a.tfrecord", "b.tfrecord", "--output", "out/all", "--compression", "gzip"],
    "merge": ["merge", "0.h5", "1.h5", "2.h5", "3.h5", "--output", "out/all.h5", "--mode", "copy"],
}


def default_signals() -> None:
    """Let no signal be ignored in a child, as it is below nohup and in the background of a script."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


start = functools.partial(subprocess.Popen, stderr=subprocess.PIPE, text=True, preexec_fn=default_signals)


def has_begun(folder: Path) -> bool:
    """Return True if there is a temporary file in the folder."""
    return any(name.endswith(".sktmp") for name in os.listdir(folder))


def has_content(folder: Path) -> bool:
    """Return True if a temporary file in the folder has content."""
    return any(os.stat(folder / name).st_size for name in os.listdir(folder) if name.endswith(".sktmp"))


@pytest.mark.parametrize("work", list(WORK))
@pytest.mark.parametrize(
    ("begun", "number"),
    [
        *((has_begun, signal.SIGINT), (has_content, signal.SIGTERM)),
        *(
            pytest.param(begun, number, marks=pytest.mark.slow)
            for begun in (has_begun, has_content)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            if (begun, number) not in [(has_begun, signal.SIGINT), (has_content, signal.SIGTERM)]
        ),
    ],
)
def test_signal_in_the_middle_leaves_no_file_and_no_lock(
    begun: Callable[[Path], bool], work: str, number: signal.Signals, source: Path, tmp_path: Path
) -> None:
    for path in source.iterdir():
        (tmp_path / path.name).symlink_to(path)
    out = tmp_path / "out"
    out.mkdir()
    before = {name.name for name in source.iterdir()}
    with start([*COMMAND, *WORK[work]], cwd=tmp_path) as child:
        while not begun(out):
            assert child.poll() is None, child.communicate()
        child.send_signal(signal.SIGSTOP)
        assert child.poll() is None
        child.send_signal(number)
        child.send_signal(signal.SIGCONT)
        errors = child.communicate(timeout=PATIENCE_S)[1]
    assert child.returncode == 128 + number, errors
    said = "interrupted" if number == signal.SIGINT else f"stopped by {number.name}"
    assert errors.splitlines()[-1].startswith(f"shardkeep: error: {said}")
    assert "Traceback" not in errors
    assert os.listdir(out) == []
    assert {name.name for name in source.iterdir()} <= before | {"a.tfrecord.skidx", "b.tfrecord.skidx"}


def test_second_sigterm_does_not_interrupt_the_clean_up(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.tfrecord"
    arguments = ["concat", str(source / "a.tfrecord"), str(source / "b.tfrecord"), "--output", str(out)]
    command = [*COMMAND, *arguments, "--compression", "gzip"]
    with start(command) as child:
        eventually(lambda: has_content(tmp_path))
        for _ in range(200):
            child.send_signal(signal.SIGTERM)
            if child.poll() is not None:
                break
        errors = child.communicate(timeout=PATIENCE_S)[1]
    assert (child.returncode, errors.count("\n")) == (143, 1), errors
    assert os.listdir(tmp_path) == []


def test_ctrl_c_while_modules_are_imported_is_silent(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    )
    done = subprocess.run(
        [*COMMAND, "--help"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_ignored_signal_stays_ignored(source: Path) -> None:
    script = """
import os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
"""
    command = """
import os, signal, sys
from shardkeep import cli
from shardkeep.cli import app
app.run = lambda arguments: os.kill(os.getpid(), signal.SIGHUP) or 7
sys.argv = ["shardkeep"]
cli.main()
"""
    done = subprocess.run([sys.executable, "-c", script, command], timeout=PATIENCE_S, check=False)
    assert done.returncode == 7


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_a_callback_that_drops_exceptions_stops_the_command(number: signal.Signals) -> None:
    command = f"""
import os, time, weakref
from shardkeep import cli
from shardkeep.cli import app
class Thing: pass
def work():
    thing = Thing()
    there = weakref.ref(thing, lambda _: os.kill(os.getpid(), {number}))
    del thing
    time.sleep(60)
app.app.invoke = lambda context: work()
import sys
sys.argv = ["shardkeep", "info", "x"]
cli.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 128 + number, done.stderr
    assert "Traceback" not in done.stderr


# Sends itself a signal in the first `Condition.wait` of its main thread, with the lock released.
STOPPED_IN_A_CONDITION = """
import os, sys, threading

number = int(sys.argv.pop(1))
sys.setswitchinterval(60)  # otherwise a new thread may have begun before `start` waits for it

def trace(frame, event, argument):
    if frame.f_code is not threading.Condition.wait.__code__:
        return None
    def lines(frame, event, argument):
        if "gotit" in frame.f_locals:
            sys.settrace(None)
            sys.setswitchinterval(0.005)
            os.kill(os.getpid(), number)
        return lines
    return lines

import shardkeep.cli.app, shardkeep.jobs
from shardkeep.cli.start.main import main
sys.settrace(trace)
main()
"""


@pytest.mark.parametrize("closed", [{1}, {2}, {0, 1, 2}])
@pytest.mark.parametrize("call", [["verify"], ["cat", "--raw", "--limit", "1"], ["info"]])
def test_closed_streams_are_dev_null(source: Path, call: list[str], closed: set[int]) -> None:
    def close() -> None:
        for number in closed:
            os.close(number)

    with start([*COMMAND, *call, str(source / "a.tfrecord")], preexec_fn=close) as child:
        errors = child.communicate(timeout=PATIENCE_S)[1]
    assert (child.returncode, errors) == (0, "")


def test_errors_that_cannot_be_printed_keep_the_exit_code() -> None:
    with open("/dev/full", "w") as full:
        assert subprocess.run([*COMMAND, "info", "missing"], stderr=full).returncode == 10


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_while_a_thread_starts_is_not_a_bug(source: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", STOPPED_IN_A_CONDITION, str(int(number)), "verify"]
    with start([*command, str(source / "a.tfrecord"), str(source / "b.tfrecord")]) as child:
        errors = child.communicate(timeout=PATIENCE_S)[1]
    said = "interrupted" if number == signal.SIGINT else f"stopped by {number.name}"
    assert (child.returncode, errors.startswith(f"shardkeep: error: {said}")) == (128 + number, True), errors
