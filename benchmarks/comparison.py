"""What a comparison is, and how one is measured: this library and a peer in turns, on the same files."""

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
    """One row: our job and a peer's on one workload; `wanted` is the ratio that is wanted.

    Attributes
    ----------
    workload
        A name in ``workloads.py``, or a function that makes the files in a folder and returns their paths.
    ours
        Called with the paths; returns the units (records, rows) that it did, or (seconds, units) if it
        times itself; 0 for the whole of the workload, by whatever it is counted.
    peer
        The same, run in this process; or the name of a job of the peers' processes.
    wanted
        Of "speed": how many times as fast ours is to be. Of "memory": how many times as much the peer's
        process may take at its peak; both sides then run once, in processes of their own. Of "latency": as
        of "speed", but what counts is when something is there, and milliseconds are told.
    """

    name: str
    workload: str | Callable[[Path], list[str]]
    ours: Job
    peer: str | Job
    wanted: float
    peer_argument: int = 0
    of: Literal["speed", "latency", "memory"] = "speed"


@dataclass(frozen=True)
class Row:
    """What came out of one comparison, ready to print."""

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
    """Yield (subject, comparison) of every ``compare_<subject>.py`` whose subject or name has `wanted`."""
    for path in sorted(HERE.glob("compare_*.py")):
        subject = path.stem.removeprefix("compare_")
        for comparison in importlib.import_module(f"benchmarks.{path.stem}").COMPARISONS:
            if wanted in comparison.name or wanted == subject:
                yield subject, comparison


class Peers:
    """The processes in which peers run, started when they are first asked.

    TensorFlow and vahidk's tfrecord are in the interpreter that SHARDKEEP_TF_PYTHON names, or in
    ``.venv-tf`` (``make frameworks``; add the package ``tfrecord`` to it by hand). PyTorch, with ``tfrecord``
    and Pillow, is in the one that SHARDKEEP_TORCH_PYTHON names, or in ``.venv-torch``.
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
        """Return the peak memory of a process that did nothing but this job."""
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
    return {"vahidk": "vahidk_peer", "torch": "torch_peer"}.get(job.split()[0], "tensorflow_peer")


def _python_of(module: str) -> str:
    name, folder = ("TORCH", "torch") if module == "torch_peer" else ("TF", "tf")
    return os.environ.get(f"SHARDKEEP_{name}_PYTHON", str(HERE.parent / f".venv-{folder}/bin/python"))


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
    """Make the files, let both sides do their job, and return what came out."""
    if callable(comparison.workload):
        paths = comparison.workload(folder)
    else:
        paths = workloads.make(folder, comparison.workload, scale=scale)
    if comparison.of == "memory":
        return _memory(comparison, peers, paths)
    ours, theirs, ratios = [], [], []
    units = 0
    for turn in range(rounds + 1):
        mine, units = _timed(comparison.ours, paths)
        if callable(comparison.peer):
            other, done = _timed(comparison.peer, paths)
        else:
            other, done = peers.run(comparison.peer, paths, comparison.peer_argument)
        if done:
            other *= units / done  # a peer that is slow does fewer
        if turn:  # the first turn warms the page cache and everybody's code up
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


def _timed(job: Job, paths: list[str]) -> tuple[float, int]:
    start = time.perf_counter()
    done = job(paths)
    return done if isinstance(done, tuple) else (time.perf_counter() - start, done)


def _speed(seconds: float, units: int, size: int) -> str:
    told = f"{units / seconds:,.0f}/s"
    return f"{told} ({size / seconds / 1e6:,.0f} MB/s)" if size else told


def _memory(comparison: Comparison, peers: Peers, paths: list[str]) -> Row:
    ours = _peak_of(comparison.ours, paths)
    if callable(comparison.peer):
        theirs = _peak_of(comparison.peer, paths)
    else:
        theirs = peers.peak_bytes(comparison.peer, paths, comparison.peer_argument)
    told = [f"{size / 2**20:,.0f} MiB" for size in (ours, theirs)]
    return Row(comparison.name, told[0], told[1], theirs / ours, "", comparison.wanted)


def _peak_of(job: Job, paths: list[str]) -> int:
    """Return the peak memory of a fresh process that does `job`."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    # Spawned: a forked child would begin with the peak of its parent. It imports the module of `job`,
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
