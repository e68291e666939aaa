from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardkeep.cli.app import run
from shardkeep.tfrecord import Writer, read_text_index
from shardkeep.tfrecord.index.index import load_index


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{shard:02d}.tfrecord" for shard in range(15)]
    for shard, path in enumerate(paths):
        with Writer(path) as writer:
            for _ in range(shard):
                writer.write(b"x" * shard)
    return paths


def test_for_people(paths: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["index", str(tmp_path / "*.tfrecord")]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "105 records in 15 files"
    assert "… 4 more …" in out
    assert all((tmp_path / f"{path.name}.skidx").exists() for path in paths)


def test_for_programs(paths: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["index", str(paths[3]), str(paths[0]), "--verify", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"path": str(paths[3]), "records": 3, "bytes": 57},
        {"path": str(paths[0]), "records": 0, "bytes": 0},
    ]


def test_text(paths: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["index", str(paths[3]), "--text", ".idx"]) == 0
    assert read_text_index(f"{paths[3]}.idx", paths[3]) == load_index(paths[3])
    assert run(["index", str(paths[3]), "--text", ".idx"]) == 2
    assert "replace" in capsys.readouterr().err
    assert run(["index", str(paths[3]), "--text", ".idx", "--exists", "replace"]) == 0


def test_only_verify_sees_the_payload(paths: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    content = bytearray(paths[3].read_bytes())
    content[13] ^= 1
    paths[3].write_bytes(content)
    assert run(["index", str(paths[3])]) == 0
    assert run(["index", str(paths[3]), "--verify"]) == 3
    assert "record 0" in capsys.readouterr().err


def test_an_index_that_cannot_be_stored_is_an_error(
    paths: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDKEEP_INDEX_DIR", str(paths[0] / "cache"))  # a file, not a folder
    Path(f"{paths[3]}.skidx").mkdir()
    assert run(["index", str(paths[3])]) == 2
    assert "was not stored" in capsys.readouterr().err


def test_switched_off(
    paths: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDKEEP_INDEX", "off")
    assert run(["index", str(paths[3])]) == 2
    assert "SHARDKEEP_INDEX=off: no index would be stored" in capsys.readouterr().err
    assert run(["index", str(paths[3]), "--text", ".idx"]) == 0
