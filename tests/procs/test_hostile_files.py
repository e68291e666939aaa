"""Files that claim, nest or expand too much, read by a process that may take only little more memory.

The child fills its caches, looks how much address space it has, allows itself some mebibytes more, and reads.
A claim that costs memory ends in an abort there. The bounds are those of docs/design/hostile-input.md.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardkeep as sk
from shardkeep.tfrecord import Reader, Writer, build_index, encode_example
from tests.odd_files import frame, header
from tests.png_files import chunk
from tests.unit.tfrecord.events.test_message import put_varint
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS and /proc/self/status")

_CHILD = """
import json, resource, sys
import shardkeep as sk
from shardkeep.errors import ShardkeepError
from shardkeep.tfrecord import Reader, build_index, decode_example

WORLD = sk.World(0, 1)

def iterate(path):
    return sum(1 for _ in Reader(path))

def index(path):
    return build_index(path, verify=True).records

def load(path):
    return sum(int(batch["valid"].sum()) for batch in sk.Loader(path, batch_size=8, world=WORLD, threads=2))

def images(path):
    features = {"image": sk.Image()}
    loader = sk.Loader(path, features, batch_size=64, world=WORLD, threads=2)
    return sum(int(batch["valid"].sum()) for batch in loader)

def one_image(path):
    loader = sk.Loader(path, {"image": sk.Image(size=(8, 8))}, batch_size=1, world=WORLD, threads=1)
    return sum(int(batch["valid"].sum()) for batch in loader)

def examples(path):
    for record in Reader(path):
        decode_example(record)

def columns(path):
    features = {"x": sk.FixedLen()}
    return sum(int(b["valid"].sum()) for b in sk.Loader(path, features, batch_size=8, world=WORLD, threads=1))

warm, allowance_mib, calls = json.loads(sys.stdin.read())
for name in (iterate, index, load):
    name(warm)
with open("/proc/self/status") as status:
    size_kib = next(int(line.split()[1]) for line in status if line.startswith("VmSize:"))
limit = (size_kib + allowance_mib * 1024) * 1024
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for name, path in calls:
    try:
        print(json.dumps([name, path, globals()[name](path)]))
    except (ShardkeepError, MemoryError) as error:
        print(json.dumps([name, path, f"{type(error).__name__}: {error}"]))
