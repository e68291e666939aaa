from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from shardkeep.cli.app import run
from shardkeep.tfrecord import Writer
from tests.waiting import PATIENCE_S


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.tfrecord"
    with Writer(path) as writer:
        for number in range(2000):
            writer.write_example({"label": number, "image": b"\x89PNG"})
    return path


def test_for_people(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cat", str(path), "--skip", "3", "-n", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("record 3  ")
    assert lines[1:] == ["  image  bytes    '\\x89PNG'", "  label  int64    3"]


def test_for_programs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cat", str(path), "--json"]) == 0
    items = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [item["features"]["label"]["values"] for item in items] == [[number] for number in range(2000)]


def test_raw_is_the_record_itself(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with Writer(tmp_path / "a") as writer:
        writer.write(b"\x00\xff\r\n")
        writer.write(b"rest")
    assert run(["cat", str(tmp_path / "a"), "--raw"]) == 0
    assert capfdbinary.readouterr().out == b"\x00\xff\r\nrest"


def test_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3)
        file["y"] = np.array([np.nan, 1], "f4")
    assert run(["cat", str(path), "x", "--skip", "1"]) == 0
    assert run(["cat", str(path), "y", "--json", "-n", "1"]) == 0
    assert capsys.readouterr().out == '1  1\n2  2\n{"dataset": "/y", "row": 0, "value": "NaN"}\n'
    assert run(["cat", str(path)]) == 2
    assert "pass the name of one of its datasets as --dataset: x, y" in capsys.readouterr().err
    assert run(["cat", str(tmp_path), "--dataset", "x", "-n", "1"]) == 0
    assert run(["cat", str(path), "x", "--raw"]) == 2
    assert "--raw is for the records" in capsys.readouterr().err


def test_a_file_without_datasets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    h5py.File(tmp_path / "a.h5", "w").close()
    for option in ([], ["--dataset", "x"]):
        assert run(["cat", str(tmp_path / "a.h5"), *option]) == 2
        assert capsys.readouterr().err == f"shardkeep: error: {tmp_path}/a.h5: it has no dataset\n"


def test_raw_and_json_exclude_each_other(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cat", str(path), "--raw", "--json"]) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_what_comes_before_damage_is_shown(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert run(["cat", str(path)]) == 3
    out, err = capsys.readouterr()
    assert out.count("record ") == 1999
    assert "record 1999" in err


def test_a_reader_that_leaves_is_no_error(path: Path) -> None:
    command = [sys.executable, "-c", "from shardkeep.cli import main; main()", "cat", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"record 0")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=PATIENCE_S) == 0
