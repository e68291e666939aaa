from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from shardkeep.cli.app import run
from shardkeep.tfrecord import Reader, decode_example
from tests.unit.jobs.packing import image

PATTERN = "out-{shard}-of-{shards}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for label in ("cat", "dog"):
        (tmp_path / "pets" / label).mkdir(parents=True)
        for i in range(3):
            (tmp_path / "pets" / label / f"{i}.png").write_bytes(image(seed=i))
    return tmp_path


def test_images(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--shards", "2", "--shuffle", "7", "--labels-path", "labels.json"]
    assert run(["pack", "pets", PATTERN, *arguments]) == 0
    printed, errors = capsys.readouterr()
    assert errors == ""
    assert "6 records from pets (images), shuffled with seed 7" in printed
    assert "0 cat, 1 dog" in printed
    assert max(map(len, printed.splitlines())) <= 80
    assert json.loads(Path("labels.json").read_text()) == {"cat": 0, "dog": 1}
    assert len(list(Reader("out-0-of-2"))) == 3
    assert run(["pack", "pets", "-o", "x{shard}", "--labels", "labels.json", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["records"], report["labels"]) == (6, {"cat": 0, "dog": 1})


def test_a_bad_image(capsys: pytest.CaptureFixture[str]) -> None:
    Path("pets/dog/\x1b[31m.png").write_text("hello")
    assert run(["pack", "pets", PATTERN]) == 2
    error = capsys.readouterr().err
    assert r"pets/dog/\x1b[31m.png: plain text" in error
    assert "\x1b" not in error
    assert sorted(os.listdir()) == ["pets"]
    assert run(["pack", "pets", PATTERN, "--on-bad", "skip"]) == 0
    printed = capsys.readouterr().out
    assert "1 bad record" in printed
    assert "\x1b" not in printed


def test_columns(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.csv").write_text("id,x\n1,2\n")
    assert run(["pack", "t.csv", PATTERN, "--dtype", "id=bytes", "--dtype", "x=float32"]) == 0
    assert "id bytes, x float32" in capsys.readouterr().out
    (record,) = Reader("out-0-of-1")
    assert decode_example(record)["id"] == [b"1"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["pets"], 2, "SOURCES... PATTERN"),
        (["gone", PATTERN], 10, "gone"),
        (["pets", PATTERN, "--shards", "2", "--shard-bytes", "1MB"], 2, "one of"),
        (["pets", PATTERN, "--dtype", "a"], 2, "COLUMN="),
        (["pets", PATTERN, "--dtype", "a=int"], 2, "COLUMN="),
        (["pets", PATTERN, "--dtype", "a=bytes"], 2, "CSV"),
    ],
)
def test_invalid_arguments_are_refused(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pack", *arguments]) == code
    assert message in capsys.readouterr().err
    assert sorted(os.listdir()) == ["pets"]


def test_other_files_at_the_top_are_left_out_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    Path("pets/README.md").write_text("# Pets")
    Path("pets/.DS_Store").write_bytes(b"\0\0\0\1Bud1")
    Path("pets/labels.csv").write_text("a,b\n")
    assert run(["pack", "pets", PATTERN]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "left out 3 files without an image" in printed
    assert "at the top of pets: .DS_Store, README.md, labels.csv" in printed
    assert run(["pack", "pets", "y{shard}", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["records"], report["left_out"], report["labels"]) == (6, 3, {"cat": 0, "dog": 1})


@pytest.mark.parametrize("name", ["0.png", "photo.gif", "scan.tiff", "no-suffix"])
def test_images_at_the_top_are_not_left_out(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("pets", name).write_bytes(image(seed=1))
    assert run(["pack", "pets", PATTERN]) == 2
    assert f"has both images and folders of images ({name} and cat/)" in capsys.readouterr().err


@pytest.mark.filterwarnings("default")
def test_more_shards_than_records(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pack", "pets", PATTERN, "--shards", "10"]) == 0
    assert "4 of 10 shards have no record, since there are only 6 records" in capsys.readouterr().err
    assert run(["pack", "pets", "z{shard}", "--shard-bytes", "20"]) == 0
    assert "more than the 20 of a shard" in capsys.readouterr().err
