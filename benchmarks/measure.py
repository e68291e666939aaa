"""Measurement of a table: Shardkeep and a peer take turns, each in a separate process."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks import ROOT, workloads
from benchmarks.environments import NotInstalledError, python_of
from benchmarks.peer_loop import descendants

__all__ = ["Peer", "Program", "Row", "Side", "Table", "measure"]

_SILENT_S = 120
_ROUND_S = 1.5  # a slower peer does a part of the records only


@dataclass(frozen=True)
class Peer:
    """A row of a table: the program and job of a peer, or why it has none."""

    label: str
    job: str
    wanted: float = 0.0


@dataclass(frozen=True)
class Table:
    """A workload of Shardkeep and of its peers.

    Attributes
    ----------
    files
        A name in ``workloads.py``, or a function that makes a part of the files in a folder and returns
        their paths.
    ours
        Program and job of Shardkeep's side, such as "peers.ours raw".
    peers
        Rows. A job without a blank is the reason for which the peer has none.
    batch
        Argument of all jobs.
    by
        Whether speed, processor time or the time to a first result is compared.
    """

    name: str
    title: str
    files: str | Callable[[Path, float], list[str]]
    ours: str
    peers: tuple[Peer, ...]
    batch: int = 256
    by: Literal["speed", "processor", "latency"] = "speed"


@dataclass
class Side:
    """Rounds of one side of a row."""

    seconds: list[float] = field(default_factory=list)
    units: list[int] = field(default_factory=list)
    processor_s: list[float] = field(default_factory=list)
    peak_bytes: int = 0

    def add(self, answer: dict[str, Any]) -> None:
        self.seconds.append(answer["seconds"])
        self.units.append(answer["units"])
        self.processor_s.append(answer["processor_s"])

    def each(self, by: str) -> list[float]:
        """Return the seconds of each round for one unit."""
        spent = self.processor_s if by == "processor" else self.seconds
        return [seconds / units for seconds, units in zip(spent, self.units, strict=True)]


@dataclass
class Row:
    """Result of one peer, or the reason for which there is none."""

    table: Table
    peer: Peer
    ours: Side
    theirs: Side
    size: float = 0.0  # bytes of a record
    versions: dict[str, str] = field(default_factory=dict)
    reason: str = ""

    @property
    def ratios(self) -> list[float]:
        """How many times as good Shardkeep is in each round, in increasing order."""
        by = self.table.by
        pairs = zip(self.ours.each(by), self.theirs.each(by), strict=True)
        return sorted(other / mine for mine, other in pairs)

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)


class Program:
    """A process that does jobs on command.

    Raises
    ------
    NotInstalledError
        If its environment is not complete, or the process ends without an answer.
    """

    def __init__(self, module: str, *, python: str = "", source: Path = ROOT / "src") -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        self._process = subprocess.Popen(
            [python or python_of(module), "-m", f"benchmarks.{module}"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(source)},
        )
        try:
            self.versions: dict[str, str] = self._answer()["READY"]
        except NotInstalledError:
            self.close()
            raise

    def ask(self, job: str, files: list[str], batch: int, most: int = 0) -> dict[str, Any]:
        """Return the answer of a job; see `peer_loop.serve`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([job, files, batch, most]).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._answer()
        if "error" in answer:
            raise NotInstalledError(answer["error"])
        return answer

    def peak_of(self, job: str, files: list[str], batch: int, most: int = 0) -> dict[str, Any]:
        """Return the answer of a job with the peak of memory of the process and of its children."""
        peak, done = 0, threading.Event()

        def sample() -> None:
            nonlocal peak
            wait_s = 0.005
            while not done.wait(wait_s):
                start = time.perf_counter()
                peak = max(peak, sum(map(_memory_bytes, descendants(self._process.pid))))
                wait_s = max(0.005, 20 * (time.perf_counter() - start))

        sampler = threading.Thread(target=sample)
        sampler.start()
        try:
            answer = self.ask(job, files, batch, most)
        finally:
            done.set()
            sampler.join()
        return {**answer, "peak_bytes": max(peak, _memory_bytes(self._process.pid))}

    def close(self) -> None:
        """End the process and its children."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self._errors.close()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        ready = select.select([self._process.stdout], [], [], _SILENT_S)[0]
        line = self._process.stdout.readline() if ready else b""
        if line:
            return json.loads(line)
        self._errors.seek(0)
        told = self._errors.read().decode(errors="replace").strip().splitlines() or ["it ended"]
        raise NotInstalledError(told[-1][:300] if ready else f"no answer in {_SILENT_S} s")


def measure(
    table: Table, folder: Path, *, rounds: int = 5, scale: float = 1.0, only: str = ""
) -> Iterator[Row]:
    """Make the files and yield a row for each peer, in the order of the table."""
    if callable(table.files):
        files = table.files(folder, scale)
    else:
        files = workloads.make(folder, table.files, scale=scale)
    module, job = table.ours.split(" ", 1)
    ours = Program(module)
    size = 0.0
    if isinstance(table.files, str):
        size = sum(map(os.path.getsize, files)) / max(int(workloads.RECORDS[table.files] * scale), 8)
    first = ours.peak_of(job, files, table.batch)  # also warms the page cache and the code
    for peer in table.peers:
        if only in peer.label:
            mine = Side(peak_bytes=first["peak_bytes"])
            row = Row(table, peer, mine, Side(), size, dict(ours.versions))
            try:
                _turns(row, ours, files, first["units"], rounds)
            except NotInstalledError as error:
                row.reason = str(error)
            yield row
    ours.close()


def _turns(row: Row, ours: Program, files: list[str], units: int, rounds: int) -> None:
    """Add the rounds of both sides to a row; the sides take turns to be the first."""
    table = row.table
    if not row.peer.job.startswith(("peers.", "hdf5.", "adapters.")):
        raise NotInstalledError(row.peer.job)
    module, job = row.peer.job.split(" ", 1)
    program = Program(module)
    row.versions |= program.versions
    try:
        own_files = program.ask("prepare", files, table.batch)["files"]
        warm = program.peak_of(job, own_files, table.batch, max(units // 8, 1))
        row.theirs.peak_bytes = warm["peak_bytes"]
        most = int(warm["units"] / warm["seconds"] * _ROUND_S)
        most = 0 if most >= units else max(most, 1)
        for turn in range(rounds):
            for is_ours in (turn % 2 == 0, turn % 2 == 1):
                if is_ours:
                    row.ours.add(ours.ask(table.ours.split(" ", 1)[1], files, table.batch))
                else:
                    row.theirs.add(program.ask(job, own_files, table.batch, most))
    finally:
        program.close()


def _memory_bytes(pid: int) -> int:
    """Return the proportional share of a process in the memory that it maps."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0
