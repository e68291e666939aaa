"""Failing writes of a collector: it continues, clients keep their rows, and each row is stored once."""

import contextlib
import errno
import resource
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from shardkeep.errors import CollectorError
from shardkeep.hdf5 import connect
from shardkeep.world import World
from tests.procs.failing_disk import FailingCalls
from tests.small_disk import mounted
from tests.waiting import PATIENCE_S, eventually

# 16 rows are one slot of shared memory.
ROW = (32 << 10,)
RUN = """
import sys
from shardkeep.cli.app import run
from shardkeep.collector.server import committer
committer._RETRY_S = 0.05
sys.exit(run(["collect", *sys.argv[1:]]))
"""


class _Run:
    """A collector by the command, and a client that counts the rows that it has appended."""

    def __init__(self, path: Path, *options: str, **popen) -> None:
        self.path = path
        self.log = Path(f"{path}.log")
        with open(self.log, "w") as log:
            command = [sys.executable, "-c", RUN, str(path), "--memory", "32MB", *options]
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, **popen)
        self.client = connect(path, World(rank=0, size=1), timeout_s=PATIENCE_S)
        self.client.declare("x", "u1", ROW)
        self.client.declare("packed", "i8", (100,), compression="gzip", chunk_rows=64)
        self.client.declare("numbered", "i8", rows=1 << 20)
        self.rows = dict.fromkeys(("x", "packed", "loss", "word", "numbered"), 0)
        self.errors: set[str] = set()

    def append(self, count: int) -> None:
        """Append rows; refused rows were not added and are appended again."""
        for name in self.rows:
            for _ in range(count):
                eventually(lambda: self._append(name))  # noqa: B023

    def _append(self, name: str) -> bool:
        number = self.rows[name]
        row, key = {
            "x": (np.full((1, *ROW), number % 251, "u1"), None),
            "packed": (np.full((1, 100), number), None),
            "loss": (float(number), None),
            "word": (f"word {number}", None),
            "numbered": ([number + 1], [number * 3]),
        }[name]
        is_added = self._is_done(self.client.append, name, row, key=key)
        self.rows[name] += is_added
        return is_added

    def flush(self) -> None:
        eventually(lambda: self._is_done(self.client.flush))

    def _is_done(self, call, *args, **options) -> bool:
        try:
            call(*args, **options)
        except CollectorError as error:
            self.errors.add(str(error))
            return False
        return True

    def append_until_failed(self, reason: str) -> None:
        """Append until the client gets the error of the disk."""
        self.errors.clear()

        def has_failed() -> bool:
            for name in self.rows:
                self._append(name)
            return any(reason in one for one in self.errors)

        eventually(has_failed, f"{reason}: {self.log.read_text()[-2000:]}")

    def end(self) -> None:
        """Stop the collector, and check that every row is stored once."""
        self.flush()
        self.client.close()
        assert self.process.poll() is None, self.log.read_text()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0, self.log.read_text()
        self.check()

    def check(self) -> None:
        numbers = {name: np.arange(count) for name, count in self.rows.items()}
        with h5py.File(self.path) as file:
            assert file["x"][:, 4097].tolist() == (numbers["x"] % 251).tolist()
            assert (file["x"][:, :: 1 << 14] == (numbers["x"] % 251)[:, None]).all()
            assert file["packed"][:, 99].tolist() == numbers["packed"].tolist()
            assert file["loss"][:].tolist() == numbers["loss"].tolist()
            assert file["word"].asstr()[:].tolist() == [f"word {number}" for number in numbers["word"]]
            mine = file["numbered"][: 3 * self.rows["numbered"]]
        assert (mine[::3] == numbers["numbered"] + 1).all()
        assert mine.astype(bool).sum() == self.rows["numbered"]
        assert [one.name for one in self.path.parent.glob("*.redo")] == []

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def _running(path, *options, **popen):
    run = _Run(path, *options, **popen)
    try:
        yield run
    finally:
        run.kill()


