"""Paths in a log that exist here, and what they are.

Covers `shardkeep.diagnosis.explanation.diagnosis`, `shardkeep.diagnosis.explanation.log` and
`shardkeep.diagnosis.explanation.machine`.
"""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import pytest

from shardkeep.diagnosis.explanation.paths import existing_paths, inspect
from shardkeep.tfrecord import Writer


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name in ("data/a.h5", "data/b c.h5", "tool.py"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("no such file: 'data/a.h5'", ["data/a.h5"]),
        ("name = 'data/b c.h5', errno = 5", ["data/b c.h5"]),
        ("reading data/a.h5: Input/output error", ["data/a.h5"]),
        ("data/a.h5; Too many open files", ["data/a.h5"]),
        ("file </data/no.h5>", []),
        ('  File "tool.py", line 3, in f', []),
        ("see tool.py and data/none.h5", []),
        ("data/a.h5 and again data/a.h5", ["data/a.h5"]),
        ("a word: 'data'", []),
    ],
)
def test_paths_are_found_in_a_text(text: str, found: list[str]) -> None:
    assert existing_paths(text) == found


def test_an_absolute_path_is_found(folder: Path) -> None:
    assert existing_paths(f"cannot read {folder}/data/a.h5, stopping") == [f"{folder}/data/a.h5"]


def test_a_program_is_no_data(folder: Path) -> None:
    (folder / "data/run").touch(mode=0o755)
    assert existing_paths("data/run failed") == []


def test_an_intact_and_a_damaged_file(folder: Path) -> None:
    with Writer(folder / "data/r.tfrecord") as writer:
        writer.write(b"one")
    assert inspect("data/r.tfrecord").found.endswith("; intact")
    data = bytearray((folder / "data/r.tfrecord").read_bytes())
    data[12] ^= 3
    (folder / "data/r.tfrecord").write_bytes(data)
    assert "record 0" in inspect("data/r.tfrecord").found


def test_an_hdf5_file_and_an_empty_one(folder: Path) -> None:
    with h5py.File("data/x.h5", "w") as file:
        file["x"] = 1
    assert inspect("data/x.h5").found.startswith("an HDF5 file, ")
    assert "0 bytes" in inspect("data/a.h5").found


def test_a_pipe_does_not_block(folder: Path) -> None:
    os.mkfifo(folder / "data/pipe")
    assert "pipe" in inspect("data/pipe").found