"""


def limited(folder: Path, allowance_mib: int, calls: list[tuple[str, Path]]) -> list[Any]:
    """Run the calls in a child; the answers are counts, or errors as text."""
    warm = folder / "warm.tfrecord"
    warm.write_bytes(frame(b"warm") * 20)
    named = [(name, str(path)) for name, path in calls]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _CHILD],
        input=json.dumps([str(warm), allowance_mib, named]),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        # One heap: each further one reserves 64 MiB of addresses that are never used.
        env={**os.environ, "MALLOC_ARENA_MAX": "1"},
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer[:2] for answer in answers] == [list(call) for call in named]
    return [answer[2] for answer in answers]


def test_memory_limit_is_effective(tmp_path: Path) -> None:
    path = tmp_path / "large.tfrecord"
    with Writer(path) as writer:
        writer.write(bytes(200 << 20))
    # Iteration must have the record once in its buffer and once for the caller.
    assert limited(tmp_path, 600, [("iterate", path)]) == [1]
    (answer,) = limited(tmp_path, 100, [("iterate", path)])
    assert answer.startswith("MemoryError")


def test_claimed_lengths_allocate_nothing(tmp_path: Path) -> None:
    calls: list[tuple[str, Path]] = []
    lengths = [
        1 << 28,
        1 << 31,
        1 << 33,
        1 << 35,
        1 << 40,
        1 << 62,
        (1 << 63) + 1,
        (1 << 64) - 16,
        (1 << 64) - 1,
    ]
    for length in lengths:
        for before in (b"", frame(b"x") * 3):
            data = before + header(length) + bytes(300)
            for name, pack in (("plain", bytes), ("gzip", gzip.compress), ("zlib", zlib.compress)):
                path = tmp_path / f"{length:x}-{len(before)}-{name}.tfrecord"
                path.write_bytes(pack(data))
                calls.append(("iterate", path))
                if name == "plain":
                    calls += [("index", path), ("load", path)]
    for (name, path), answer in zip(calls, limited(tmp_path, 48, calls), strict=True):
        assert str(answer).startswith(("TruncatedFileError", "FormatError")), (name, path.name, answer)


def test_a_bomb_of_many_records_takes_constant_memory(tmp_path: Path) -> None:
    bombs = []
    for name, pack in (("gzip", gzip.compress), ("zlib", zlib.compress)):
        path = tmp_path / name
        path.write_bytes(pack(frame(bytes(1000)) * 60_000))
        assert path.stat().st_size < 1 << 20
        bombs.append(path)
    assert limited(tmp_path, 48, [("iterate", path) for path in bombs]) == [60_000] * 2


def test_bomb_without_a_record_takes_no_memory(tmp_path: Path) -> None:
    # 100 MB of zeros behind a good record, and behind a header that claims a tebibyte.
    path, claim = tmp_path / "zeros", tmp_path / "claim"
    path.write_bytes(gzip.compress(frame(b"good") + bytes(100_000_000), 1))
    claim.write_bytes(gzip.compress(header(1 << 20) + bytes(100_000_000), 1))
    answers = limited(tmp_path, 48, [("iterate", path), ("iterate", claim)])
    assert [str(answer).partition(":")[0] for answer in answers] == ["CorruptRecordError"] * 2


def test_a_bomb_of_one_record_is_a_memory_error(tmp_path: Path) -> None:
    # It is legal and needs more memory than there is, which is reported to the caller.
    path = tmp_path / "one"
    path.write_bytes(gzip.compress(header(200 << 20) + bytes(200 << 20) + bytes(4), 1))
    (answer,) = limited(tmp_path, 48, [("iterate", path)])
    assert answer.startswith("MemoryError")


def test_zstd_with_a_large_window_is_read_or_refused(tmp_path: Path) -> None:
    calls = []
    for descriptor in (0x58, 0xA0, 0xB8, 0xFF):
        path = tmp_path / f"{descriptor:x}"
        raw = frame(b"x")
        block = struct.pack("<I", len(raw) << 3 | 1)[:3] + raw
        path.write_bytes(b"\x28\xb5\x2f\xfd\x00" + bytes([descriptor]) + block)
        calls.append(("iterate", path))
    for answer in limited(tmp_path, 48, calls):
        assert answer == 1 or str(answer).partition(":")[0].endswith("Error"), answer


def test_mutated_zstd_streams_are_read_or_refused(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    chance = random.Random(1)
    raw = b"".join(frame(bytes([number]) * (number * 90)) for number in range(40))
    good = pyarrow.compress(raw, codec="zstd", asbytes=True)
    calls: list[tuple[str, Path]] = []
    for number in range(200):
        data = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path = tmp_path / f"{number}.tfrecord"
        path.write_bytes(data)
        calls.append(("iterate", path))
    # A window of at most 128 MiB, and the records.
    for (_, path), answer in zip(calls, limited(tmp_path, 160, calls), strict=True):
        assert answer == 40 or "Error: " in str(answer), (path.name, answer)


def test_deep_and_long_messages_are_read_or_refused(tmp_path: Path) -> None:
    calls = []
    inner = b""
    for _ in range(2000):
        inner = b"\x0a" + put_varint(len(inner)) + inner
    for name, record in (
        ("groups", b"\x1b" * 1_000_000),
        ("closed_groups", b"\x1b" * 100_000 + b"\x1c" * 100_000),
        ("nested", inner),
        ("varints", b"\xff" * 1_000_000),
        ("long_claim", b"\x0a\xff\xff\xff\xff\x0f"),
        ("empty_entries", b"\x0a\x80\x89\x7a" + b"\x0a\x00" * 1_000_000),
    ):
        path = tmp_path / name
        path.write_bytes(frame(record))
        calls += [("examples", path), ("columns", path)]
    for (name, path), answer in zip(calls, limited(tmp_path, 128, calls), strict=True):
        assert answer is None or str(answer).partition(":")[0].endswith("Error"), (name, path.name, answer)


def _png(width: int, height: int, rows: bytes) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    signature = b"\x89PNG\r\n\x1a\n"
    return signature + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def _jpeg(width: int, height: int) -> bytes:
    frame_header = struct.pack(">BBHBHHBBBB", 0xFF, 0xC0, 11, 8, height, width, 1, 1, 0x11, 0)
    scan = b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00" + bytes(64)
    return b"\xff\xd8" + frame_header + scan + b"\xff\xd9"


def test_images_with_excessive_sizes_are_refused(tmp_path: Path) -> None:
    calls = []
    for name, image in (
        ("png_claim", _png(60_000, 60_000, b"\x00" * 100)),
        ("png_largest", _png(2**31 - 1, 2**31 - 1, b"\x00" * 100)),
        ("png_wide", _png(2**31 - 1, 1, b"\x00" * 100)),
        ("jpeg_claim", _jpeg(65_535, 65_535)),
        ("jpeg_tall", _jpeg(1, 65_535)),
        ("png_short", _png(3000, 3000, b"\x00" * 100)),
    ):
        path = tmp_path / name
        path.write_bytes(frame(encode_example({"image": image})))
        calls += [("images", path), ("one_image", path)]
    for (name, path), answer in zip(calls, limited(tmp_path, 96, calls), strict=True):
        assert str(answer).partition(":")[0].endswith("Error"), (name, path.name, answer)


def test_batch_of_too_large_images_is_an_error(tmp_path: Path) -> None:
    # 16 KB that are a picture of 4,000 x 4,000: a batch of 64 float32 RGB ones would be 12 GB.
    path = tmp_path / "giant"
    path.write_bytes(frame(encode_example({"image": _png(4000, 4000, bytes(4001) * 4000)})))
    answers = limited(tmp_path, 256, [("images", path), ("one_image", path)])
    assert "no memory for 64 images of 4000x4000x3" in answers[0]


def test_a_damaged_index_file_never_misleads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDKEEP_INDEX", "beside")
    path = tmp_path / "x.tfrecord"
    records = [bytes([i % 251]) * 3000 for i in range(400)]
    with Writer(path) as writer:
        for record in records:
            writer.write(record)
    build_index(path)
    beside = Path(f"{path}.skidx")
    good = beside.read_bytes()
    assert len(good) > 100
    random = np.random.default_rng(7)
    places = [*range(120), *random.integers(0, len(good), 60).tolist()]
    for at in places:
        for value in (good[at] ^ 1 << int(random.integers(8)), 0xFF):
            beside.write_bytes(good[:at] + bytes([value]) + good[at + 1 :])
            reader = Reader(path)
            assert len(reader) == len(records), at
            assert reader.read_many([0, 399, 200]) == [records[0], records[399], records[200]], at
    for damaged in (b"", good[:50], good + bytes(100), good * 2, bytes(len(good)), b"\xff" * len(good)):
        beside.write_bytes(damaged)
        assert Reader(path)[399] == records[399]
    beside.unlink()
    os.mkfifo(beside)
    with pytest.warns(RuntimeWarning, match="named pipe"):
        assert Reader(path)[399] == records[399]


def test_a_cmyk_jpeg_in_four_channels(tmp_path: Path) -> None:
    image = (Path(__file__).parents[1] / "data/images/cmyk.jpg").read_bytes()
    path = tmp_path / "cmyk"
    path.write_bytes(frame(encode_example({"image": image})))
    features = {"image": sk.Image(channels=4, dtype="uint8")}
    (batch,) = sk.Loader(path, features, batch_size=1, world=sk.World(0, 1))
    assert (batch["image"][..., 3] == 255).all()


def test_damaged_jpeg_has_no_pixels_of_the_previous_image(tmp_path: Path) -> None:
    folder = Path(__file__).parents[1] / "data/images"
    before, image = (folder / "baseline_444.jpg").read_bytes(), (folder / "cmyk.jpg").read_bytes()
    damaged = image[:618] + b"\xff\xe0" + image[618:]

    def last(*images: bytes) -> Any:
        path = tmp_path / f"{len(images)}.tfrecord"
        path.write_bytes(b"".join(frame(encode_example({"image": one})) for one in images))
        loader = sk.Loader(path, {"image": sk.Image()}, batch_size=2, world=sk.World(0, 1), threads=1)
        (batch,) = loader
        return batch["image"][len(images) - 1]

    try:
        alone = last(damaged)
    except sk.errors.CorruptRecordError:
        return
    assert np.array_equal(alone, last(before, damaged))
