from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardkeep.cli.app import run
from shardkeep.tfrecord import Writer, infer_schema


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a"
    with Writer(path) as writer:
        writer.write_example({"x": 1})
        writer.write_example({"x": 2, "y": b"z"})
    assert run(["schema", str(path)]) == 0
    assert capsys.readouterr().out == infer_schema(path).source() + "\n"
    assert run(["schema", str(path), "--json", "--sample", "1"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "records": 1,
        "files": 1,
        "features": {
            "x": {
                "feature": 'FixedLen((), "int64")',
                "kind": "int64",
                "records": 1,
                "smallest_length": 1,
                "largest_length": 1,
                "images": [],
            }
        },
    }
    assert run(["schema", str(path), "--all", "--sample", "1"]) == 0
    assert "inferred from 2 records" in capsys.readouterr().out
