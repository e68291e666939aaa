"""Repair in real processes: signals, live writers, failing calls of the system."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from shardkeep.files import leftovers
from shardkeep.jobs import verify
from shardkeep.tfrecord import Writer
from tests.procs.failing_disk import FailingCalls
from tests.procs.test_command_signals import default_signals, has_begun, has_content
from tests.waiting import PATIENCE_S

COMMAND = [sys.executable, "-m", "shardkeep", "repair"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two damaged files."""
    folder = tmp_path_factory.mktemp("source") / "data"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name, count, compression in (("a.tfrecord", 1200, None), ("b.tfrecord", 400, None)):
        with Writer(folder / name, compression=compression) as w:
            for _ in range(count):
                w.write(rng.bytes(100_000))
        with open(folder / name, "r+b") as file:
            file.seek(5_000_000)
            file.write(bytes(1000))
    return folder


WORK = {
    "a file": ["data/a.tfrecord", "out/a"],
    "a folder": ["data", "out/data"],
}


def files_below(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*")]


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL]
)
@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("begun", [has_begun, has_content])
def test_signal_in_the_middle_leaves_no_output(
    begun: Callable[[Path], bool], work: str, number: signal.Signals, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "data").symlink_to(source)
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in source.iterdir()}
    out = tmp_path / "out"
    out.mkdir()
    where = out / "data" if work == "a folder" else out
    with subprocess.Popen(
        [*COMMAND, *WORK[work]], cwd=tmp_path, stderr=subprocess.PIPE, text=True, preexec_fn=default_signals
    ) as child:
        while not (where.exists() and begun(where)):
            assert child.poll() is None, child.communicate()
        child.send_signal(signal.SIGSTOP)
        assert child.poll() is None
        child.send_signal(number)
        child.send_signal(signal.SIGCONT)
        errors = child.communicate(timeout=PATIENCE_S)[1]
    if number == signal.SIGKILL:
        left = [name for name in files_below(out) if name != str(out / "data")]
        assert left and all(leftovers.is_temporary(os.path.basename(name)) for name in left)
        leftovers.sweep(str(where))
        left = [name for name in files_below(out) if name != str(out / "data")]
    else:
        assert child.returncode == 128 + number, errors
        left = files_below(out)
    assert left == []
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in source.iterdir()} == before


WRITER = """
import sys
from shardkeep.tfrecord import Writer
with Writer(sys.argv[1], exists="append") as writer:
    print(flush=True)
    input()
"""


def test_a_file_that_a_writer_appends_to_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    with Writer(path) as w:
        w.write(b"one")
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        done = subprocess.run(
            [*COMMAND, str(path), str(tmp_path / "new")], capture_output=True, text=True, timeout=PATIENCE_S
        )
        writer.communicate("\n")
    assert done.returncode == 11 and f"pid {writer.pid}" in done.stderr
    assert done.stderr.count("\n") == 1 and not (tmp_path / "new").exists()
    done = subprocess.run([*COMMAND, str(path), str(tmp_path / "new")], timeout=PATIENCE_S)
    assert done.returncode == 0 and verify(tmp_path / "new").ok


@pytest.mark.parametrize(
    ("functions", "where"), [("write,pwrite", "/out/"), ("fsync", "/out/"), ("linkat", "")]
)
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_failing_disk_leaves_no_output(
    functions: str, where: str, number: int, source: Path, tmp_path: Path, shim: Path
) -> None:
    calls = FailingCalls(shim, tmp_path / "plan")
    out = tmp_path / "out"
    out.mkdir()
    with calls.failing(functions, where, number):
        done = subprocess.run(
            [*COMMAND, str(source / "b.tfrecord"), str(out / "b")],
            env=calls.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
    assert done.returncode == 2, done.stderr
    assert errno.errorcode[number] in done.stderr and done.stderr.count("\n") == 1
    assert os.listdir(out) == []
