from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardkeep.cli.app import run
from shardkeep.tfrecord import Writer
from tests.waiting import PATIENCE_S


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "live.tfrecord"
    with Writer(path) as writer:
        writer.write_example({"label": 1})
        writer.write(b"raw")
    return path


def test_content_is_listed(path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["follow", str(path), "--idle-timeout", "0"]) == 0
    assert capfdbinary.readouterr().out.startswith(b"record 0  ")
    assert run(["follow", str(path), "--idle-timeout", "0", "--json"]) == 0
    items = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [item["record"] for item in items] == [0, 1]
    assert run(["follow", str(path), "--idle-timeout", "0", "--raw"]) == 0
    assert capfdbinary.readouterr().out.endswith(b"raw")
    assert run(["follow", str(path), "--idle-timeout", "0", "--new"]) == 0
    assert capfdbinary.readouterr().out == b""


def test_options_exclude_each_other(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["follow", str(path), "--raw", "--json"]) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["follow", str(tmp_path / "x"), "--idle-timeout", "0"]) == 10
    assert "does not exist; waiting for it" in capsys.readouterr().err


@pytest.mark.parametrize("once", [False, True])
def test_it_prints_what_comes_and_tells_of_changes(path: Path, once: bool) -> None:
    command = [sys.executable, "-c", "from shardkeep.cli import main; main()", "follow", str(path), "--raw"]
    command += ["--once"] if once else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            seen = b""
            while not seen.endswith(b"raw"):
                seen += os.read(process.stdout.fileno(), 100)
            with Writer(path, exists="append") as writer:
                writer.write(b"later")
            assert os.read(process.stdout.fileno(), 100) == b"later"
            with Writer(path, exists="replace") as writer:
                writer.write(b"other")
            told = process.stderr.readline()
            assert b"replaced" in told
            if once:
                assert process.wait(timeout=PATIENCE_S) == 3
            else:
                assert os.read(process.stdout.fileno(), 100) == b"other"
        finally:
            process.kill()
