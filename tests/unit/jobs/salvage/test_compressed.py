"""Salvage of compressed files. The judge is Python's zlib, and for zstd the reader."""

import gzip
import itertools
import os
import random
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardkeep import _core
from shardkeep.errors import ExistsError, FormatError
from shardkeep.jobs.salvage.compressed import salvage_compressed
from shardkeep.jobs.salvage.report import RepairedFile
from shardkeep.tfrecord import Reader
from tests.odd_files import frame

KINDS = ["gzip", "zlib", "zstd"]
DAMAGES = ("flip", "cut", "insert", "zero", "end", "duplicate", "swap")
WORDS = [b"loss", b"image_raw", b"label", b"step", b"\x00\x00\x00\x00", b"checkpoint"]


def records_of(seed: int, count: int) -> list[bytes]:
    """Records of words, of random bytes and of both, each of them different."""
    dice = random.Random(seed)
    return [
        b"%05d" % number
        + b" ".join(dice.choices(WORDS, k=dice.randrange(40)))
        + dice.randbytes(dice.choice([0, 0, 30, 900]))
        for number in range(count)
    ]


def packed(data: bytes, kind: str, folder: Path, level: int = 6) -> bytes:
    """One member, stream or frame; for zstd `data` must be whole records."""
    if kind == "gzip":
        return gzip.compress(data, level, mtime=0)
    if kind == "zlib":
        return zlib.compress(data)
    path = folder / "frame.zst"
    with open(path, "wb", buffering=0) as file:
        writer = _core.FrameWriter(file.fileno(), path, compression="zstd")
        for record in frames_in(data):
            writer.write(record)
        writer.finish()
    return path.read_bytes()


