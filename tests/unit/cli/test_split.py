"""The command ``shardkeep split``.

Covers `shardkeep.cli.options.shards` and `shardkeep.cli.output.shards`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from shardkeep.cli.app import run
from shardkeep.cli.options.shards import SIZE
from shardkeep.tfrecord import Reader, Writer

PATTERN = "out-{shard}-of-{shards}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in "ab":
        with Writer(f"in-{name}") as w:
            for i in range(10):
                w.write(name.encode() * i)
    return tmp_path


def shards() -> list[str]:
    return sorted(name for name in os.listdir() if name.startswith("out"))


@pytest.mark.parametrize(
    "sources",
    [["in-a", "in-b", PATTERN], ["in-?", PATTERN], ["-o", PATTERN, "in-a", "in-b"]],
)
def test_every_form_of_the_call(sources: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["split", *sources, "--shards", "4", "--mode", "round-robin"]) == 0
    printed, errors = capsys.readouterr()
    assert errors == ""
    assert "20 records from 2 files" in printed
    assert "4 files, round-robin" in printed
    assert max(map(len, printed.splitlines())) <= 80
    assert shards() == [f"out-{i}-of-4" for i in range(4)]
    assert list(Reader("out-1-of-4")) == [b"a", b"a" * 5, b"a" * 9, b"b" * 3, b"b" * 7]


def test_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["split", "in-a", PATTERN, "--shard-records", "4", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [one["records"] for one in report["outputs"]] == [4, 4, 2]
    assert (report["mode"], report["verified"], len(report["digest"])) == ("contiguous", True, 16)


def test_by_bytes_and_compressed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["split", "in-a", PATTERN, "--shard-bytes", "0.1kB", "--compression", "gzip"]) == 0
    assert len(shards()) == 3
    assert Reader("out-0-of-3").compression == "gzip"


@pytest.mark.filterwarnings("ignore:.*shards have no record")
def test_many_files_are_not_all_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["split", "in-a", PATTERN, "--shards", "200"]) == 0
    printed = capsys.readouterr().out
    assert "… 189 more …" in printed
    assert "out-199-of-200" in printed


def test_damage_and_its_absence(capsys: pytest.CaptureFixture[str]) -> None:
    content = bytearray(Path("in-a").read_bytes())
    content[-5] ^= 1
    Path("in-a").write_bytes(content)
    assert run(["split", "in-a", PATTERN, "--shards", "2"]) == 3
    assert "in-a: record 9 at byte " in capsys.readouterr().err
    assert shards() == []
    assert run(["split", "in-a", PATTERN, "--shards", "2", "--no-verify"]) == 0
    assert "not the payloads" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["in-a"], 2, "SOURCES... PATTERN"),
        (["in-a", PATTERN], 2, "one of --shards,"),
        (["in-a", PATTERN, "--shards", "0"], 2, "--shards"),
        (["in-a", PATTERN, "--shard-bytes", "12X"], 2, "128MiB"),
        (["in-a", "same", "--shards", "2"], 2, "the same name"),
        (["gone", PATTERN, "--shards", "2"], 10, "gone"),
    ],
)
def test_invalid_arguments_are_refused(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["split", *arguments]) == code
    assert message in capsys.readouterr().err
    assert shards() == []


def test_nothing_is_overwritten_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    Path("out-1-of-2").write_text("mine")
    assert run(["split", "in-a", PATTERN, "--shards", "2"]) == 2
    assert shards() == ["out-1-of-2"]
    assert run(["split", "in-a", PATTERN, "--shards", "2", "--exists", "replace"]) == 0


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("500000", 500_000),
        ("1k", 1000),
        ("1 KiB", 1024),
        ("100MB", 100_000_000),
        ("128mib", 128 << 20),
        ("1.5g", 1_500_000_000),
        ("2TiB", 2 << 40),
        ("7B", 7),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert SIZE.convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "x", "-1", "0", "1.5.2k", "5iB", "1e9", "0.1"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(click.BadParameter):
        SIZE.convert(text, None, None)


@pytest.mark.filterwarnings("default")
def test_records_larger_than_a_shard(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["split", "in-a", PATTERN, "--shard-bytes", "20"]) == 0
    assert "the largest record has 25 bytes, more than the 20 of a shard" in capsys.readouterr().err


def test_a_warning_is_one_line_of_the_command(folder: Path) -> None:
    command = [sys.executable, "-m", "shardkeep", "split", "in-a", PATTERN, "--shards", "20"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == (
        f"shardkeep: warning: {PATTERN}: 10 of 20 shards have no record, since there are only 10 records;"
        " choose fewer shards\n"
    )
