"""Files of the comparisons: three typical kinds of training records.

``small``   60,000 records of 1.7 KB: a 32x32x3 PNG and a label, 8 shards
``large``   4,000 records of 51 KB: a 500x375 JPEG and a label, 8 shards
``table``   400,000 records of 650 B: 13 floats, 26 integers, a label, 8 shards

They are made once in a folder and reused.
"""

from __future__ import annotations

import io
import itertools
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from shardkeep.tfrecord import FixedLen, Reader, ShardWriter, Writer, decode_example

__all__ = [
    "IMAGE",
    "RECORDS",
    "TABLE",
    "converted",
    "damaged",
    "head",
    "make",
    "many_shards",
    "table_rows",
    "tars",
]

SHARDS = 8
RECORDS = {"small": 60_000, "large": 4_000, "table": 400_000}
# The features of "small" and "large", and of "table".
IMAGE: dict[str, Any] = {"image_raw": FixedLen((), "bytes"), "label": FixedLen()}
TABLE: dict[str, Any] = {f"f{i:02d}": FixedLen((1,), "float32") for i in range(13)}
TABLE |= {f"i{i:02d}": FixedLen((1,)) for i in range(26)} | {"label": FixedLen()}
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


def converted(files: list[str], name: str, convert: Callable[[list[str], str], Any]) -> str:
    """Return the folder of another container with the same records; make it if it does not exist."""
    folder = Path(files[0]).parent / name
    part = folder.with_name(f"{name}.part")
    if not folder.exists():
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        convert(files, str(part))
        part.rename(folder)
    return str(folder)


def head(files: list[str], records: int = 4_000) -> list[str]:
    """Return a file of the first records, for peers that need minutes for all."""

    def write(files: list[str], folder: str) -> None:
        with Writer(f"{folder}/head.tfrecord") as writer:
            for record in itertools.islice(Reader(files[0]), records):
                writer.write(record)

    return [f"{converted(files, 'table-head', write)}/head.tfrecord"]


def tars(files: list[str]) -> list[str]:
    """Return a tar of the records of each file, and then one of its images and labels."""
    folder = converted(files, "tar", _write_tars)
    return [f"{folder}/{kind}-{i:03d}.tar" for kind in ("raw", "image") for i in range(len(files))]


def _write_tars(files: list[str], folder: str) -> None:
    for i, path in enumerate(files):
        with (
            tarfile.open(f"{folder}/raw-{i:03d}.tar", "w") as raw,
            tarfile.open(f"{folder}/image-{i:03d}.tar", "w") as images,
        ):
            for key, record in enumerate(Reader(path)):
                _add(raw, f"{key:06d}.bin", bytes(record))
                row = decode_example(record)
                _add(images, f"{key:06d}.png", row["image_raw"][0])
                _add(images, f"{key:06d}.cls", b"%d" % row["label"][0])


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def table_rows(rows: int) -> dict[str, Any]:
    """Return columns of the features of "table", without the label."""
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {f"f{i:02d}": rng.random((rows, 1), np.float32) for i in range(13)}
    return columns | {f"i{i:02d}": rng.integers(0, 1 << 20, (rows, 1)) for i in range(26)}


def many_shards(folder: Path, scale: float, records: int = 6) -> list[str]:
    """Make 10,000 shards of a few records of 1.7 KB."""
    shards = max(int(10_000 * scale), 8)
    here = folder / f"many-{shards}-{records}"
    if not here.exists():
        here.mkdir(parents=True)
        with Writer(here / "first") as writer:
            for number in range(records):
                writer.write(bytes([number % 256]) * 1700)
        whole = (here / "first").read_bytes()
        (here / "first").unlink()
        for number in range(shards):
            (here / f"{number:05d}.tfrecord").write_bytes(whole)
    return sorted(str(path) for path in here.glob("*.tfrecord"))


def damaged(folder: Path, scale: float) -> list[str]:
    """Return a file of 1 GB with 1,000 damages: flipped bits, and ranges of NUL and of other bytes."""
    records = max(int(1_500_000 * scale), 10_000)
    path = folder / f"damaged-{records}.tfrecord"
    rng = np.random.default_rng(0)
    if not path.exists():
        with Writer(path) as writer:
            for record in [rng.bytes(656) for _ in range(1_000)] * (records // 1_000):
                writer.write(record)
        with open(path, "r+b") as file:
            for at in rng.integers(0, path.stat().st_size - 600, 1_000).tolist():
                file.seek(at)
                bad = [bytes([file.read(1)[0] ^ 4]), bytes(512), rng.bytes(8)][at % 3]
                file.seek(at)
                file.write(bad)
    return [str(path)]


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
    from PIL import Image as PillowImage

    coarse = rng.integers(20, 230, (height // cell + 1, width // cell + 1, 3)).astype(np.uint8)
    return np.asarray(
        PillowImage.fromarray(coarse).resize((width, height), PillowImage.Resampling.BILINEAR), float
    )


def _encoded(pixels: Any, kind: str, **options: Any) -> bytes:
    from PIL import Image as PillowImage

    out = io.BytesIO()
    PillowImage.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(out, kind, **options)
    return out.getvalue()
