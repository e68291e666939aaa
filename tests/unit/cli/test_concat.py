from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from shardkeep.cli.app import run
from shardkeep.tfrecord import Reader, Writer


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, compression in (("in-a", None), ("in-b", "gzip")):
        with Writer(name, compression=compression) as w:
            w.write(name.encode())
    return tmp_path


def test_it_joins(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["concat", "in-a", "in-b", "out"]) == 0
    assert "2 records from 2 files" in capsys.readouterr().out
    assert list(Reader("out")) == [b"in-a", b"in-b"]
    assert run(["concat", "-o", "packed", "in-*", "--compression", "zlib", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["compression"] == "zlib"
    assert list(Reader("packed")) == [b"in-a", b"in-b"]


def test_bad_input_leaves_no_output(capsys: pytest.CaptureFixture[str]) -> None:
    Path("page").write_text("<!DOCTYPE html>")
    assert run(["concat", "in-a", "page", "out"]) == 2
    assert "an HTML page" in capsys.readouterr().err
    assert run(["concat", "in-a", "gone", "out"]) == 10
    assert run(["concat", "in-a", "in-b"]) == 2  # the last one is the output, and exists
    assert sorted(os.listdir()) == ["in-a", "in-b", "page"]
