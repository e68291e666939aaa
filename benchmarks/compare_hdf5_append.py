"""Comparison of appending rows to a worker file with plain h5py (resize and assign), with commit and flush.

No side syncs, so the comparison is of the work on rows and not of the disk.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from benchmarks.comparison import Comparison, Job
from shardkeep.hdf5 import WorkerFile
from shardkeep.world import World

_CHUNK_BYTES = 512 * 1024


def _empty(folder: Path) -> list[str]:
    """Return an empty path on the measured disk; the rows are in memory."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "empty"
    path.touch()
    return [str(path)]


def _rows(count: int, values: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).random((count, values) if values else count, np.float32)


def _ours(paths: list[str], *, rows: int, calls: int, values: int, **options: Any) -> tuple[float, int]:
    block = _rows(rows, values)
    with (
        tempfile.TemporaryDirectory(dir=os.path.dirname(paths[0])) as folder,
        WorkerFile(folder, World(0, 1), durable=False, **options) as out,
    ):
        start = time.perf_counter()
        for _ in range(calls):
            out.append("rows", block)
        out.commit(step=1)
        return time.perf_counter() - start, rows * calls


def _plain(paths: list[str], *, rows: int, calls: int, values: int, **options: Any) -> tuple[float, int]:
    block = _rows(rows, values)
    shape = block.shape[1:]
    chunks = (max(1, _CHUNK_BYTES // block[0].nbytes), *shape)
    with (
        tempfile.TemporaryDirectory(dir=os.path.dirname(paths[0])) as folder,
        h5py.File(f"{folder}/rows.h5", "w") as file,
    ):
        dataset = file.create_dataset(
            "rows", shape=(0, *shape), maxshape=(None, *shape), chunks=chunks, dtype="f4", **options
        )
        start = time.perf_counter()
        for i in range(calls):
            dataset.resize((i + 1) * rows, 0)
            dataset[i * rows :] = block
        file.flush()
        return time.perf_counter() - start, rows * calls


def _pair(rows: int, calls: int, plain_calls: int, values: int = 128) -> tuple[Callable[..., Any], Job]:
    ours = partial(_ours, rows=rows, calls=calls, values=values)
    return ours, partial(_plain, rows=rows, calls=plain_calls, values=values)


_ONE = _pair(1, 200_000, 3_000)
_SCALAR = _pair(1, 300_000, 3_000, values=0)
_SOME = _pair(64, 5_000, 2_000)
_CHUNK = _pair(1024, 400, 400)

COMPARISONS = [
    Comparison("512-byte rows, one a call, beside resize and assign", _empty, *_ONE, 100),
    Comparison("4-byte scalars, one a call, beside resize and assign", _empty, *_SCALAR, 100),
    Comparison("512-byte rows, 64 a call, beside resize and assign", _empty, *_SOME, 2),
    Comparison("512-byte rows, 1,024 a call, beside whole chunks of h5py", _empty, *_CHUNK, 1),
    Comparison(
        "512-byte rows, 1,024 a call, gzip 4 with shuffle, beside the same of h5py",
        _empty,
        partial(_ours, rows=1024, calls=20, values=128, compression="gzip"),
        partial(
            _plain, rows=1024, calls=20, values=128, compression="gzip", compression_opts=4, shuffle=True
        ),
        0.9,
    ),
]
