"""Comparisons of Shardkeep and a peer, which run alternately on the same files."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks import workloads
from benchmarks.harness import HERE

__all__ = ["Comparison", "Job", "Peers", "Row", "find", "measure"]

Done = int | tuple[float, int]
Job = Callable[[list[str]], Done]


@dataclass(frozen=True)
class Comparison:
    """A comparison of two jobs on one workload.

    Attributes
    ----------
    workload
        A name in ``workloads.py``, or a function that makes files in a folder and returns their paths.
    ours
        Function of Shardkeep's side. Called with the paths, it returns the number of units (records, rows),
        or (seconds, units) if it measures its own time; 0 units mean the whole workload. An adapter runs in
        the process of its framework: the name of a job there.
    peer
        Function of the peer's side in this process, or the name of a job of a peer process.
    wanted
        Target ratio. For "speed": speed of Shardkeep to speed of the peer. For "memory": peak memory of the
        peer's process to that of Shardkeep's; both run once, in separate processes. For "latency": as
        "speed", but for the time to a result, shown in milliseconds.
    """

    name: str
    workload: str | Callable[[Path], list[str]]
    ours: str | Job
    peer: str | Job
    wanted: float
    peer_argument: int = 0
    of: Literal["speed", "latency", "memory"] = "speed"


@dataclass(frozen=True)
class Row:
    """Result of one comparison, for the table."""

    name: str
    ours: str
    peer: str
    ratio: float
    spread: str
    wanted: float

    def __str__(self) -> str:
        met = "yes" if self.ratio >= self.wanted else "no"
        told = f"{self.ratio:.2f} {self.spread}".strip()
        return f"| {self.name} | {self.ours} | {self.peer} | {told} | {self.wanted:g} | {met} |"


def find(wanted: str = "") -> Iterator[tuple[str, Comparison]]:
    """Yield (subject, comparison) of each ``compare_<subject>.py`` with `wanted` in subject or name."""
    for path in sorted(HERE.glob("compare_*.py")):
        subject = path.stem.removeprefix("compare_")
        for comparison in importlib.import_module(f"benchmarks.{path.stem}").COMPARISONS:
            if wanted in comparison.name or wanted == subject:
                yield subject, comparison


class Peers:
    """The processes of the peers, started at their first job.

    TensorFlow and vahidk's tfrecord are in the interpreter that SHARDKEEP_TF_PYTHON names, or in
    ``.venv-tf`` (``make frameworks``; add the package ``tfrecord`` to it by hand). PyTorch, with ``tfrecord``
    and Pillow, is in the one that SHARDKEEP_TORCH_PYTHON names, or in ``.venv-torch``; JAX and Grain
    likewise in SHARDKEEP_JAX_PYTHON or ``.venv-jax``.
    """

    def __init__(self) -> None:
        self._running: dict[str, _Peer] = {}

    def run(self, job: str, paths: list[str], argument: int) -> tuple[float, int]:
        """Return the seconds that a job took, and its units."""
        module = _module_of(job)
        if module not in self._running:
            self._running[module] = _Peer(module)
        seconds, units, _ = self._running[module].ask(job, paths, argument)
        return seconds, units

    def peak_bytes(self, job: str, paths: list[str], argument: int) -> int:
        """Return the peak memory of a process that ran only this job."""
        alone = _Peer(_module_of(job))
        try:
            return alone.ask(job, paths, argument)[2]
        finally:
            alone.close()

    def versions(self) -> dict[str, str]:
        """Return the versions of the peers that ran."""
        return {name: version for peer in self._running.values() for name, version in peer.versions.items()}

    def close(self) -> None:
        """End the processes."""
        for peer in self._running.values():
            peer.close()


def _module_of(job: str) -> str:
    modules = {
        "adapter": "tensorflow_adapter_peer",
        "jax": "jax_peer",
        "torch": "torch_peer",
        "vahidk": "vahidk_peer",
    }
    return modules.get(job.split()[0], "tensorflow_peer")


def _python_of(module: str) -> str:
    name = {"jax_peer": "jax", "torch_peer": "torch", "vahidk_peer": "torch"}.get(module, "tf")
    return os.environ.get(f"SHARDKEEP_{name.upper()}_PYTHON", str(HERE.parent / f".venv-{name}/bin/python"))


class _Peer:
    def __init__(self, module: str) -> None:
        self._process = subprocess.Popen(
            [_python_of(module), "-m", f"benchmarks.{module}"],
            cwd=HERE.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.versions: dict[str, str] = self._answer()

    def ask(self, job: str, paths: list[str], argument: int) -> tuple[float, int, int]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([job, paths, argument]) + "\n")
        self._process.stdin.flush()
        seconds, units, peak_bytes = self._answer()
        return float(seconds), int(units), int(peak_bytes)

    def close(self) -> None:
        self._process.communicate(timeout=30)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a peer's process died: are its packages installed there? See `Peers`.")
        return json.loads(line)


def measure(comparison: Comparison, peers: Peers, folder: Path, *, rounds: int, scale: float) -> Row:
    """Make the files, run both sides, and return the result."""
    if callable(comparison.workload):
        paths = comparison.workload(folder)
    else:
        paths = workloads.make(folder, comparison.workload, scale=scale)
    if comparison.of == "memory":
        return _memory(comparison, peers, paths)
    ours, theirs, ratios = [], [], []
    units = 0
    for turn in range(rounds + 1):
        mine, units = _timed(comparison.ours, paths, comparison, peers)
        other, done = _timed(comparison.peer, paths, comparison, peers)
        if done:
            other *= units / done  # slow peers run fewer times
        if turn:  # the first run warms the page cache and the code of both sides
            ours.append(mine)
            theirs.append(other)
            ratios.append(other / mine)
    if comparison.of == "latency":
        mine_told, their_told = (f"{statistics.median(side) * 1e3:,.1f} ms" for side in (ours, theirs))
    else:
        size = sum(os.path.getsize(path) for path in paths)
        mine_told, their_told = (_speed(statistics.median(side), units, size) for side in (ours, theirs))
    spread = f"({min(ratios):.2f}–{max(ratios):.2f})"
    return Row(comparison.name, mine_told, their_told, statistics.median(ratios), spread, comparison.wanted)


def _timed(job: str | Job, paths: list[str], comparison: Comparison, peers: Peers) -> tuple[float, int]:
    if isinstance(job, str):
        return peers.run(job, paths, comparison.peer_argument)
    start = time.perf_counter()
    done = job(paths)
    return done if isinstance(done, tuple) else (time.perf_counter() - start, done)


def _speed(seconds: float, units: int, size: int) -> str:
    told = f"{units / seconds:,.0f}/s"
    return f"{told} ({size / seconds / 1e6:,.0f} MB/s)" if size else told


def _memory(comparison: Comparison, peers: Peers, paths: list[str]) -> Row:
    ours, theirs = (
        peers.peak_bytes(job, paths, comparison.peer_argument)
        if isinstance(job, str)
        else _peak_of(job, paths)
        for job in (comparison.ours, comparison.peer)
    )
    told = [f"{size / 2**20:,.0f} MiB" for size in (ours, theirs)]
    return Row(comparison.name, told[0], told[1], theirs / ours, "", comparison.wanted)


def _peak_of(job: Job, paths: list[str]) -> int:
    """Return the peak memory of a fresh process that does `job`."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    # Spawned, because a forked child begins with the peak of its parent. It imports the module of `job`,
    # which therefore has to be a function of a module, or a partial of one.
    child = multiprocessing.get_context("spawn").Process(target=_tell_peak, args=(job, paths, sender))
    child.start()
    peak = int(receiver.recv())
    child.join()
    return peak


def _tell_peak(job: Job, paths: list[str], sender: Any) -> None:
    job(paths)
    status = Path("/proc/self/status").read_text(encoding="ascii")
    sender.send(int(status.partition("VmHWM:")[2].split()[0]) * 1024)
