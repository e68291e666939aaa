"""Comparison of merging HDF5 files with ``cat``, with decoding and encoding, and with a time limit."""

from __future__ import annotations

import os
import subprocess
import time
from functools import partial
from pathlib import Path

import h5py
import numpy as np

from benchmarks.comparison import Comparison
from shardkeep.hdf5 import WorkerFile, merge
from shardkeep.world import World

_FILES = 64
_SEGMENTS = 4000
_VIRTUAL_S = 3.0


def _gzip_files(folder: Path, *, rows: int, chunk_rows: int) -> list[str]:
    """Make files of float32 rows of 512 bytes, rounded so that they compress to about 70 %."""
    home = folder / f"gzip-{rows}-{chunk_rows}"
    paths = [str(home / f"{i:03d}.h5") for i in range(_FILES)]
    if not os.path.exists(paths[-1]):
        home.mkdir(parents=True, exist_ok=True)
        block = np.round(np.random.default_rng(0).standard_normal((rows, 128)), 2).astype("f4")
        for path in paths:
            with h5py.File(path, "w") as file:
                options = {"compression": "gzip", "compression_opts": 1, "shuffle": True}
                file.create_dataset("x", data=block, chunks=(chunk_rows, 128), **options)
    return paths


def _segments(folder: Path) -> list[str]:
    run = folder / "segments-4000"
    if not run.exists():
        ranks = 40
        for rank in range(ranks):
            with WorkerFile(run, World(rank, ranks), durable=False) as out:
                for step in range(_SEGMENTS // ranks):
                    out.append("x", np.full((25, 8), rank * 1000 + step, "f4"))
                    out.commit(step=step)
    return [str(run)]


def _result(paths: list[str]) -> str:
    path = os.path.join(os.path.dirname(os.path.abspath(paths[0])), "..", "merged.out")
    if os.path.exists(path):
        os.unlink(path)
    return path


def _merged(paths: list[str], *, mode: str = "copy") -> tuple[float, int]:
    output = _result(paths)
    start = time.perf_counter()
    report = merge(paths if len(paths) > 1 else paths[0], output, mode=mode)  # type: ignore[call-overload]
    return time.perf_counter() - start, len(report.sources)


def _cat(paths: list[str]) -> tuple[float, int]:
    output = _result(paths)
    start = time.perf_counter()
    with open(output, "wb") as file:
        subprocess.run(["cat", *paths], stdout=file, check=True)
        os.fsync(file.fileno())
    return time.perf_counter() - start, len(paths)


def _decoded_and_encoded(paths: list[str]) -> tuple[float, int]:
    """Merge a quarter of the files, because this peer is slow."""
    output = _result(paths)
    start = time.perf_counter()
    part = paths[: len(paths) // 4]
    with h5py.File(output, "w") as file:
        result: h5py.Dataset | None = None
        for path in part:
            with h5py.File(path) as source:
                rows = source["x"][:]
                if result is None:
                    options = {"compression": "gzip", "compression_opts": 1, "shuffle": True}
                    shape = (0, *rows.shape[1:])
                    result = file.create_dataset(
                        "x", shape, rows.dtype, maxshape=(None, 128), chunks=source["x"].chunks, **options
                    )
                result.resize(len(result) + len(rows), 0)
                result[-len(rows) :] = rows
    with open(output, "rb") as written:
        os.fsync(written.fileno())
    return time.perf_counter() - start, len(part)


def _limit(paths: list[str]) -> tuple[float, int]:
    """Return a fixed time, for a comparison without a peer."""
    return _VIRTUAL_S, _SEGMENTS


_LARGE = partial(_gzip_files, rows=8192, chunk_rows=1024)
_SMALL = partial(_gzip_files, rows=2048, chunk_rows=128)

COMPARISONS = [
    Comparison("64 files, chunks of 512 KiB in gzip, beside cat and fsync", _LARGE, _merged, _cat, 0.7),
    Comparison("64 files, chunks of 64 KiB in gzip, beside cat and fsync", _SMALL, _merged, _cat, 0.7),
    Comparison(
        "64 files of gzip chunks, beside decoding and encoding", _LARGE, _merged, _decoded_and_encoded, 20
    ),
    Comparison(
        "virtual merge of 4,000 files, beside a limit of 3 s",
        _segments,
        partial(_merged, mode="virtual"),
        _limit,
        1,
    ),
]