# Functions, a part of the name of the file, errno.
KINDS = [
    ("pwrite", "all.h5", errno.ENOSPC),
    ("fdatasync", "all.h5", errno.EIO),
    ("pwrite,ftruncate", "all.h5.redo", errno.EDQUOT),
    ("pwrite,close", "all.h5", errno.EFBIG),
]
MORE_KINDS = [
    *(("pwrite", "all.h5", number) for number in (errno.EFBIG, errno.ESTALE, errno.ENOMEM, errno.EROFS)),
    *(
        (functions, path, number)
        for functions in ("pwrite", "pwrite,ftruncate,fdatasync,fsync,close")
        for path in ("all.h5", "all.h5.redo")
        for number in (errno.EDQUOT, errno.EIO)
    ),
]


def _fail_for_a_while(run, calls, functions, path, number):
    with calls.failing(functions, path, number):
        run.append_until_failed(f"({errno.errorcode[number]})")
    run.flush()


def test_rows_survive_failures_of_the_disk(tmp_path, shim):
    calls = FailingCalls(shim, tmp_path / "plan")
    with _running(tmp_path / "all.h5", env=calls.environment) as run:
        run.append(10)
        for kind in KINDS:
            _fail_for_a_while(run, calls, *kind)
        with calls.failing("pwrite,write", "all.h5", is_short=True):
            run.append(40)
            run.flush()
            assert calls.calls > 40
        run.end()


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["fsync", "flush"])
def test_rows_survive_a_failure_of_any_call(tmp_path, shim, durability):
    calls = FailingCalls(shim, tmp_path / "plan")
    with _running(tmp_path / "all.h5", "--durability", durability, env=calls.environment) as run:
        for functions, path, number in MORE_KINDS:
            _fail_for_a_while(run, calls, functions, path, number)
        for first in range(1, 40):  # one call, wherever it is
            with calls.failing("pwrite,ftruncate,fdatasync", "all.h5", errno.EIO, first=first, last=first):
                run.append(2)
                run.flush()
        run.end()


def test_rows_survive_a_full_disk(tmp_path):
    with mounted(tmp_path / "small", "24m") as folder, _running(folder / "all.h5") as run:
        run.append(20)
        ballast = folder / "ballast"
        ballast.write_bytes(bytes(16 << 20))
        run.append_until_failed("No space left")
        ballast.unlink()
        run.append(20)
        run.end()


def test_rows_survive_a_limit_of_the_file_size(tmp_path):
    with _running(tmp_path / "all.h5") as run:
        unlimited = resource.RLIM_INFINITY
        resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, (4 << 20, unlimited))
        run.append_until_failed("File too large")
        resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))
        run.end()


def test_a_collector_stopped_while_the_disk_fails_waits_for_its_clients(tmp_path, shim):
    """It ends when the disk has room again and the clients have sent the rows that they kept."""
    calls = FailingCalls(shim, tmp_path / "plan")
    with _running(tmp_path / "all.h5", "--drain", "60", env=calls.environment) as run:
        with calls.failing("pwrite", "all.h5", errno.ENOSPC):
            run.append_until_failed("(ENOSPC)")
            run.process.send_signal(signal.SIGTERM)
            eventually(lambda: "stopping" in run.log.read_text())
        assert run.process.wait(PATIENCE_S) == 0, run.log.read_text()
        run.check()
        with contextlib.suppress(CollectorError):
            run.client.close()


def test_a_clock_that_jumps_loses_no_client(tmp_path, shim):
    calls = FailingCalls(shim, tmp_path / "plan")
    with _running(tmp_path / "all.h5", env=calls.environment) as run:
        for seconds in (86_400, -86_400, 0, 1 << 30, -(1 << 30)):
            calls.step_clock(seconds)
            run.append(4)
            run.flush()
        assert "lost" not in run.log.read_text()
        run.end()
