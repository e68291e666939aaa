"""Benchmarks of appending rows to worker files, and of merging worker files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.harness import Work
from shardkeep.hdf5 import WorkerFile, merge
from shardkeep.world import World

_ROW_BYTES = 512
_RANKS = 4


def _fill(run_dir: Path, rank: int, rows: int, batch: int) -> None:
    block = np.zeros((batch, _ROW_BYTES // 4), "f4")
    with WorkerFile(run_dir, World(rank, _RANKS)) as out:
        for _ in range(rows // batch):
            out.append("rows", block)
        out.commit(step=1)


def _append(folder: Path, rows: int, batch: int) -> Callable[[], Work]:
    runs = iter(range(1_000_000))

    def run() -> Work:
        _fill(folder / f"run{next(runs)}", 0, rows, batch)
        return Work("rows", rows, rows * _ROW_BYTES)

    return run


def bench_append_one_row(folder: Path, quick: bool) -> Callable[[], Work]:
    return _append(folder, 64 if quick else 200_000, 1)


def bench_append_64_rows(folder: Path, quick: bool) -> Callable[[], Work]:
    return _append(folder, 64 if quick else 400_000, 64)


def bench_merge(folder: Path, quick: bool) -> Callable[[], Work]:
    rows = 64 if quick else 100_000
    for rank in range(_RANKS):
        _fill(folder / "run", rank, rows, 64)

    def run() -> Work:
        report = merge(folder / "run", folder / "all.h5", exists="replace")
        assert report.rows == {"rows": rows // 64 * 64 * _RANKS}
        return Work("rows", rows * _RANKS, rows * _RANKS * _ROW_BYTES)

    return run
