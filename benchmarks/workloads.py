"""Files of the comparisons: three typical kinds of training records.

``small``   60,000 records of 1.7 KB: a 32x32x3 PNG and a label, 8 shards
``large``   4,000 records of 51 KB: a 500x375 JPEG and a label, 8 shards
``table``   400,000 records of 650 B: 13 floats, 26 integers, a label, 8 shards

They are made once in a folder and reused.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as PillowImage

from shardkeep.tfrecord import ShardWriter

__all__ = ["RECORDS", "make"]

SHARDS = 8
RECORDS = {"small": 60_000, "large": 4_000, "table": 400_000}
# Number of different images; the others repeat them, which does not affect a decoder.
_DISTINCT = {"small": 1_000, "large": 100}


def make(folder: Path, name: str, *, scale: float = 1.0) -> list[str]:
    """Return the shards of a workload with `scale` of its records; make them if they do not exist."""
    records = max(int(RECORDS[name] * scale), 8)
    here = folder / f"{name}-{records}"
    pattern = f"{name}-{{shard:05d}}-of-{{shards:05d}}.tfrecord"
    if not here.exists():
        here.mkdir(parents=True)
        with ShardWriter(here / pattern, shards=SHARDS) as writer:
            for number, example in enumerate(_examples(name, records)):
                writer.write_example(example, shard=number * SHARDS // records)
    return sorted(str(path) for path in here.glob("*.tfrecord"))


def _examples(name: str, records: int) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(0)
    if name == "table":
        for _ in range(records):
            floats = rng.random(13, np.float32)
            integers = rng.integers(0, 1 << 20, 26)
            row: dict[str, Any] = {f"f{i:02d}": floats[i : i + 1] for i in range(13)}
            row |= {f"i{i:02d}": integers[i : i + 1] for i in range(26)}
            yield row | {"label": int(integers[0] & 1)}
        return
    draw = _png if name == "small" else _jpeg
    images = [draw(rng) for _ in range(min(_DISTINCT[name], records))]
    for number in range(records):
        yield {"image_raw": images[number % len(images)], "label": number % 10}


def _png(rng: np.random.Generator) -> bytes:
    pixels = _blurred(rng, 32, 32, 12) + rng.integers(0, 6, (32, 32, 3))
    return _encoded(pixels, "PNG")


def _jpeg(rng: np.random.Generator) -> bytes:
    pixels = _blurred(rng, 375, 500, 25) + rng.normal(0, 17, (375, 500, 3))
    return _encoded(pixels, "JPEG", quality=75)


def _blurred(rng: np.random.Generator, height: int, width: int, cell: int) -> Any:
    coarse = rng.integers(20, 230, (height // cell + 1, width // cell + 1, 3)).astype(np.uint8)
    return np.asarray(
        PillowImage.fromarray(coarse).resize((width, height), PillowImage.Resampling.BILINEAR), float
    )


def _encoded(pixels: Any, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    PillowImage.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(out, kind, **options)
    return out.getvalue()
