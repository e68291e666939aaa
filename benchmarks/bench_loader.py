"""Benchmarks of batches: raw records, columns of numbers, decoded images; in order and shuffled."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as PillowImage

from benchmarks.harness import Work
from shardkeep.loader import Loader
from shardkeep.tfrecord import FixedLen, Image, ShardWriter, VarLen
from shardkeep.world import World

_SHARDS = 8


def _write(folder: Path, records: int, example: dict[str, Any]) -> tuple[str, int]:
    with ShardWriter(folder / "{shard}.tfrecord", shards=_SHARDS) as writer:
        for _ in range(records):
            writer.write_example(example)
    files = list(folder.glob("*.tfrecord"))
    payload_bytes = sum(path.stat().st_size for path in files) - 16 * records
    return str(folder / "*.tfrecord"), payload_bytes


def _epoch(pattern: str, records: int, payload_bytes: int, unit: str, **options: Any) -> Callable[[], Work]:
    def run() -> Work:
        rows = 0
        for batch in Loader(pattern, world=World(0, 1), **options):
            rows += int(batch["valid"].sum())
        assert rows == records
        return Work(unit, records, payload_bytes)

    return run


def _png(side: int) -> bytes:
    y, x = np.mgrid[0:side, 0:side]
    pixels = np.stack([(x * 3 + y) % 256, (x * y) % 256, (x - y) % 256], axis=-1).astype("uint8")
    out = io.BytesIO()
    PillowImage.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def _images(folder: Path, quick: bool) -> tuple[int, tuple[str, int]]:
    records = 64 if quick else 20_000
    return records, _write(folder, records, {"image": _png(32), "label": 3})


def _numbers(folder: Path, quick: bool) -> tuple[int, tuple[str, int]]:
    records = 64 if quick else 100_000
    example = {f"f{number}": np.array([0.5], "f4") for number in range(13)}
    example |= {f"i{number}": np.array([number]) for number in range(26)}
    return records, _write(folder, records, example | {"label": 1})


def bench_raw_in_order(folder: Path, quick: bool) -> Callable[[], Work]:
    records, made = _images(folder, quick)
    return _epoch(made[0], records, made[1], "records", batch_size=256)


def bench_raw_shuffled(folder: Path, quick: bool) -> Callable[[], Work]:
    records, made = _images(folder, quick)
    return _epoch(made[0], records, made[1], "records", batch_size=256, shuffle="global")


def bench_png_to_float32_shuffled(folder: Path, quick: bool) -> Callable[[], Work]:
    records, made = _images(folder, quick)
    features = {"image": Image(size=(32, 32)), "label": FixedLen()}
    return _epoch(made[0], records, made[1], "images", features=features, batch_size=256, shuffle="global")


def bench_columns_in_order(folder: Path, quick: bool) -> Callable[[], Work]:
    records, made = _numbers(folder, quick)
    features: dict[str, Any] = {f"f{number}": FixedLen((1,), "float32") for number in range(13)}
    features |= {f"i{number}": FixedLen((1,)) for number in range(26)} | {"label": FixedLen()}
    return _epoch(made[0], records, made[1], "records", features=features, batch_size=1024)


def bench_ragged_in_order(folder: Path, quick: bool) -> Callable[[], Work]:
    records, made = _numbers(folder, quick)
    features = {"i0": VarLen("int64"), "f0": VarLen("float32")}
    return _epoch(made[0], records, made[1], "records", features=features, batch_size=1024)
