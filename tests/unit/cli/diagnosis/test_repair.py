"""The command ``shardkeep repair``.

Covers `shardkeep.cli.output.repair`.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from shardkeep.cli.app import run
from shardkeep.cli.output.repair import damage_rows, lost_text, part_place, print_repair, verdict
from shardkeep.jobs import RepairedFile, RepairedPart, RepairReport, verify
from tests.unit.jobs.verification.damage import flip, records, shards


@pytest.fixture
def damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with one flipped bit, and one with a hole."""
    monkeypatch.chdir(tmp_path)
    flip(records(Path("flipped.tfrecord")), 50)
    path = records(Path("hole.tfrecord"))
    data = path.read_bytes()
    path.write_bytes(data[:1000] + bytes(300) + data[1300:])
    return path


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    return text


def test_a_flipped_bit_is_repaired(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["repair", "flipped.tfrecord", "new.tfrecord"]) == 0
    text = printed(capsys)
    assert "repaired  record 0" in text and "nothing is lost" in text
    assert text.splitlines()[-1] == "next     shardkeep verify new.tfrecord"
    assert verify("new.tfrecord").ok and "\x1b" not in text


def test_lost_records_are_findings(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["repair", "hole.tfrecord", "new"]) == 3
    text = printed(capsys)
    assert re.search(r"^lost +record", text, re.MULTILINE) and re.search(r"verdict +lost: ", text)
    assert verify("new").ok


def test_json_has_all(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["repair", "hole.tfrecord", "new", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["output"], found["dry_run"], found["intact"]) == (False, "new", False, 0)
    parts = found["files"][0]["parts"]
    assert {part["outcome"] for part in parts} == {"kept", "lost"}
    assert sum(part["bytes"] for part in parts) == damaged.stat().st_size


def test_a_dry_run_needs_no_output(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(os.listdir())
    assert run(["repair", "hole.tfrecord", "--dry-run"]) == 3
    assert "next     shardkeep repair hole.tfrecord hole.repaired.tfrecord" in printed(capsys)
    assert run(["repair", "flipped.tfrecord", "--dry-run"]) == 0
    assert sorted(os.listdir()) == before
    capsys.readouterr()
    assert run(["repair", ".", "--dry-run"]) == 3
    assert "next     shardkeep repair . OUT" in printed(capsys)
    assert run(["repair", "hole.tfrecord"]) == 2
    assert "pass the path of the new file or folder, or --dry-run" in capsys.readouterr().err


def test_an_output_that_exists(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("new").write_text("precious")
    assert run(["repair", "hole.tfrecord", "new"]) == 2
    assert "'new' exists: choose another name, or allow --exists replace" in capsys.readouterr().err
    assert run(["repair", "hole.tfrecord", "new", "--exists", "replace"]) == 3
    assert verify("new").ok


def test_exit_codes_of_errors(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("notes.txt").write_text("hello")
    Path("empty.tfrecord").touch()
    with open("hole.tfrecord", "ab"):
        assert run(["repair", "hole.tfrecord", "new"]) == 11
        assert f"pid {os.getpid()}" in capsys.readouterr().err
    for name, code in (("gone", 10), ("notes.txt", 2), ("empty.tfrecord", 3)):
        assert run(["repair", name, "new"]) == code
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1 and name in lines[0] and "shardkeep concat" not in lines[0]
    assert run(["repair", "hole.tfrecord", "hole.tfrecord", "--exists", "replace"]) == 2
    assert not Path("new").exists()


def test_a_file_of_which_nothing_can_be_kept(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("zeros.tfrecord").write_bytes(bytes(5000))
    assert run(["repair", "zeros.tfrecord", "new"]) == 3
    text = printed(capsys)
    assert "written  nothing, since nothing can be kept" in text and "next" not in text
    assert not Path("new").exists()


def test_an_undamaged_file_and_folder(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("data").mkdir()
    shards(Path("data"))
    assert run(["repair", "data/t-00000-of-00004", "new"]) == 0
    text = printed(capsys)
    assert "the file has no damage, and is copied unchanged" in text
    assert run(["repair", "data", "out"]) == 0
    text = printed(capsys)
    assert "nothing, since nothing is damaged" in text and "4 files without damage, not copied" in text


def test_a_folder(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("data").mkdir()
    for path in shards(Path("data"))[:2]:
        flip(path, 20)
    assert run(["repair", "data", "out"]) == 0
    text = printed(capsys)
    assert re.search(r"^t-00001-of-00004 +tfrecord +49 +1$", text, re.MULTILINE)
    assert "written  2 files in out" in text and "next     shardkeep verify out" in text


def test_many_parts_and_files_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    kept = RepairedPart("kept", "records", 5, 0, 100, 0)
    lost = [RepairedPart("lost", "a hole", 0, 100 * n, 50, n) for n in range(1000)]
    many = RepairedFile("data/a\x1b[31m", "out/a", "tfrecord", 100_000, (kept, *lost))
    print_repair(RepairReport("data", "out", False, (many,) * 50))
    text = printed(capsys)
    assert "… and 990 more: --json has all" in text and "… and 10 more: --json has all" in text
    assert "\x1b" not in text and r"a\x1b[31m" in text
    assert len(text.splitlines()) < 700


def test_datasets_with_one_reason_are_one_line() -> None:
    parts = [RepairedPart("unchecked", "no checksum", 1, dataset=f"/{n}") for n in range(8)]
    parts.insert(3, RepairedPart("lost", "wrong", 1, 0, 8, dataset="/x", chunk=(0,)))
    assert list(damage_rows(RepairedFile("a", "b", "hdf5", 9, tuple(parts)))) == [
        ("lost", "/x chunk 0, 8 bytes at 0", "wrong"),
        ("unchecked", "/0, /1, /2, /3, /4, /5 and 2 more", "no checksum"),
    ]


def test_texts_of_parts() -> None:
    row = RepairedPart("unchecked", "no checksum", 10, dataset="/x", chunk=(0, 100))
    record = RepairedPart("lost", "cut", 1, 17, 300, 4)
    hole = RepairedPart("lost", "a hole", 0, 2000, 4096, 9)
    assert part_place(row) == "/x chunk 0, 100"
    assert part_place(record) == "record 4, 300 bytes at 17"
    assert part_place(RepairedPart("lost", "nothing there")) == ""
    assert part_place(RepairedPart("kept", "", 6, 0, 60, 4)) == "records 4 to 9, 60 bytes at 0"
    file = RepairedFile("a", "b", "tfrecord", 5000, (record, hole))
    hdf5 = RepairedFile("a", "b", "hdf5", 5000, (row,))
    assert lost_text([file]) == "1 record, and 4.0 KiB in which no record is recognisable"
    assert verdict(RepairReport("a", "b", False, (hdf5,))) == "nothing is lost; some parts have no checksum"


def test_the_page_is_not_written_over_a_file_of_the_repair(
    damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = damaged.read_bytes()
    for page in ("hole.tfrecord", "new", "gone/page.html"):
        assert run(["repair", "hole.tfrecord", "new", "--html", page]) != 3
        assert not Path("new").exists()
    assert damaged.read_bytes() == before
    assert run(["repair", "hole.tfrecord", "new", "--html", "page.html"]) == 3
    assert "page     page.html" in printed(capsys)
    assert Path("page.html").read_text().startswith("<!doctype html>")
