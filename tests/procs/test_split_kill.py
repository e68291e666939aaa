"""Dividing and packing with real processes: SIGKILL at any instant, a full disk, TensorFlow."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardkeep.errors import DurabilityError, LockTimeoutError
from shardkeep.jobs import concat, pack, split
from shardkeep.loader import Loader
from shardkeep.tfrecord import FixedLen, Reader, ShardWriter, Writer
from shardkeep.world import World
from tests.small_disk import mounted
from tests.tensorflow_child import TensorFlow
from tests.waiting import PATIENCE_S

RECORDS = 3000

SPLIT = """
import sys
from shardkeep.jobs import split
print("ready", flush=True)
split(sys.argv[1], sys.argv[2] + "/{shard:02d}-of-{shards:02d}", shards=12, mode=sys.argv[3])
"""

PACK = """
import sys
import numpy as np
from shardkeep.jobs import pack
print("ready", flush=True)
pattern = sys.argv[2] + "/{shard:02d}-of-{shards:02d}"
pack(np.arange(100_000).reshape(-1, 5), pattern, shard_bytes=80_000, shuffle=1)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "all.tfrecord"
    with Writer(path) as w:
        for i in range(RECORDS):
            w.write(b"%06d" % i + bytes([i % 256]) * (i * 37 % 9000))
    return path