def frames_in(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        found.append(data[at + 12 : at + 12 + size])
        at += size + 16
    return found


@pytest.fixture
def salvaged(tmp_path: Path) -> Callable[[bytes], tuple[RepairedFile, list[bytes]]]:
    def run(data: bytes) -> tuple[RepairedFile, list[bytes]]:
        path, output = tmp_path / "damaged.tfrecord", tmp_path / "repaired.tfrecord"
        path.write_bytes(data)
        output.unlink(missing_ok=True)
        steps: list[int] = []
        report = salvage_compressed(str(path), str(output), tick=steps.append)
        assert sum(steps) == len(data)
        assert path.read_bytes() == data
        records = list(Reader(output)) if output.exists() else []
        assert report.output == (str(output) if records else None)
        assert len(records) == report.items("kept") + report.items("repaired")
        dry = salvage_compressed(str(path), None, tick=steps.append)
        assert (dry.output, dry.parts) == (None, report.parts)
        return report, records

    return run


@pytest.mark.parametrize("kind", KINDS)
def test_an_undamaged_file_is_one_part(salvaged, tmp_path, kind):
    records = records_of(1, 50)
    data = packed(b"".join(map(frame, records)), kind, tmp_path)
    report, got = salvaged(data)
    assert got == records
    (part,) = report.parts
    assert (part.outcome, part.items, part.offset_bytes, part.bytes, part.record) == (
        "kept",
        50,
        0,
        len(data),
        0,
    )
    assert Reader(report.output).compression == kind


@pytest.mark.parametrize("kind", KINDS)
def test_members_around_a_damaged_one_are_kept_and_the_loss_has_its_bytes(salvaged, tmp_path, kind):
    records = records_of(2, 300)
    members = [packed(b"".join(map(frame, records[at : at + 100])), kind, tmp_path) for at in (0, 100, 200)]
    first, size = len(members[0]), len(members[1])
    data = bytearray(b"".join(members))
    data[first + 40 : first + size - 40] = bytes(size - 80)
    report, got = salvaged(bytes(data))
    assert got[:100] == records[:100]
    assert got[-100:] == records[200:]
    lost = [part for part in report.parts if part.outcome == "lost"]
    assert lost
    assert not report.ok
    assert lost[0].offset_bytes is not None
    assert first <= lost[0].offset_bytes < first + size


def test_members_that_end_within_a_record(salvaged):
    records = records_of(3, 60)
    content = b"".join(map(frame, records))
    pieces = [gzip.compress(content[at : at + 700]) for at in range(0, len(content), 700)]
    assert salvaged(b"".join(pieces))[1] == records
    middle = len(pieces) // 2
    # The member is lost, and with it the records that it has a part of.
    damaged = [*pieces[:middle], bytes(len(pieces[middle])), *pieces[middle + 1 :]]
    got = salvaged(b"".join(damaged))[1]
    assert len(got) >= len(records) - 1 - len([r for r in records if len(r) < 700])
    assert set(got) <= set(records)
    ends = [sum(map(len, map(frame, records[: n + 1]))) for n in range(len(records))]
    before = [record for record, end in zip(records, ends, strict=True) if end <= middle * 700]
    assert got[: len(before)] == before


def test_a_file_that_an_uncompressed_one_was_appended_to(salvaged):
    records = records_of(4, 40)
    first, second = b"".join(map(frame, records[:20])), b"".join(map(frame, records[20:]))
    for data in (gzip.compress(first) + second, first + gzip.compress(second)):
        report, got = salvaged(data)
        assert got == records
        assert report.ok


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_after_the_last_member_are_lost(salvaged, tmp_path, kind):
    records = records_of(5, 20)
    data = packed(b"".join(map(frame, records)), kind, tmp_path)
    report, got = salvaged(data + b"Connection reset by peer\n")
    assert got == records
    last = report.parts[-1]
    assert (last.outcome, last.offset_bytes, last.bytes) == ("lost", len(data), 25)


def test_a_file_of_which_nothing_can_be_kept_has_no_output(salvaged):
    report, got = salvaged(gzip.compress(frame(b"x" * 50_000))[:60])
    assert got == []
    assert [part.outcome for part in report.parts] == ["lost"]


def test_a_damaged_first_header(salvaged, tmp_path):
    records = records_of(6, 50)
    content = b"".join(map(frame, records))
    for kind in ("gzip", "zlib"):
        data = packed(content, kind, tmp_path)
        assert salvaged(b"\xaa" + data[1:])[1] == records
    # The header of the first record is destroyed before the compression.
    report, got = salvaged(gzip.compress(b"\xff" * 12 + content[12:]))
    assert got == records
    assert report.parts[0].outcome == "repaired"


def test_a_single_block_is_enough_to_begin_with(salvaged):
    # The header of a record of the same length would be stored as a reference to lost bytes.
    records = [random.Random(number).randbytes(3000 + number) for number in range(400)]
    content = b"".join(map(frame, records))
    data = bytearray(gzip.compress(content))
    data[200_000:200_512] = bytes(512)
    got = salvaged(bytes(data))[1]
    assert set(got) <= set(records)
    assert len(got) > 350


def test_the_output_is_not_replaced_unless_allowed(tmp_path):
    path, output = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"
    path.write_bytes(gzip.compress(frame(b"record")))
    output.write_bytes(b"mine")
    with pytest.raises(ExistsError):
        salvage_compressed(str(path), str(output), tick=lambda _: None)
    assert output.read_bytes() == b"mine"
    salvage_compressed(str(path), str(output), exists="replace", tick=lambda _: None)
    assert list(Reader(output)) == [b"record"]


def test_an_interruption_leaves_no_file(tmp_path):
    path, output = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"
    path.write_bytes(gzip.compress(frame(b"record")))

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        salvage_compressed(str(path), str(output), tick=stop)
    assert os.listdir(tmp_path) == ["a.tfrecord"]


def test_another_kind_of_file_is_refused(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(gzip.compress(b"<!DOCTYPE html><html></html>"))
    with pytest.raises(FormatError, match="inside is an HTML page"):
        salvage_compressed(str(path), None, tick=lambda _: None)


def _damaged(data: bytes, dice: random.Random, kinds: tuple[str, ...] = DAMAGES) -> bytes:
    """Damage bytes in one of the ways of disks, networks and tools."""
    size = len(data)
    at, count = dice.randrange(size), dice.choice([1, 8, 64, 512, 4096])
    other = dice.randrange(size)
    kind = dice.choice(kinds)
    if kind == "flip":
        return data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]
    if kind == "cut":
        return data[:at] + data[at + count :]
    if kind == "insert":
        return data[:at] + dice.randbytes(count) + data[at:]
    if kind == "zero":
        return (data[:at] + bytes(count) + data[at + count :])[:size]
    if kind == "duplicate":
        return data[: at + count] + data[at:]
    if kind == "end":
        return data[: max(at, 1)]
    first, second = sorted((at, other))
    count = min(count, second - first)
    a, b = data[first : first + count], data[second : second + count]
    return data[:first] + b + data[first + count : second] + a + data[second + count :]


def _decoded(data: bytes, decoder: "zlib._Decompress") -> bytes:
    """Return what zlib decodes before the first fault."""
    content = bytearray()
    try:
        for at in range(len(data)):
            content += decoder.decompress(data[at : at + 1])
    except zlib.error:
        pass
    return bytes(content)


def _stretches(data: bytes) -> Iterator[bytes]:
    """Yield what zlib decodes from each place at which a member, or a block but a fixed one, may begin."""
    for at, byte in enumerate(data):
        if byte & 15 == 8 or byte == 0x1F:
            yield _decoded(data[at:], zlib.decompressobj(47))
    for bit in range(8):
        shifted = (int.from_bytes(data, "little") >> bit).to_bytes(len(data), "little")
        for at, byte in enumerate(shifted):
            if byte >> 1 & 3 in (0, 2):
                yield _decoded(shifted[at:], zlib.decompressobj(-15, zdict=bytes(1 << 15)))


def _copies(content: bytes, record: bytes) -> int:
    """Count the places of a record and its checksum, with at most one flipped bit, which is corrected."""
    want = frame(record)[12:]
    half = len(want) // 2
    places = {found.start() for found in re.finditer(re.escape(want[:half]), content)}
    places |= {found.start() - half for found in re.finditer(re.escape(want[half:]), content)}
    found = (content[at : at + len(want)] for at in places if at >= 0)
    number = int.from_bytes(want, "little")
    return sum((int.from_bytes(other, "little") ^ number).bit_count() <= 1 for other in found)


@pytest.mark.parametrize("cut", range(6))
def test_a_zstd_frame_without_its_checksum_is_read_once(tmp_path, cut):
    record = random.Random(1).randbytes(30)
    data = packed(frame(record), "zstd", tmp_path)
    (tmp_path / "a").write_bytes(data[: len(data) - cut])
    report = salvage_compressed(str(tmp_path / "a"), None, tick=lambda _: None)
    assert report.items("kept") == (cut < 5)


@settings(max_examples=75, deadline=None)
@example(seed=1471841942, kind="zstd", damages=2)
@example(seed=2022597154, kind="zstd", damages=4)
@example(seed=13157, kind="zlib", damages=2)
@example(seed=124864677, kind="zlib", damages=2)
@example(seed=2466173585, kind="zlib", damages=3)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(KINDS), damages=st.integers(1, 4))
def test_random_damage_invents_nothing_and_keeps_undamaged_members(tmp_path_factory, seed, kind, damages):
    folder = tmp_path_factory.mktemp("damage")
    dice = random.Random(seed)
    records = records_of(seed, dice.randrange(1, 120))
    step = dice.randrange(1, len(records) + 1)
    groups = [records[at : at + step] for at in range(0, len(records), step)]
    level = dice.choice([0, 6])
    members = [packed(b"".join(map(frame, group)), kind, folder, level) for group in groups]
    data = b"".join(members)
    repeats = dice.random() < 0.3
    for _ in range(damages):
        data = _damaged(data, dice, DAMAGES if repeats else DAMAGES[:5]) or b"x"
    path, output = folder / "a.tfrecord", folder / "b.tfrecord"
    path.write_bytes(data)
    if len(data) < 16:  # Less than any record: it may look like another kind of file.
        return
    report = salvage_compressed(str(path), str(output), tick=lambda _: None)
    got = list(Reader(output)) if report.output else []
    assert set(got) <= set(records)
    # Damaged references can copy whole records, but then one pass of zlib decodes as many of them.
    for record, copies in () if repeats else Counter(got).items():
        if copies > 1:
            assert kind != "zstd"
            assert any(_copies(stretch, record) >= copies for stretch in _stretches(data))
    # A damaged stream may decode without an error into those after it, so these are claimed only before it.
    original = b"".join(members)
    size_bytes = next(
        (at for at, pair in enumerate(zip(data, original, strict=False)) if pair[0] != pair[1]), len(data)
    )
    ends = itertools.accumulate(map(len, members))
    whole = {one for group, end in zip(groups, ends, strict=True) if end <= size_bytes for one in group}
    assert whole <= set(got)
    assert len(got) == report.items("kept") + report.items("repaired")


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), damages=st.integers(1, 3))
def test_what_zlib_decodes_before_the_damage_is_kept(tmp_path_factory, seed, damages):
    folder = tmp_path_factory.mktemp("damage")
    dice = random.Random(seed)
    records = records_of(seed, 100)
    data = gzip.compress(b"".join(map(frame, records)))
    for _ in range(damages):
        data = _damaged(data, dice) or b"x"
    content = _decoded(data, zlib.decompressobj(31))
    # Brute force: each place at which a whole record begins.
    whole = {record for record in records if frame(record) in content}
    path = folder / "a.tfrecord"
    path.write_bytes(data)
    output = folder / "b.tfrecord"
    report = salvage_compressed(str(path), str(output), tick=lambda _: None)
    got = list(Reader(output)) if report.output else []
    assert whole <= set(got) <= set(records)
