"""Harness that finds the benchmarks, runs each several times, and reports the median."""

from __future__ import annotations

import importlib
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Benchmark", "Result", "Work", "find", "machine", "measure"]

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Work:
    """Work of one call: number of `unit`, and bytes of payload."""

    unit: str
    items: int
    payload_bytes: int


Benchmark = Callable[[Path, bool], Callable[[], Work]]


@dataclass(frozen=True)
class Result:
    """The median of several calls of one benchmark."""

    name: str
    unit: str
    items_per_s: float
    payload_bytes_per_s: float
    seconds: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as types that JSON supports."""
        return asdict(self)


def find(wanted: str = "") -> Iterator[tuple[str, Benchmark]]:
    """Yield the benchmarks whose name contains `wanted`, by name."""
    for path in sorted(HERE.glob("bench_*.py")):
        module = importlib.import_module(f"benchmarks.{path.stem}")
        for name, function in sorted(vars(module).items()):
            full = f"{path.stem.removeprefix('bench_')}.{name.removeprefix('bench_')}"
            if name.startswith("bench_") and wanted in full:
                yield full, function


def measure(name: str, benchmark: Benchmark, *, quick: bool = False) -> Result:
    """Make the input, warm up once, and measure; `quick` measures one call on tiny input."""
    with tempfile.TemporaryDirectory() as folder:
        call = benchmark(Path(folder), quick)
        work = call()
        seconds = []
        for _ in range(1 if quick else 5):
            start = time.perf_counter()
            work = call()
            seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds)
    return Result(name, work.unit, work.items / median, work.payload_bytes / median, tuple(seconds))


def machine() -> dict[str, Any]:
    """Return a description of the machine."""
    import h5py
    import numpy as np

    from shardkeep import _core

    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "h5py": h5py.__version__,
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "core": Path(_core.__file__).name,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "")
