"""The page of a repair."""

from __future__ import annotations

import re
from pathlib import Path

from shardkeep.cli.output.repair_page import repair_page, write_page
from shardkeep.jobs import RepairedFile, RepairedPart, RepairReport


def file(parts: int, name: str = "data/a.tfrecord") -> RepairedFile:
    found = []
    for number in range(parts):
        found.append(RepairedPart("kept", "records", 10, 1100 * number, 1000, 10 * number))
        found.append(RepairedPart("lost", "a hole", 0, 1100 * number + 1000, 100, 10 * number + 10))
    return RepairedFile(name, "out", "tfrecord", 1100 * parts, tuple(found))


def strips(page: str) -> list[list[tuple[str, int, int]]]:
    return [
        [
            (kind, int(x), int(width))
            for kind, x, width in re.findall(r'<rect class="(\w+)" x="(\d+)" width="(\d+)"', one)
        ]
        for one in re.findall(r'<svg class="map".*?</svg>', page, re.DOTALL)
    ]


def test_the_map_shows_each_part_in_its_place() -> None:
    parts = (
        RepairedPart("kept", "", 1, 0, 400, 0),
        RepairedPart("repaired", "", 1, 400, 100, 1),
        RepairedPart("unchecked", "", 1, 500, 100, 2),
        RepairedPart("lost", "", 0, 700, 200, 3),
    )
    page = repair_page(RepairReport("a", "b", False, (RepairedFile("a", "b", "tfrecord", 900, parts),)))
    assert strips(page) == [
        [("kept", 0, 400), ("repaired", 400, 100), ("unchecked", 500, 100), ("lost", 700, 200)]
    ]


def test_one_lost_byte_of_a_large_file_is_seen() -> None:
    size = 5 << 30
    parts = (
        RepairedPart("kept", "", 9, 0, size // 2, 0),
        RepairedPart("lost", "", 0, size // 2, 1, 9),
        RepairedPart("kept", "", 9, size // 2 + 1, size // 2 - 1, 10),
    )
    page = repair_page(RepairReport("a", "b", False, (RepairedFile("a", "b", "tfrecord", size, parts),)))
    assert strips(page) == [[("kept", 0, 450), ("lost", 450, 1), ("kept", 451, 449)]]


def test_without_places_the_map_is_one_of_rows() -> None:
    parts = (RepairedPart("kept", "", 75, dataset="/x"), RepairedPart("lost", "", 25, dataset="/y"))
    page = repair_page(RepairReport("a", "b", False, (RepairedFile("a", "b", "hdf5", 900, parts),)))
    assert strips(page) == [[("kept", 0, 75), ("lost", 75, 25)]] and "100 rows, from left to right" in page
    nothing = RepairedFile("a", None, "hdf5", 0, (RepairedPart("lost", "empty"),))
    assert strips(repair_page(RepairReport("a", None, False, (nothing,)))) == []


def test_a_page_of_very_many_parts_and_files_stays_small(tmp_path: Path) -> None:
    write_page(str(tmp_path / "page"), RepairReport("a", "b", False, (file(50_000),)))
    assert (tmp_path / "page").stat().st_size < 200_000
    many = RepairReport("data", "out", False, tuple(file(100, f"data/{n}") for n in range(3000)), 7)
    page = repair_page(many)
    assert len(page) < 3_000_000
    assert "… and 2,900 more files: --json has all." in page and "and 1,000 more files" in page
    assert "3,000 damaged files, 7 without damage" in page


def test_names_from_files_are_escaped(tmp_path: Path) -> None:
    part = RepairedPart("lost", "<script>alert(1)</script>", dataset="/<b>\x1b")
    report = RepairReport("<i>", "b", False, (RepairedFile("<i>\udcff", "b", "hdf5", 10, (part,)),))
    write_page(str(tmp_path / "page"), report)
    page = (tmp_path / "page").read_text()
    assert "<script>" not in page and "<b>" not in page and "<i>" not in page
    assert "/&lt;b&gt;\\x1b" in page and "&lt;i&gt;\\xff" in page


def test_the_page_of_a_dry_run_and_of_nothing() -> None:
    assert "a dry run: no new file was written" in repair_page(RepairReport("a", None, True, (file(1),)))
    clean = repair_page(RepairReport("a", "b", False, (), 1))
    assert "nothing is lost" in clean and "<h2>Damage" not in clean
