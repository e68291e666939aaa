"""Curves: how costs grow with files, records, ranks, clients and processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import collector_scale, merge_many, plan_scale
from benchmarks.measure import Program
from benchmarks.workloads import many_shards

__all__ = ["CURVES", "Curve", "find", "measure"]

_RECORDS = 1_000_000


@dataclass(frozen=True)
class Curve:
    """Costs at several values of an axis.

    Attributes
    ----------
    costs
        A function of a folder for files, a value and a part of the records. It returns costs; their names end
        with units.
    rounds
        How often each value is measured at most.
    """

    name: str
    title: str
    axis: str
    values: tuple[int, ...]
    costs: Callable[[Path, int, float], dict[str, float]]
    rounds: int = 1


def measure(
    curve: Curve, folder: Path, *, rounds: int, scale: float = 1.0, most: int | None = None, tell: Any = None
) -> dict[str, Any]:
    """Return the section of a curve, with at most `most` values; call `tell` with it after each value."""
    section: dict[str, Any] = {"title": curve.title, "axis": curve.axis, "values": [], "costs": {}}
    for value in curve.values[:most]:
        section["values"].append(value)
        found = [curve.costs(folder, value, scale) for _ in range(min(rounds, curve.rounds))]
        for name in found[0]:
            section["costs"].setdefault(name, []).append([costs[name] for costs in found])
        if tell is not None:
            tell(section)
    return section


def _shards(folder: Path, scale: float, *, files: int, records: int) -> list[str]:
    return many_shards(folder, files / 10_000, max(int(records * scale) // files, 1))


def _files(folder: Path, files: int, scale: float) -> dict[str, float]:
    return _epoch(_shards(folder, scale, files=files, records=60_000))


def _records(folder: Path, records: int, scale: float) -> dict[str, float]:
    return _epoch(_shards(folder, scale, files=8, records=records))


def _epoch(files: list[str]) -> dict[str, float]:
    """Return the costs of one reader of these files, whose index exists."""
    jobs = {
        "raw": "epoch in order, s",
        "shuffled": "epoch shuffled, s",
        "resume": "first batch after a restart, s",
    }
    with closing(Program("peers.ours")) as program:
        peak = max(program.peak_of(job, files, 256)["peak_bytes"] for job in jobs)
        costs = {name: program.ask(job, files, 256)["seconds"] for job, name in jobs.items()}
    return costs | {"memory, MiB": peak / 2**20}


def _readers(folder: Path, readers: int, scale: float) -> dict[str, float]:
    """Return the costs of an epoch that the ranks of one host read together."""
    files = _shards(folder, scale, files=8, records=_RECORDS)
    jobs = [f"rank {rank} of {readers}" for rank in range(readers)]
    with ExitStack() as stack, ThreadPoolExecutor(readers) as threads:
        programs = [stack.enter_context(closing(Program("peers.ours"))) for _ in jobs]
        first = list(threads.map(lambda one, job: one.peak_of(job, files, 256), programs, jobs))
        then = list(threads.map(lambda one, job: one.ask(job, files, 256), programs, jobs))
    return {
        "epoch shuffled, s": max(one["seconds"] for one in then),
        "processor time of all, s": sum(one["processor_s"] for one in then),
        "memory of all, MiB": sum(one["peak_bytes"] for one in first) / 2**20,
    }


def _of_training(
    costs: Callable[[plan_scale.Scale], dict[str, float]], folder: Path, ranks: int, scale: float
) -> dict[str, float]:
    return costs(next(one for one in plan_scale.SCALES if one.ranks == ranks))


def _merged(folder: Path, ranks: int, scale: float) -> dict[str, float]:
    costs = {}
    for command, (seconds, peak) in merge_many.measured(ranks, 50).items():
        costs |= {f"{command}, s": seconds, f"{command}, MiB": peak / 2**20}
    return costs


def _clients(folder: Path, clients: int, scale: float, *, tcp: bool) -> dict[str, float]:
    found = collector_scale.measured(clients, tcp=tcp)
    return {
        "all have joined, s": found["joined_s"],
        "a row, µs": 1e6 / found["rows_per_s"],
        "flush, median, s": found["median_s"],
        "flush, longest, s": found["longest_s"],
        "longest silence, s": found["silence_s"],
        "memory, MiB": found["peak_bytes"] / 2**20,
        "descriptors": found["descriptors"],
        "processor time, s": found["processor_s"],
    }


CURVES = [
    Curve(
        "curve files",
        "More files: the same 60,000 records of 1.7 KB, in batches of 256",
        "files",
        (10, 100, 1_000, 10_000),
        _files,
        3,
    ),
    Curve(
        "curve records",
        "More records: 8 files of records of 1.7 KB, in batches of 256",
        "records",
        (1_000, 10_000, 100_000, _RECORDS),
        _records,
        3,
    ),
    Curve(
        "curve readers",
        "More processes: the ranks of one host read 1,000,000 records of 1.7 KB together, all mixed with all",
        "readers",
        (1, 2, 4, 8),
        _readers,
        3,
    ),
    *(
        Curve(
            f"curve {name}",
            f"More ranks: {title}; 1,000 to 1,000,000 shards with 10^7 to 10^10 records",
            "ranks",
            tuple(scale.ranks for scale in plan_scale.SCALES),
            partial(_of_training, costs),
        )
        for name, title, costs in (
            ("plans", "plans of an epoch, and receipts", plan_scale.plans),
            ("audits", "audits of an epoch with kills and resizes", plan_scale.audits),
        )
    ),
    Curve(
        "curve merge",
        "More worker files: merge and verify of ranks with 50 datasets of 20 rows each",
        "ranks",
        (20, 200, 2_000),
        _merged,
    ),
    *(
        Curve(
            f"curve {name}",
            f"More clients of a collector{title}: 5 batches of 10 rows each",
            "clients",
            (100, 1_000, 10_000),
            partial(_clients, tcp=name == "tcp clients"),
        )
        for name, title in (("clients", ""), ("tcp clients", " over TCP, with a key"))
    ),
]


def find(wanted: str = "") -> Iterator[Curve]:
    """Yield the curves whose names begin with `wanted`."""
    return (curve for curve in CURVES if curve.name.startswith(wanted))
