from __future__ import annotations

import os
import random
import shlex
from pathlib import Path

import pytest

from shardkeep.cli.app import run
from shardkeep.files.kinds.kind import identify
from shardkeep.jobs.verification.records import check_records
from shardkeep.jobs.verification.report import VerifiedFile
from shardkeep.loader import Loader
from shardkeep.tfrecord import Writer
from shardkeep.world import World
from tests.unit.jobs.verification.damage import flip, records


def check(path: Path) -> VerifiedFile:
    ticks: list[int] = []
    result = check_records(str(path), identify(path), path.stat().st_size, ticks.append)
    assert not ticks or sum(ticks) == path.stat().st_size
    return result


def skipped(path: Path) -> list[tuple[int, int, int]]:
    """Return number, offset and size of the records that a Loader skips."""
    loader = Loader([path], batch_size=16, world=World(0, 1), on_corrupt="skip")
    for _ in loader:
        pass
    entries = loader.receipt().get("skipped", ())
    return sorted((record, start, stop - start) for _, record, start, stop in entries)


def found(path: Path) -> list[tuple[int | None, int | None, int | None]]:
    return [(one.record, one.offset_bytes, one.bytes) for one in check(path).findings]


def test_check_continues_after_damage(tmp_path: Path) -> None:
    path = records(tmp_path / "a.tfrecord")
    for offset in (300, 3000, 6000):
        flip(path, offset)
    os.truncate(path, path.stat().st_size - 5)
    result = check(path)
    assert result.items == 96
    assert [one.kind for one in result.findings] == ["damage", "damage", "damage", "truncated"]
    assert all(str(path) in one.message for one in result.findings)
    assert found(path) == skipped(path)
    assert [one.record for one in result.findings][-1] == 99
    assert os.listdir(tmp_path) == ["a.tfrecord"]


def test_numbers_count_the_records_before(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    with Writer(path) as writer:
        for _ in range(10):
            writer.write(bytes(84))
    for offset in (200, 230, 500, 503, 700):  # payload and length of record 2, lengths of 5, of 7
        flip(path, offset)
    assert found(path) == skipped(path) == [(2, 200, 100), (5, 500, 100), (7, 700, 100)]
    assert check(path).items == 7


@pytest.mark.parametrize("seed", range(20))
def test_numbers_are_those_of_a_receipt(seed: int, tmp_path: Path) -> None:
    random_numbers = random.Random(seed)
    path = tmp_path / "a.tfrecord"
    with Writer(path) as writer:
        for _ in range(60):
            writer.write(random_numbers.randbytes(random_numbers.choice([0, 3, 40, 200])))
    data = bytearray(path.read_bytes())
    for _ in range(random_numbers.randrange(1, 8)):
        at = random_numbers.randrange(len(data))
        data[at : at + random_numbers.choice([1, 1, 12, 300])] = random_numbers.randbytes(
            random_numbers.choice([1, 1, 12, 300])
        )
    path.write_bytes(data[: len(data) - random_numbers.choice([0, 5, 30])])
    assert found(path) == skipped(path)


def test_numbers_are_those_of_a_receipt_in_a_file_with_an_index(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    with Writer(path) as writer:
        for _ in range(300):
            writer.write(bytes(range(250)) * 20)
    for offset in (1_000_000, 5016 * 120 + 2, 5016 * 120 + 5, 5016 * 121 + 700):
        flip(path, offset)
    before = found(path)
    assert os.listdir(tmp_path) == ["a.tfrecord"]
    assert before == skipped(path) == found(path)
    assert [number for number, _, _ in before] == [120, 198]  # records 120 and 121 are one hole


def test_many_damaged_records_are_counted(tmp_path: Path) -> None:
    path = records(tmp_path / "a.tfrecord")
    data = bytearray(path.read_bytes())
    for at in range(20, len(data), 97):
        data[at] ^= 1
    path.write_bytes(data)
    damaged = skipped(path)
    result = check(path)
    assert len(result.findings) == 21
    assert f"{len(damaged) - 20} more damaged records" in result.findings[-1].message
    assert result.items == 100 - len(damaged)


def test_start_of_a_file_that_is_a_hole(tmp_path: Path) -> None:
    path = records(tmp_path / "a.tfrecord")
    path.write_bytes(bytes(512) + path.read_bytes()[512:])
    result = check(path)
    assert [(one.record, one.offset_bytes) for one in result.findings] == [(0, 0)]
    assert result.items > 90
    path.write_bytes(bytes(512))
    assert [one.bytes for one in check(path).findings] == [512]


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_compressed_file_is_checked_up_to_its_damage(compression: str, tmp_path: Path) -> None:
    path = records(tmp_path / "a.tfrecord", 3000, compression)
    assert check(path).findings == () and check(path).items == 3000
    flip(path, path.stat().st_size // 2)
    (finding,) = check(path).findings
    assert finding.message.endswith("the records after it were not checked")
    assert finding.record == check(path).items and finding.offset_bytes is None
    path.write_bytes(path.read_bytes()[:-9])
    assert check(path).findings


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_command_keeps_the_undamaged_records(compression: str | None, tmp_path: Path) -> None:
    path = records(tmp_path / "a b.tfrecord", 3000, compression)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2 + 40)  # in a payload
        file.write(b"damage")
    result = check(path)
    (finding,) = result.findings
    assert finding.next == f"shardkeep repair '{path}' '{tmp_path}/a b.repaired.tfrecord'"
    assert run(shlex.split(finding.next)[1:]) == 3
    assert check(tmp_path / "a b.repaired.tfrecord").items >= result.items > 0
    assert not check(tmp_path / "a b.repaired.tfrecord").findings


def test_single_flipped_bits_are_repaired_by_the_command(tmp_path: Path) -> None:
    path = records(tmp_path / "a.tfrecord", 3000)
    whole = path.read_bytes()
    data = bytearray(whole)
    for offset_bytes in (40, len(data) // 2, len(data) - 20):
        data[offset_bytes] ^= 8
    path.write_bytes(data)
    commands = {one.next for one in check(path).findings}
    assert commands == {f"shardkeep repair {path} {tmp_path}/a.repaired.tfrecord"}
    assert run(shlex.split(commands.pop())[1:]) == 0
    assert (tmp_path / "a.repaired.tfrecord").read_bytes() == whole


def test_the_progress_moves_within_a_compressed_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord.gz"
    with Writer(path, compression="gzip") as writer:
        for number in range(24):
            writer.write(random.Random(number).randbytes(1 << 20))
    ticks: list[int] = []
    check_records(str(path), identify(path), path.stat().st_size, ticks.append)
    assert len(ticks) > 3
    assert sum(ticks) == path.stat().st_size
