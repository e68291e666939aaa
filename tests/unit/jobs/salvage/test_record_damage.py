"""Random damage: `salvage_records` keeps what a search at every byte finds, and invents nothing.

Covers `shardkeep.jobs.salvage.records`. The search and the checksum are independent of Shardkeep's.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from shardkeep.errors import ShardkeepError
from shardkeep.jobs.salvage.records import salvage_records
from shardkeep.jobs.salvage.report import RepairedFile
from shardkeep.tfrecord import Reader
from shardkeep.tfrecord.damage import read_records
from tests.odd_files import crc32c, frame, mask

_SIZES = [0, 0, 1, 2, 7, 16, 30, 100, 500, 1500, 5000]


def whole_frames(data: bytes) -> dict[int, int]:
    """Return start and end of each whole frame at any byte."""
    found = {}
    for start in range(len(data) - 15):
        length = int.from_bytes(data[start : start + 8], "little")
        end = start + 16 + length
        if end > len(data) or mask(crc32c(data[start : start + 8])) != int.from_bytes(
            data[start + 8 : start + 12], "little"
        ):
            continue
        if mask(crc32c(data[start + 12 : end - 4])) == int.from_bytes(data[end - 4 : end], "little"):
            found[start] = end
    return found


def record(rng: random.Random) -> bytes:
    size = rng.choice(_SIZES)
    kind = rng.randrange(6)
    if kind == 0:
        return bytes(size)
    if kind == 1:
        return bytes([rng.randrange(256)]) * size
    if kind == 2:  # small integers look like lengths
        return (rng.randrange(200).to_bytes(8, "little") * (size // 8 + 1))[:size]
    if kind == 3:  # frames in a payload, whole or cut
        return (frame(rng.randbytes(size // 4)) * 5)[:size]
    return rng.randbytes(size)


def damaged(rng: random.Random, data: bytes, times: int) -> bytes:
    """Return the data after flips, cuts, insertions, zeroed, copied and swapped blocks."""
    out = bytearray(data)
    for _ in range(times):
        if len(out) < 2:
            break
        at = rng.randrange(len(out))
        size = rng.choice([1, 3, 12, 16, 100, 512])
        match rng.randrange(7):
            case 0 | 1:
                out[at] ^= 1 << rng.randrange(8)
            case 2:
                del out[at : at + size]
            case 3:
                out[at:at] = rng.randbytes(size)
            case 4:
                out[at : at + size] = bytes(len(out[at : at + size]))
            case 5:
                out[at:at] = out[rng.randrange(len(out)) :][:size]
            case 6:
                other = rng.randrange(len(out))
                first, second = out[at : at + size], out[other : other + size]
                if len(first) == len(second) and abs(at - other) >= size:
                    out[at : at + size], out[other : other + size] = second, first
    return bytes(out)


def salvage(tmp_path: Path, data: bytes) -> tuple[RepairedFile, list[bytes]]:
    path, output = tmp_path / "x", tmp_path / "y"
    path.write_bytes(data)
    report = salvage_records(str(path), str(output), exists="replace", tick=lambda _: None)
    return report, list(Reader(output)) if report.output else []


@pytest.mark.parametrize("seed", range(150))
def test_random_damage(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    records = [record(rng) for _ in range(rng.randrange(1, 25))]
    good = b"".join(map(frame, records))
    data = damaged(rng, good, rng.choice([1, 1, 2, 3, 10, 40]))
    if not data:
        return
    try:
        report, kept = salvage(tmp_path, data)
    except ShardkeepError:  # by chance the start is that of another kind of file
        assert not whole_frames(data).get(0)
        return
    spans = [(part.offset_bytes or 0, (part.offset_bytes or 0) + (part.bytes or 0)) for part in report.parts]
    assert [0, *(stop for _, stop in spans)] == [*(start for start, _ in spans), len(data)]
    outer = {(start, stop): part.outcome for (start, stop), part in zip(spans, report.parts, strict=True)}
    for start, stop in whole_frames(data).items():
        holder = next(span for span in outer if span[0] <= start < span[1])
        assert stop <= holder[1] and outer[holder] != "lost", (start, stop, holder, outer[holder])
    # Nothing is invented: a record was written, by itself or as a frame in the payload of another.
    contents = {
        some[start + 12 : stop - 4] for some in (good, data) for start, stop in whole_frames(some).items()
    }
    assert set(kept) <= contents
    assert len(kept) == report.items("kept") + report.items("repaired")


@pytest.mark.parametrize("seed", range(40))
def test_what_a_reader_repairs_is_repaired(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    records = [rng.randbytes(rng.choice(_SIZES)) for _ in range(12)]
    data = bytearray(b"".join(map(frame, records)))
    starts = [0]
    for one in records:
        starts.append(starts[-1] + len(one) + 16)
    for number in rng.sample(range(12), 3):
        bit = rng.randrange(starts[number] * 8, starts[number + 1] * 8)
        data[bit // 8] ^= 1 << (bit % 8)
    _, kept = salvage(tmp_path, bytes(data))
    try:
        reader = read_records(tmp_path / "x", on_corrupt="repair", on_damage=lambda _: None)
        repaired = [one for _, one in reader]
    except ShardkeepError:
        assert len(kept) >= 9
    else:
        assert kept == repaired == records


@pytest.mark.parametrize("block", [512, 1000, 4096])
@pytest.mark.parametrize("seed", range(5))
def test_records_of_two_writers(seed: int, block: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    streams = [[rng.randbytes(rng.choice(_SIZES[3:])) for _ in range(25)] for _ in range(2)]
    written = [b"".join(map(frame, stream)) for stream in streams]
    data = b"".join(
        stream[at : at + block] for at in range(0, max(map(len, written)), block) for stream in written
    )
    report, kept = salvage(tmp_path, data)
    assert not Counter(kept) - Counter(streams[0] + streams[1])
    assert len(kept) >= 45, report.parts
    for stream in streams:
        order = [one for one in kept if one in stream]
        assert order == [one for one in stream if one in order]
