from __future__ import annotations

import json
from pathlib import Path

import h5py
import pytest

from shardkeep.cli.app import run
from shardkeep.hdf5 import WorkerFile, merge
from shardkeep.tfrecord import Writer
from shardkeep.world import World

SHOWN = """\
file         {path}
kind         TFRecord, every checksum holds
size         {size}
records      1
record size  {payload} to {payload} bytes, mean {payload}

feature of the first record  type   values  begins
label                        int64       1  3
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    with Writer("a.tfrecord") as writer:
        writer.write_example({"label": 3})
    return Path("a.tfrecord")


def test_for_people(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info", str(path)]) == 0
    size = path.stat().st_size
    assert capsys.readouterr().out == SHOWN.format(path=path, size=f"{size} bytes", payload=size - 16)


def test_for_programs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 1


def test_without_examples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Writer(tmp_path / "a", compression="gzip") as writer:
        writer.write(b"hello")
    assert run(["info", str(tmp_path / "a")]) == 0
    printed = capsys.readouterr().out
    assert "TFRecord, gzip-compressed, every checksum holds" in printed
    assert "first record  text" in printed


def test_a_name_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a\x1b[31m.tfrecord"
    path.touch()
    assert run(["info", str(path)]) == 0
    path.write_text("hello")
    assert run(["info", str(path)]) == 2
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert "a\\x1b[31m.tfrecord" in "".join(out.split())
    assert "a\\x1b[31m.tfrecord" in err


@pytest.mark.parametrize(
    ("damage", "code", "words"),
    [
        (lambda path: path.unlink(), 10, "no such file"),
        (lambda path: path.write_text("<html>"), 2, "found an HTML page"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), 3, "a.tfrecord"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"?"), 3, "record 0"),
    ],
)
def test_bad_input(path: Path, capsys: pytest.CaptureFixture[str], damage, code: int, words: str) -> None:  # type: ignore[no-untyped-def]
    damage(path)
    assert run(["info", str(path)]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("shardkeep: error: ")
    assert words in err


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_names_from_a_file_do_not_steer_the_terminal(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "x\x9b31m\u202e\u2028"
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file[name] = [1]
        file[name].attrs[name] = name
    assert run(["info", *options, str(tmp_path / "a.h5")]) == 0
    shown = capsys.readouterr().out
    assert "31m" in shown
    assert not [char for char in shown if not char.isprintable() and char != "\n"]


def test_folder(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.tfrecord.lock").touch()
    Path("b.tfrecord").touch()
    assert run(["info", "."]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "entries 3 records 1" in printed
    assert "a TFRecord file 1 " in printed and "a lock file 1 0 bytes" in printed
    assert "a data file that cannot be read 1" in printed
    assert "b.tfrecord: has no bytes" in printed
    assert "a.tfrecord.lock" not in printed


def test_merged_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank, steps in ((0, (10, 20)), (1, (10,))):
        with WorkerFile(tmp_path / "run", World(rank, 3)) as out:
            for step in steps:
                out.append("x", [1.0])
                out.commit(step=step)
    merge(tmp_path / "run", tmp_path / "all.h5", incomplete="allow")
    assert run(["info", str(tmp_path / "all.h5")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "kind HDF5, merged size" in printed
    assert "ranks 2, 0 to 1 steps 10 to 20; rank 1 ends at 10 order rank sources 3 files in" in printed
    assert "receipts 0 incomplete rank 2 of 3 has no commit" in printed


def test_an_empty_file_is_named_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.tfrecord", "a.h5"):
        (tmp_path / name).touch()
        assert run(["info", str(tmp_path / name)]) == 0
        printed = " ".join(capsys.readouterr().out.split())
        assert "kind empty: a TFRecord file without records, or what a killed writer left size" in printed
