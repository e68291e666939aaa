"""Comparison of TFRecord operations: read, columns, write, index."""

from __future__ import annotations

import functools
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.comparison import Comparison
from benchmarks.jobs import TABLE, loaded, plain_read
from shardkeep import verify
from shardkeep.jobs.salvage.records import salvage_records
from shardkeep.tfrecord import Reader, Writer, build_index, read_columns


def _iterated(paths: list[str]) -> int:
    return sum(1 for path in paths for _ in Reader(path))


def _columns(paths: list[str]) -> int:
    return len(read_columns(paths, TABLE)["label"])


def _indexed(paths: list[str]) -> int:
    # The index is not stored, so that only the scan is measured.
    os.environ["SHARDKEEP_INDEX"] = "off"
    try:
        return sum(index.records for index in build_index(paths))
    finally:
        del os.environ["SHARDKEEP_INDEX"]


def _damaged(folder: Path) -> list[str]:
    """Return a file of 1 GB with 1,000 damages: flipped bits, and ranges of NUL and of other bytes."""
    path = folder / "damaged.tfrecord"
    rng = np.random.default_rng(0)
    with Writer(path, exists="replace") as writer:
        for record in [rng.bytes(656) for _ in range(1_000)] * 1_500:
            writer.write(record)
    with open(path, "r+b") as file:
        for at in rng.integers(0, path.stat().st_size - 600, 1_000).tolist():
            file.seek(at)
            bad = [bytes([file.read(1)[0] ^ 4]), bytes(512), rng.bytes(8)][at % 3]
            file.seek(at)
            file.write(bad)
    return [str(path)]


def _repaired(paths: list[str]) -> tuple[float, int]:
    output = f"{paths[0]}.repaired"
    start = time.perf_counter()
    salvage_records(paths[0], output, tick=lambda _: None)
    seconds = time.perf_counter() - start
    os.unlink(output)  # replacing it would add half a second to the next round: ext4 frees the blocks then
    return seconds, 1


def _verified(paths: list[str]) -> int:
    return sum(file.items or 0 for file in verify(paths).files)


def _examined(paths: list[str]) -> int:
    verify(paths)
    return 1


def _random(paths: list[str]) -> int:
    reader = Reader(paths[0])
    return len(reader.read_many(np.random.default_rng(0).integers(0, len(reader), 10_000)))


@functools.cache
def _rows(rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {f"f{i:02d}": rng.random((rows, 1), np.float32) for i in range(13)}
    return columns | {f"i{i:02d}": rng.integers(0, 1 << 20, (rows, 1)) for i in range(26)}


def _written(paths: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder, Writer(f"{folder}/x") as writer:
        writer.write_examples(_rows(_WRITTEN))
        return writer.records


_WRITTEN = 20_000
_RAW = loaded(batch_size=256)
# Batches of 800 KB; pending ones stay in the L2 cache, as the buffer of the plain read() does.
_LARGE = loaded(batch_size=16)
_BY_LOADER = loaded(features=TABLE, batch_size=1024)

COMPARISONS = [
    Comparison("small records, raw, beside the usual interleave", "small", _RAW, "raw usual", 8, 256),
    Comparison("small records, raw, beside tf.data's best", "small", _RAW, "raw best", 3, 1024),
    Comparison(
        "large records, raw, beside tf.data's best", "large", loaded(batch_size=64), "raw best", 3, 64
    ),
    Comparison("large records, raw, beside plain read()", "large", _LARGE, plain_read, 0.6),
    Comparison(
        "small records, one by one, CRC checked, beside vahidk's without", "small", _iterated, "vahidk", 2
    ),
    Comparison("40 features into columns, beside the usual", "table", _BY_LOADER, "table usual", 20, 1024),
    Comparison("40 features into columns, beside tf.data's best", "table", _BY_LOADER, "table best", 4, 1024),
    Comparison("40 features by read_columns, beside the usual", "table", _columns, "table usual", 20, 1024),
    Comparison(
        "40 features by read_columns, beside tf.data's best", "table", _columns, "table best", 4, 1024
    ),
    Comparison(
        "40 features by read_columns, memory at the peak, beside the usual",
        "table",
        _columns,
        "table usual",
        3,
        1024,
        of="memory",
    ),
    Comparison("40 features written from columns", "table", _written, "write table", 10, _WRITTEN),
    Comparison("index scan beside plain read()", "table", _indexed, plain_read, 0.7),
    Comparison(
        "index scan, large records, beside plain read()",
        "large",
        _indexed,
        plain_read,
        0.7,
    ),
    Comparison("verify beside plain read()", "table", _verified, plain_read, 0.7),
    Comparison("verify, large records, beside plain read()", "large", _verified, plain_read, 0.7),
    Comparison(
        "repair of 1,000 damages in 1 GB, synced, beside verify", _damaged, _repaired, _examined, 1 / 3
    ),
    Comparison("10,000 random records, beside skip() to each", "table", _random, "skip", 50, 10),
]