def killed(script: str, *arguments: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout:
        child.stdout.readline()
        time.sleep(random.random() * 0.3)
        child.kill()
        child.wait()


def shown(folder: Path) -> list[str]:
    return sorted(
        name for name in os.listdir(folder) if not name.startswith(".") and not name.endswith(".lock")
    )


@pytest.mark.parametrize("runs", [3, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("how", ["contiguous", "round-robin", "balanced", "pack"])
def test_kill_at_any_time_leaves_only_whole_shards(source: Path, how: str, runs: int, tmp_path: Path) -> None:
    for run in range(runs):
        folder = tmp_path / str(run)
        folder.mkdir()
        killed(PACK if how == "pack" else SPLIT, str(source), str(folder), how)
        names = shown(folder)
        # Nothing, or, in the moment of the renames, a first part of the names; each file whole.
        if names:
            shards = int(names[0][-2:])
            assert names == [f"{shard:02d}-of-{shards:02d}" for shard in range(len(names))]
            counts = [len(list(Reader(folder / name))) for name in names]
            if len(names) == shards:
                assert sum(counts) == (20_000 if how == "pack" else RECORDS)
        # The next run finds no lock and sweeps what the dead one left.
        report = split(source, folder / "again-{shard}", shards=2)
        assert report.records == RECORDS
        assert [name for name in os.listdir(folder) if name.startswith(".")] == []


def test_one_of_two_concurrent_runs_is_refused(source: Path, tmp_path: Path) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", SPLIT, str(source), str(tmp_path), "round-robin"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    ends = [child.communicate(timeout=PATIENCE_S)[1] for child in children]
    assert sum(child.returncode == 0 for child in children) == 1
    for text, child in zip(ends, children, strict=True):
        assert child.returncode == 0 or "LockTimeoutError" in text or "ExistsError" in text
    assert shown(tmp_path) == [f"{shard:02d}-of-12" for shard in range(12)]
    assert concat(tmp_path / "*-of-12", tmp_path / "all").digest == concat(source, tmp_path / "x").digest


def test_error_of_the_second_run_names_the_first(source: Path, tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "{shard}", shards=2), pytest.raises(LockTimeoutError, match=str(os.getpid())):
        split(source, tmp_path / "{shard}", shards=3)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "small", "4m") as folder:
        yield folder


@pytest.mark.parametrize("mode", ["contiguous", "round-robin", "balanced"])
def test_a_full_disk_leaves_nothing(source: Path, mode: Any, small_disk: Path) -> None:
    (small_disk / "00-of-05").write_bytes(b"old")
    for target in ("new-{shard}", "{shard:02d}-of-{shards:02d}"):
        with pytest.raises(DurabilityError, match="No space left") as caught:
            split(source, small_disk / target, shards=5, mode=mode, exists="replace")
        assert caught.value.errno == errno.ENOSPC
        assert os.listdir(small_disk) == ["00-of-05"]
    assert (small_disk / "00-of-05").read_bytes() == b"old"


@pytest.mark.parametrize("shuffle", [None, 5])
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_packing_onto_a_full_disk_leaves_nothing(
    shuffle: int | None, compression: str | None, small_disk: Path
) -> None:
    data = np.random.default_rng(0).integers(0, 2**62, (60_000, 12))
    for options in ({"shards": 4}, {"shard_bytes": 300_000}):
        with pytest.raises(DurabilityError, match="No space left"):
            pack(data, small_disk / "{shard}", shuffle=shuffle, compression=compression, **options)  # type: ignore[arg-type]
        assert os.listdir(small_disk) == []


def test_loader_reads_the_shards_of_split(source: Path, tmp_path: Path) -> None:
    data = np.arange(600).reshape(200, 3)
    packed = pack(data, tmp_path / "all-{shard}", shards=1)
    for mode in ("contiguous", "round-robin", "balanced"):
        report = split(packed.outputs[0].path, tmp_path / f"{mode}-{{shard}}", shards=7, mode=mode)  # type: ignore[arg-type]
        paths = [one.path for one in report.outputs]
        rows = []
        for batch in Loader(paths, {"data": FixedLen((3,), "int64")}, 16, World(), shuffle="global"):
            rows += batch["data"][batch["valid"]].tolist()
        assert sorted(rows) == data.tolist()


READ = """
import sys
import tensorflow as tf
for path, compression in zip(sys.argv[1::2], sys.argv[2::2]):
    for record in tf.data.TFRecordDataset(path, compression):
        print(record.numpy()[:6].decode())
"""

PARSE = """
import sys
import tensorflow as tf
spec = {"image_raw": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64),
        "height": tf.io.FixedLenFeature([], tf.int64), "width": tf.io.FixedLenFeature([], tf.int64),
        "depth": tf.io.FixedLenFeature([], tf.int64), "filename": tf.io.FixedLenFeature([], tf.string)}
for record in tf.data.TFRecordDataset(sys.argv[1:]):
    got = tf.io.parse_single_example(record, spec)
    pixels = tf.io.decode_image(got["image_raw"])
    assert pixels.shape == (got["height"], got["width"], got["depth"])
    print(got["filename"].numpy().decode(), int(got["label"]))
"""


@pytest.mark.tensorflow
def test_tensorflow_reads_the_shards_of_split(tensorflow: TensorFlow, source: Path, tmp_path: Path) -> None:
    arguments: list[str] = []
    for compression in (None, "gzip", "zlib"):
        report = split(
            source, tmp_path / f"{compression}-{{shard}}", shards=3, mode="balanced", compression=compression
        )
        for one in report.outputs:
            arguments += [one.path, (compression or "").upper()]
    numbers = tensorflow.run(READ, *arguments).splitlines()
    assert sorted(numbers) == sorted([f"{i:06d}" for i in range(RECORDS)] * 3)


@pytest.mark.tensorflow
def test_tensorflow_parses_packed_images(tensorflow: TensorFlow, tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    for label in ("a", "b"):
        (tmp_path / "in" / label).mkdir(parents=True)
        for i, (kind, mode) in enumerate([("PNG", "RGB"), ("PNG", "L"), ("JPEG", "RGB"), ("PNG", "RGBA")]):
            pillow.new(mode, (5 + i, 3)).save(tmp_path / "in" / label / f"{i}.{kind}", kind)
    report = pack(tmp_path / "in", tmp_path / "{shard}", shuffle=3)
    seen = tensorflow.run(PARSE, *[one.path for one in report.outputs]).splitlines()
    assert sorted(seen) == [
        f"{label}/{i}.{kind} {number}"
        for number, label in enumerate("ab")
        for i, kind in enumerate(["PNG", "PNG", "JPEG", "PNG"])
    ]
