"""Each command meets each error of the kernel: one line, a right exit code, and no file that was not there.

Covers `shardkeep.files.durable` and `shardkeep.cli.output.errors`.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import shardkeep as sk
from shardkeep.cli.exit_codes import ExitCode
from shardkeep.tfrecord import ShardWriter
from tests.procs.failing_disk import FailingCalls
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]

# Arguments, a part of the paths of the files that are read, and one of those that are written.
COMMANDS = {
    "verify-records": (["verify", "data", "--json"], "train-", None),
    "verify-hdf5": (["verify", "one.h5", "--json"], "one.h5", None),
    "info": (["info", "data", "run"], "rank-", None),
    "cat-records": (["cat", "data/train-00000-of-00002.tfrecord"], "train-", None),
    "cat-rows": (["cat", "one.h5", "--dataset", "x"], "one.h5", None),
    "schema": (["schema", "data"], "train-", None),
    "index": (["index", "data"], "train-", None),
    "audit": (["audit", "run"], "step-", None),
    "explain": (["explain", "train.log"], "train.log", None),
    "split": (["split", "data", "out-{shard:05d}.tfrecord", "--shards", "3"], "train-", "out-"),
    "concat": (["concat", "data", "out.tfrecord"], "train-", "out."),
    "pack": (["pack", "table.csv", "out-{shard:05d}.tfrecord", "--shards", "1"], "table.csv", "out-"),
    "merge": (["merge", "run", "out.h5"], "step-", "out."),
    "merge-virtual": (["merge", "run", "out.h5", "--mode", "virtual"], "step-", "out."),
    "rollback": (["rollback", "run", "--step", "1"], "step-", None),
}
READS = [
    ("open", errno.ESTALE),
    ("open", errno.EMFILE),
    ("read", errno.EIO),
    ("pread", errno.EIO),
    ("pread", errno.ESTALE),
]
WRITES = [
    ("write,pwrite", errno.ENOSPC),
    ("write,pwrite", errno.EDQUOT),
    ("fsync,fdatasync", errno.EIO),
    ("renameat,renameat2,linkat", errno.EIO),
    ("close", errno.EDQUOT),
]
_FOREVER = 1 << 40
# How fast the number of the call that fails grows.
GROWTHS = [1.0, pytest.param(0.3, marks=pytest.mark.slow)]
_ENOTSUPP = 524
# The commands that take a lock, and what they say where the file system has none.
LOCKED = ["split", "concat", "pack", "rollback"]


class Result(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str
    calls: int
    files: dict[str, str]


Run = Callable[..., Result]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    (folder / "data").mkdir()
    with ShardWriter(str(folder / "data/train-{shard:05d}-of-{shards:05d}.tfrecord"), shards=2) as out:
        for number in range(40):
            out.write_example({"x": number, "name": f"record {number}"})
    for rank in range(2):
        with sk.hdf5.WorkerFile(folder / "run", sk.World(rank, 2)) as out:
            for step in range(3):
                out.append("x", np.arange(10.0) + rank)
                out.commit(step=step)
    sk.hdf5.merge(folder / "run", folder / "one.h5")
    (folder / "table.csv").write_text("a,b\n1,2\n3,4\n")
    (folder / "train.log").write_text("OSError: [Errno 9] Bad file descriptor\n")
    return folder


@pytest.fixture(scope="module")
def run(shim: Path, template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("matrix")
    calls = FailingCalls(shim, folder / "plan")
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.fault_child"],
        cwd=ROOT,
        env=calls.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None and child.stdout is not None
    stdin, stdout = child.stdin, child.stdout

    def ask(
        arguments: list[str],
        functions: str = "",
        part: str = "",
        number: int = 0,
        first: int = 1,
        last: int = 0,
    ) -> Result:
        work = str(folder / "work")
        question: list[Any] = [str(template), work, arguments, functions, part, number, first, last]
        stdin.write(json.dumps(question) + "\n")
        stdin.flush()
        return Result(*json.loads(stdout.readline()))

    yield ask
    stdin.close()
    assert child.wait(PATIENCE_S) == 0
    stdout.close()


def _healthy(run: Run, name: str) -> tuple[Result, Result]:
    return run(["--version"]), run(COMMANDS[name][0])


def _check(name: str, number: int, got: Result, before: Result, healthy: Result) -> None:
    """Check one run: what it says, and the files that it leaves."""
    lines = got.err.splitlines()
    assert got.code in (0, ExitCode.USAGE, ExitCode.FINDINGS, ExitCode.LOCKED), (got.code, got.err)
    assert all(line.startswith("shardkeep: ") for line in lines), got.err
    if got.code == ExitCode.CLEAN:
        # The failed call was not needed: an index in another place, a second try.
        changed = {path for path in before.files if got.files.get(path) != healthy.files.get(path)}
        assert not changed, changed
        assert got.files.keys() - healthy.files.keys() <= {
            path for path in got.files if path.endswith(".lock")
        }
        return
    (text,) = lines or [got.out]
    assert name.startswith("verify") or lines, got
    assert os.strerror(number) in text or "ulimit -n" in text, text
    _, source, output = COMMANDS[name]
    assert source in text or (output or "run/rank-") in text, text
    if name != "rollback":  # it is not atomic: the ranks are rolled back one after the other
        assert {path for path in got.files if not path.endswith((".skidx", ".lock"))} == set(before.files)
    assert all(got.files[path] == before.files[path] for path in got.files if path in before.files)


def _one_after_the_other(run: Run, name: str, functions: str, part: str, number: int, growth: float) -> None:
    before, healthy = _healthy(run, name)
    assert healthy.code == (ExitCode.NOT_FOUND if name == "audit" else ExitCode.CLEAN), healthy.err
    first = 1
    while (got := run(COMMANDS[name][0], functions, part, number, first, first)).calls >= first:
        if got.code != ExitCode.NOT_FOUND:
            _check(name, number, got, before, healthy)
        # The first calls, and then some of the others; `verify` starts a process for each HDF5 file.
        first += 3 * first if name == "verify-hdf5" else 1 + int(first * growth)
    got = run(COMMANDS[name][0], functions, part, number, 1, _FOREVER)
    if got.calls and got.code != ExitCode.NOT_FOUND:
        _check(name, number, got, before, healthy)


@pytest.mark.parametrize("growth", GROWTHS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_read_fails(run: Run, name: str, growth: float) -> None:
    for functions, number in READS if name != "verify-hdf5" else READS[::3]:
        _one_after_the_other(run, name, functions, COMMANDS[name][1], number, growth)


@pytest.mark.parametrize("growth", GROWTHS)
@pytest.mark.parametrize("name", [name for name, (_, _, output) in COMMANDS.items() if output])
def test_a_write_fails(run: Run, name: str, growth: float) -> None:
    for functions, number in WRITES:
        if name.startswith("merge") and functions == "close":
            continue  # HDF5 closes only descriptors that are read, which does not fail on NFS
        part = "" if functions.startswith("rename") else COMMANDS[name][2] or ""
        _one_after_the_other(run, name, functions, part, number, growth)


@pytest.mark.parametrize("name", LOCKED)
@pytest.mark.parametrize("number", [errno.EPERM, errno.EAGAIN, errno.ENOLCK, errno.EOPNOTSUPP, _ENOTSUPP])
def test_a_lock_fails(run: Run, name: str, number: int) -> None:
    before = run(["--version"])
    got = run(COMMANDS[name][0], "flock", "", number, 1, _FOREVER)
    if number == errno.EAGAIN:
        assert got.code == ExitCode.LOCKED and "locked by" in got.err, got.err
        assert {path for path in got.files if not path.endswith(".lock")} == set(before.files)
    else:
        assert got.code == ExitCode.CLEAN, got.err
        assert "refuses locks" in got.err, got.err
