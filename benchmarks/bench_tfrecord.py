"""Benchmarks of records: read in order, read by number, written, and counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.harness import Work
from shardkeep.tfrecord import Reader, Writer

_RECORD_BYTES = 1700


def _file(folder: Path, quick: bool) -> tuple[Path, int]:
    records = 100 if quick else 60_000
    payload = np.random.default_rng(0).bytes(_RECORD_BYTES)
    with Writer(folder / "a.tfrecord") as writer:
        for _ in range(records):
            writer.write(payload)
    return folder / "a.tfrecord", records


def bench_read_in_order(folder: Path, quick: bool) -> Callable[[], Work]:
    path, records = _file(folder, quick)

    def run() -> Work:
        found = sum(1 for _ in Reader(path))
        assert found == records
        return Work("records", records, records * _RECORD_BYTES)

    return run


def bench_read_by_number(folder: Path, quick: bool) -> Callable[[], Work]:
    path, records = _file(folder, quick)
    reader = Reader(path)
    order = np.random.default_rng(0).permutation(records)

    def run() -> Work:
        found = sum(len(reader.read_many(order[start : start + 256])) for start in range(0, records, 256))
        assert found == records
        return Work("records", records, records * _RECORD_BYTES)

    return run


def bench_count(folder: Path, quick: bool) -> Callable[[], Work]:
    path, records = _file(folder, quick)

    def run() -> Work:
        assert len(Reader(path)) == records
        return Work("records", records, records * _RECORD_BYTES)

    return run


def bench_write(folder: Path, quick: bool) -> Callable[[], Work]:
    records = 100 if quick else 60_000
    payload = np.random.default_rng(0).bytes(_RECORD_BYTES)

    def run() -> Work:
        with Writer(folder / "a.tfrecord", exists="replace") as writer:
            for _ in range(records):
                writer.write(payload)
        return Work("records", records, records * _RECORD_BYTES)

    return run
