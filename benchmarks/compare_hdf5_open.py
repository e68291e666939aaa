"""Comparison of `hdf5.open` with plain h5py: open, rows, datasets, and a virtual file of 4,000 sources."""

from __future__ import annotations

import functools
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import shardkeep as sk
from benchmarks.comparison import Comparison, Job

_SOURCES = 4_000
_SOURCE_ROWS = 64
_ROWS = 65_536


def _one(folder: Path) -> list[str]:
    path = folder / "open-one.h5"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with h5py.File(path, "w") as file:
            file["x"] = np.zeros((_ROWS, 128), "f4")
    return [str(path)]


def _virtual(folder: Path) -> list[str]:
    """Make a virtual file, and a plain file with the same rows."""
    run = folder / "open-sources"
    virtual, plain = folder / "open-merged.h5", folder / "open-plain.h5"
    if not (plain.exists() and virtual.exists()):
        run.mkdir(parents=True, exist_ok=True)
        rows = np.zeros((_SOURCE_ROWS, 128), "f4")
        for number in range(_SOURCES):
            with h5py.File(run / f"{number:04}.h5", "w", libver="latest") as file:
                file["x"] = rows + number
        time.sleep(0.2)  # as after the end of a run, because a merge inspects recently changed files again
        sk.hdf5.merge(str(run / "*.h5"), virtual, mode="virtual", exists="replace")
        with h5py.File(plain, "w") as file:
            file["x"] = np.repeat(np.arange(_SOURCES, dtype="f4"), _SOURCE_ROWS)[:, None] + np.zeros(
                128, "f4"
            )
    return [str(virtual), str(plain)]


def _opened(paths: list[str], *, opener: Callable[..., Any]) -> int:
    for _ in range(200):
        with opener(paths[0]):
            pass
    return 200


def _first_row(paths: list[str], *, opener: Callable[..., Any]) -> int:
    for _ in range(200):
        with opener(paths[0]) as file:
            file["x"][5]
    return 200


def _sliced(paths: list[str], *, opener: Callable[..., Any], rows: int) -> tuple[float, int]:
    with opener(paths[0]) as file:
        dataset = file["x"]
        starts = range(0, min(_ROWS, 5_000 * rows), rows)
        begin = time.perf_counter()
        for start in starts:
            dataset[start : start + rows]
        return time.perf_counter() - begin, len(starts)


def _whole(paths: list[str], *, opener: Callable[..., Any]) -> int:
    with opener(paths[0]) as file:
        return len(file["x"][:])


def _whole_plain(paths: list[str]) -> int:
    with h5py.File(paths[1]) as file:
        return len(file["x"][:])


def _whole_first(paths: list[str], *, opener: Callable[..., Any], at: int = 0) -> tuple[float, int]:
    """Open and read a file in a new process, which measures its own time."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=_tell_whole, args=(paths[at], opener, sender))
    child.start()
    seconds, rows = receiver.recv()
    child.join()
    return float(seconds), int(rows)


def _tell_whole(path: str, opener: Callable[..., Any], sender: Any) -> None:
    begin = time.perf_counter()
    rows = _whole([path], opener=opener)
    sender.send((time.perf_counter() - begin, rows))


def _random(paths: list[str], *, opener: Callable[..., Any], at: int = 0) -> tuple[float, int]:
    numbers = np.random.default_rng(0).integers(0, _SOURCES * _SOURCE_ROWS, 500).tolist()
    with opener(paths[at]) as file:
        dataset = file["x"]
        begin = time.perf_counter()
        for number in numbers:
            dataset[number]
        return time.perf_counter() - begin, len(numbers)


def _both(job: Callable[..., Any], **options: Any) -> tuple[Job, Job]:
    ours = functools.partial(job, opener=sk.hdf5.open, **options)
    return ours, functools.partial(job, opener=h5py.File, **options)


COMPARISONS = [
    Comparison("hdf5.open and close, beside h5py.File", _one, *_both(_opened), 0.5),
    Comparison("hdf5.open, one row, close, beside h5py.File", _one, *_both(_first_row), 0.5),
    Comparison("one row from an open file, beside h5py", _one, *_both(_sliced, rows=1), 0.5),
    Comparison("1,024 rows from an open file, beside h5py", _one, *_both(_sliced, rows=1024), 0.5),
    Comparison("a whole dataset, beside h5py", _one, *_both(_whole), 0.5),
    Comparison(
        "virtual file of 4,000 sources, opened and read whole, beside a plain one",
        _virtual,
        _both(_whole)[0],
        _whole_plain,
        0.5,
    ),
    Comparison(
        "virtual file of 4,000 sources, opened and read whole, beside h5py on it",
        _virtual,
        *_both(_whole),
        0.5,
    ),
    Comparison(
        "the same in processes that opened nothing before, beside a plain one",
        _virtual,
        functools.partial(_whole_first, opener=sk.hdf5.open),
        functools.partial(_whole_first, opener=h5py.File, at=1),
        0.5,
    ),
    Comparison(
        "500 random rows of 4,000 sources, beside h5py on a plain file",
        _virtual,
        _both(_random)[0],
        functools.partial(_random, opener=h5py.File, at=1),
        0.05,
    ),
]
