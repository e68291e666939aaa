"""Sources and results of `pack` for its tests."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardkeep.jobs import PackReport
from shardkeep.tfrecord import Reader, decode_example

Pillow = pytest.importorskip("PIL.Image")


PATTERN = "out-{shard}-of-{shards}"


def image(kind: str = "PNG", mode: str = "RGB", size: tuple[int, int] = (5, 3), seed: int = 0) -> bytes:
    depth = len(Pillow.new(mode, (1, 1)).getbands())
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], depth), np.uint8)
    made = Pillow.fromarray(pixels[:, :, 0] if depth == 1 else pixels, mode if depth > 1 else "L").convert(
        mode
    )
    buffer = io.BytesIO()
    made.save(buffer, kind)
    return buffer.getvalue()


def examples(report: PackReport) -> list[dict[str, Any]]:
    """Return all records, in the order of the shards, with arrays as lists."""
    found = []
    for output in report.outputs:
        records = list(Reader(output.path))
        assert (len(records), os.path.getsize(output.path)) == (output.records, output.bytes)
        for record in records:
            features = decode_example(record)
            found.append({name: list(values) for name, values in features.items()})
    assert len(found) == report.records
    return found


def left(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith((".", "out"))]


def csv_file(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path
