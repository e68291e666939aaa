"""The command ``shardkeep verify``.

Covers `shardkeep.cli.output.verify`.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest

from shardkeep.cli.app import run
from shardkeep.tfrecord import Writer, build_index
from tests.unreadable_files import KINDS, write_filtered, write_typed


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
    (finding,) = found["files"][0]["findings"]
    assert finding.pop("message").startswith("a.tfrecord: ")
    assert finding == {
        "kind": "damage",
        "path": "a.tfrecord",
        "record": 0,
        "offset_bytes": 0,
        "bytes": 19,
        "next": "shardkeep repair a.tfrecord a.repaired.tfrecord",
    }


def test_a_name_with_a_line_break_is_printed_once(shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a\nb.tfrecord").write_bytes(shard.read_bytes()[:-1])
    assert run(["verify", "a\nb.tfrecord"]) == 3
    assert capsys.readouterr().out.count("a\\nb.tfrecord: ") == 1


def test_the_command_can_be_copied(
    shard: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    Path("data of the second run").mkdir()
    name = f"data of the second run/{'long name ' * 5}.tfrecord"
    Path(name).write_bytes(shard.read_bytes()[:-1])
    assert run(["verify", name]) == 3
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "continue with" in line)
    command = shlex.split(line.partition(": shardkeep ")[2])
    assert run(command) == 3 and run(["verify", command[2]]) == 0


def test_not_there(shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "gone.h5"]) == 10


def test_folder(shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build_index("a.tfrecord")
    Path("notes.txt").write_text("hello")
    Path("weights").write_bytes(bytes(range(256)))
    assert run(["verify", "."]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "skipped 3 files, of a kind that is not verified: " in printed
    assert "1 × an index of Shardkeep" in printed and "1 × plain text" in printed
    assert "of unknown content: ./weights" in printed
    Path("b.tfrecord").touch()
    Path("c.tfrecord").symlink_to("gone")
    assert run(["verify", "."]) == 3
    printed = capsys.readouterr().out
    assert "EMPTY" in printed and "MISSING" in printed and "continue with: ls -ld ./c.tfrecord" in printed


@pytest.mark.parametrize(("name", "code"), [("a.txt", 2), ("page", 3)])
def test_other_kinds(name: str, code: int, shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.txt").write_text("hello")
    Path("page").write_text("<html>404")
    assert run(["verify", "a.tfrecord", name]) == code
    assert f"{name}: expected a TFRecord or HDF5 file, found" in capsys.readouterr().out


def test_names_that_are_not_utf8(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    folder = os.path.join(os.fsencode(tmp_path), b"caf\xe9")
    os.mkdir(folder)
    for name in (b"a\xff.h5", b"b\xff.txt"):
        Path(os.fsdecode(os.path.join(folder, name))).touch()
    assert run(["verify", "--json", os.fsdecode(folder)]) == 3
    found = json.loads(capsysbinary.readouterr().out.decode("utf-8"))
    (one,) = found["files"]
    assert one["path"] == one["findings"][0]["path"] == f"{tmp_path}/caf\\xe9/a\\xff.h5"
    assert found["skipped"] == [{"path": f"{tmp_path}/caf\\xe9/b\\xff.txt", "described": "an empty file"}]
    assert run(["verify", os.fsdecode(folder)]) == 3


def test_a_type_that_h5py_cannot_read_is_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.h5"
    write_typed(path, KINDS["time"]())
    assert run(["verify", os.fspath(path)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "all files are intact" in printed and "'x' has values of type time" in printed
    assert "DAMAGED" not in printed
    assert run(["verify", os.fspath(path), "--json"]) == 0
    (file,) = json.loads(capsys.readouterr().out)["files"]
    assert (file["findings"], len(file["notes"])) == ([], 1)


def test_a_filter_that_is_not_installed_is_a_wrong_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.h5"
    write_filtered(path, 305)
    assert run(["verify", os.fspath(path)]) == 2
    printed = " ".join(capsys.readouterr().out.split())
    assert "NOT READABLE HERE" in printed and "'lzo'" in printed
    assert "restore" not in printed
