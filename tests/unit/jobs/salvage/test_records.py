"""Salvage of uncompressed records: every whole record and every flipped bit, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import shardkeep as sk
from shardkeep.errors import CorruptDataError, ExistsError, FormatError
from shardkeep.jobs.salvage.records import salvage_records
from shardkeep.jobs.salvage.report import RepairedFile
from shardkeep.tfrecord import Reader
from tests.odd_files import frame, header

RECORDS = [b"%04d" % i * 50 for i in range(10)]
FRAMES = [frame(record) for record in RECORDS]
GOOD = b"".join(FRAMES)


def salvage(tmp_path: Path, data: bytes, name: str = "damaged.tfrecord") -> tuple[RepairedFile, list[bytes]]:
    """Return the report and the records of the result; check what holds for every file."""
    path, output = tmp_path / name, tmp_path / "output.tfrecord"
    path.write_bytes(data)
    output.unlink(missing_ok=True)
    ticks: list[int] = []
    report = salvage_records(str(path), str(output), tick=ticks.append)
    assert salvage_records(str(path), None, tick=lambda _: None).parts == report.parts
    assert sum(ticks) == len(data) == report.file_bytes
    assert path.read_bytes() == data
    end = 0
    for part in report.parts:
        assert part.offset_bytes == end and part.bytes
        end += part.bytes
    assert end == len(data)
    records = list(Reader(output)) if report.output is not None else []
    assert len(records) == report.items("kept") + report.items("repaired")
    assert output.exists() == bool(records)
    return report, records


def test_flipped_bit_is_corrected_and_whole_records_are_one_part(tmp_path: Path) -> None:
    data = bytearray(GOOD)
    data[216 * 3 + 50] ^= 1
    report, records = salvage(tmp_path, bytes(data))
    assert records == RECORDS and report.ok
    assert [(part.outcome, part.items, part.record) for part in report.parts] == [
        ("kept", 3, 0),
        ("repaired", 1, 3),
        ("kept", 6, 4),
    ]
    assert report.parts[1].reason == "bit 0 of byte 38 of the payload was flipped"


@pytest.mark.parametrize(
    ("data", "whole", "lost"),
    [
        (GOOD, 10, []),
        (frame(b"") + frame(b"abc") + frame(b""), 3, []),
        (GOOD + header(200)[:5], 10, [(10, 2160, 5)]),
        (GOOD + header(200)[:11], 10, [(10, 2160, 11)]),
        (GOOD + header(200), 10, [(10, 2160, 12)]),
        (GOOD + FRAMES[0][:-2], 10, [(10, 2160, 214)]),
        (GOOD + bytes(4096), 10, [(10, 2160, 4096)]),
        (GOOD + header(1 << 40) + b"x" * 100, 10, [(10, 2160, 112)]),
        (header(1 << 40) + GOOD, 10, [(0, 0, 12)]),
        (GOOD[:500] + bytes(512) + GOOD[1012:], 7, [(2, 432, 216), (3, 648, 432)]),
        (b"x" + GOOD, 10, [(0, 0, 1)]),
        (GOOD[:300] + GOOD[310:], 9, [(1, 216, 206)]),
        (b"\x80\xff\x81no record", 0, [(0, 0, 12)]),
    ],
)
def test_whole_records_are_kept_after_any_damage(
    tmp_path: Path, data: bytes, whole: int, lost: list[tuple[int, int, int]]
) -> None:
    report, records = salvage(tmp_path, data)
    assert len(records) == report.items("kept") == whole
    got = [(part.record, part.offset_bytes, part.bytes) for part in report.parts if part.outcome == "lost"]
    assert got == lost
    numbers = {(one.record, one.offset_bytes) for one in sk.verify(tmp_path / "damaged.tfrecord").findings}
    assert {(record, offset) for record, offset, _ in got} <= numbers


def test_lost_file_version_of_an_event_file_is_named(tmp_path: Path) -> None:
    version, event = frame(b"\x1a\x0dbrain.Event:2"), frame(b"\x10\x05")
    report, records = salvage(tmp_path, bytes(9) + version[9:-1] + b"?" + event, "events.out.tfevents.1.host")
    assert records == [b"\x10\x05"]
    assert "file version" in report.parts[0].reason
    report, _ = salvage(tmp_path, b"?" + version + event, "events.out.tfevents.1.host")
    assert "file version" not in report.parts[0].reason


def test_other_kinds_and_an_existing_output_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="an HTML page"):
        salvage(tmp_path, b"<!DOCTYPE html><title>Sign in</title>")
    (tmp_path / "x").write_bytes(GOOD + b"?")
    with pytest.raises(ExistsError):
        salvage_records(str(tmp_path / "x"), str(tmp_path / "x"), tick=lambda _: None)


def test_file_that_changes_during_the_salvage_is_refused(tmp_path: Path) -> None:
    path, output = tmp_path / "x", tmp_path / "y"
    path.write_bytes(GOOD + b"?")

    def change(_: int) -> None:
        path.write_bytes(GOOD[:400])
        os.utime(path, ns=(1, 1))

    with pytest.raises(CorruptDataError, match="changes while"):
        salvage_records(str(path), str(output), tick=change)
    assert not output.exists()
