"""The command ``shardkeep verify``.

Covers `shardkeep.cli.output.verify`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardkeep.cli.app import run
from shardkeep.tfrecord import Writer


@pytest.fixture
def shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    with Writer("a.tfrecord") as writer:
        writer.write(b"one")
        writer.write(b"two")
    return Path("a.tfrecord")


def test_clean(shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "a.tfrecord"]) == 0
    printed = capsys.readouterr().out
    assert "all files are intact" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_damaged(shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(shard.read_bytes())
    data[13] ^= 1
    shard.write_bytes(data)
    assert run(["verify", "a.tfrecord"]) == 3
    printed = capsys.readouterr().out
    assert "DAMAGED" in printed and "record 0" in printed
    assert run(["verify", "a.tfrecord", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert not found["ok"] and found["files"][0]["items"] == 1


def test_not_there(shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "gone.h5"]) == 10
