"""Comparison of writers of one HDF5 file for four processes: collector, plain h5py, queue with a writer.

With ``flush`` no side syncs; with ``fsync`` the collector syncs each commit, and plain h5py once at its end.
Processes, files and connections are ready before the measurement begins.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from benchmarks.comparison import Comparison
from shardkeep.collector.protocol.settings import Durability
from shardkeep.hdf5 import Collector, connect
from shardkeep.world import World

_PRODUCERS = 4
_CHUNK_ROWS = 16
_VALUES = 8192  # 32 KiB of float32 per row, one message each; 16 rows are one chunk
_ROWS = 6400
_SCALARS = 800_000
_SLOW_ROWS = 1600
_FORK = multiprocessing.get_context("fork")


def _empty(folder: Path) -> list[str]:
    """Return an empty path on the measured disk; the rows are in memory."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "empty"
    path.touch()
    return [str(path)]


def _run(producer: Any, *args: Any) -> float:
    """Run the producers; return the seconds from the first row to the end of the last producer."""
    ready, go = _FORK.Semaphore(0), _FORK.Event()
    children = [_FORK.Process(target=producer, args=(*args, rank, ready, go)) for rank in range(_PRODUCERS)]
    for child in children:
        child.start()
    for _ in children:
        ready.acquire()
    start = time.perf_counter()
    go.set()
    for child in children:
        child.join()
        assert child.exitcode == 0
    return time.perf_counter() - start


def _send(address: str, rows: int, scalar: bool, rank: int, ready: Any, go: Any) -> None:
    with connect(address, World(rank, _PRODUCERS)) as client:
        value: Any = 0.5 if scalar else np.full((1, _VALUES), rank, np.float32)
        client.append("rows", value)
        client.flush()
        ready.release()
        go.wait()
        for _ in range(rows):
            client.append("rows", value)
        client.flush()


def _collector(
    paths: list[str], *, rows: int, scalar: bool = False, durability: Durability = "flush"
) -> tuple[float, int]:
    with tempfile.TemporaryDirectory(dir=os.path.dirname(paths[0])) as folder:
        with Collector(f"{folder}/all.h5", durability=durability) as collector:
            seconds = _run(_send, collector.address, rows // _PRODUCERS, scalar)
        return seconds, rows


def _plain(paths: list[str], *, rows: int, synced: bool = False) -> tuple[float, int]:
    block = np.ones((_CHUNK_ROWS, _VALUES), np.float32)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(paths[0])) as folder:
        path = f"{folder}/rows.h5"
        start = time.perf_counter()
        with h5py.File(path, "w") as file:
            dataset = file.create_dataset(
                "rows", (rows, _VALUES), "f4", chunks=block.shape, maxshape=(None, _VALUES)
            )
            for first in range(0, rows, _CHUNK_ROWS):
                dataset[first : first + _CHUNK_ROWS] = block
        if synced:
            fd = os.open(path, os.O_RDWR)
            os.fsync(fd)
            os.close(fd)
        return time.perf_counter() - start, rows


def _put(queue: Any, rows: int, rank: int, ready: Any, go: Any) -> None:
    value = np.full((1, _VALUES), rank, np.float32)
    ready.release()
    go.wait()
    for _ in range(rows):
        queue.put(value)


def _write(queue: Any, path: str, rows: int) -> None:
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset(
            "rows", (0, _VALUES), "f4", chunks=(_CHUNK_ROWS, _VALUES), maxshape=(None, _VALUES)
        )
        for _ in range(rows):
            value = queue.get()
            dataset.resize(len(dataset) + len(value), 0)
            dataset[-len(value) :] = value


def _queue(paths: list[str], *, rows: int) -> tuple[float, int]:
    with tempfile.TemporaryDirectory(dir=os.path.dirname(paths[0])) as folder:
        queue = _FORK.Queue(64)
        writer = _FORK.Process(target=_write, args=(queue, f"{folder}/rows.h5", rows))
        writer.start()
        start = time.perf_counter()
        _run(_put, queue, rows // _PRODUCERS)
        writer.join()
        return time.perf_counter() - start, rows


def _wanted_scalars(paths: list[str]) -> tuple[float, int]:
    """Return the rate of the target, 200,000 rows a second."""
    return _SCALARS / 200_000, _SCALARS


COMPARISONS = [
    Comparison(
        "collector: 4 producers, 32 KiB rows, beside one process with plain h5py in whole chunks",
        _empty,
        partial(_collector, rows=_ROWS),
        partial(_plain, rows=_ROWS),
        0.8,
    ),
    Comparison(
        "collector, fsync: the same, both sides synced",
        _empty,
        partial(_collector, rows=_ROWS, durability="fsync"),
        partial(_plain, rows=_ROWS, synced=True),
        0.8,
    ),
    Comparison(
        "collector: the same, beside multiprocessing.Queue, resize and assign per message",
        _empty,
        partial(_collector, rows=_SLOW_ROWS),
        partial(_queue, rows=_SLOW_ROWS),
        3,
    ),
    Comparison(
        "collector: single scalars of 4 producers, beside 200,000 rows/s",
        _empty,
        partial(_collector, rows=_SCALARS, scalar=True),
        _wanted_scalars,
        1,
    ),
]
