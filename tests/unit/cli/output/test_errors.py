"""A damage report ends with the command that continues; errors name options."""

from __future__ import annotations

import gzip
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import h5py
import numpy as np
import pytest

from shardkeep.cli.app import app, run
from shardkeep.cli.output.errors import describe_error
from shardkeep.errors import PlanError, ShardkeepError
from shardkeep.hdf5 import WorkerFile
from shardkeep.world import World
from tests.odd_files import FRAME_BYTES, GOOD, frame

AT = 3 * FRAME_BYTES + 50


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    Path("flipped").write_bytes(GOOD[:AT] + bytes([GOOD[AT] ^ 1]) + GOOD[AT + 1 :])
    Path("torn").write_bytes(GOOD[: 3 * FRAME_BYTES] + bytes(300) + GOOD[AT + 250 :])
    Path("cut.gz").write_bytes(gzip.compress(GOOD, 0)[:1200])
    Path("examples").write_bytes(frame(b"") + frame(b"\x0a\x00") + GOOD[:100])
    yield


def following(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the command that continues, at the end of the error before the one that repairs."""
    error = capsys.readouterr().err.splitlines()[-1]
    error, _, repair = error.rpartition("; to repair it: shardkeep ")
    assert repair.startswith("repair ")
    return shlex.split(error.rpartition(": shardkeep ")[2])


def repairing(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the command at the end of the error."""
    error = capsys.readouterr().err.splitlines()[-1]
    return shlex.split(error.rpartition("; to repair it: shardkeep ")[2])


@pytest.mark.parametrize("path", ["flipped", "torn", "cut.gz"])
@pytest.mark.parametrize(
    "call", ["info {}", "cat {}", "concat {} out", "split --shards 2 {} out-{{shard}}", "cat --limit=99 {}"]
)
def test_the_command_after_damage_continues(
    path: str, call: str, capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    assert run(call.format(path).split()) == 3
    command = following(capsys)
    assert command[1:3] == ["--on-corrupt", "repair" if path == "flipped" else "skip"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn_explicit", lambda *_: None)
        assert run(command) == 0


def test_schema_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "examples"]) == 3
    assert following(capsys) == ["schema", "--on-corrupt", "skip", "examples"]


@pytest.mark.parametrize("mode", ["--on-corrupt repair", "--on-corrupt=repair"])
def test_a_repair_that_is_not_possible_leads_to_skip(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"--debug concat {mode} torn out".split()) == 3
    assert following(capsys) == ["--debug", "concat", "--on-corrupt", "skip", "torn", "out"]


def test_an_option_with_more_than_one_bit_flip_is_skip(capsys: pytest.CaptureFixture[str]) -> None:
    Path("two words").write_bytes(Path("torn").read_bytes())
    assert run(["info", "two words"]) == 3
    assert following(capsys) == ["info", "--on-corrupt", "skip", "two words"]


def test_commands_without_the_option_name_repair(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["index", "torn"]) == 3
    assert repairing(capsys) == ["repair", "torn", "torn.repaired"]
    assert run(["repair", "torn", "torn.repaired"]) == 3
    assert run(["verify", "torn.repaired"]) == 0


@pytest.mark.parametrize("path", ["flipped", "torn", "cut.gz"])
@pytest.mark.parametrize("call", ["concat {} out", "split --shards 2 {} out-{{shard}}", "cat {}", "info {}"])
def test_the_command_that_repairs_is_named(path: str, call: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(call.format(path).split()) == 3
    command = repairing(capsys)
    assert command[:2] == ["repair", path]
    assert run(command) in (0, 3)
    assert run(["verify", command[2]]) == 0


def test_damaged_hdf5_file_leads_to_repair(capsys: pytest.CaptureFixture[str]) -> None:
    with h5py.File("a.h5", "w") as file:
        file.create_dataset("x", data=np.arange(1000), chunks=(100,), fletcher32=True)
        where = file["x"].id.get_chunk_info(3).byte_offset
    with open("a.h5", "r+b") as raw:
        raw.seek(where)
        raw.write(b"damage")
    assert run(["cat", "a.h5"]) == 3
    assert repairing(capsys) == ["repair", "a.h5", "a.repaired.h5"]


@pytest.mark.parametrize("call", ["merge run run.h5", "rollback run --step 1"])
def test_a_folder_is_not_proposed_for_repair(call: str, capsys: pytest.CaptureFixture[str]) -> None:
    with WorkerFile("run", World(rank=0, size=2)) as out:
        out.append("x", [1])
        out.commit(step=1)
    if "rollback" in call:
        Path("run/rank-0").mkdir()
    assert run(call.split()) == 3
    assert "shardkeep repair" not in capsys.readouterr().err


def test_damaged_image_leads_to_on_bad(capsys: pytest.CaptureFixture[str]) -> None:
    Path("photos").mkdir()
    for name in ("a.png", "b.png"):
        Path("photos", name).write_bytes(b"\x89PNG\r\n\x1a\n")
    assert run(["pack", "photos", "out-{shard}"]) == 3
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.endswith(": shardkeep pack --on-bad skip photos 'out-{shard}'")


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("page.tfrecord", b"<!DOCTYPE html><title>Sign in</title>", 2),
        ("noise.tfrecord", b"\x93\x01\xff\xee" * 1000, 2),
        ("picture.png", b"\x89PNG\r\n\x1a\n" + bytes(100), 2),
        ("zeros.tfrecord", bytes(5000), 3),
        ("start.tfrecord", bytes(12) + GOOD[12:], 3),
    ],
)
@pytest.mark.parametrize("call", ["info {}", "cat {}", "schema {}", "concat {} out", "index {}"])
def test_wrong_kind_is_2_and_damage_is_3(
    name: str, data: bytes, code: int, call: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_bytes(data)
    assert run(call.format(name).split()) == code
    assert name in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "message", "expected"),
    [
        ("concat", 'pass exists="replace"', "pass --exists replace"),
        ("concat", "pass exists='replace'", "pass --exists replace"),
        ("concat", "verify=False and more", "--no-verify and more"),
        ("pack", "labels= needs a folder", "--labels needs a folder"),
        ("pack", "dtypes= needs CSV", "--dtype needs CSV"),
        ("split", "shards=3 is too many", "--shards 3 is too many"),
        ("concat", "timeout_s=3 and a.key=value", "timeout_s=3 and a.key=value"),
        ("merge", "order_by= is wrong", "--order-by is wrong"),
    ],
)
def test_options_instead_of_arguments(command: str, message: str, expected: str) -> None:
    assert describe_error(PlanError(message), app.commands[command], []) == expected


def test_path_comes_first() -> None:
    assert describe_error(ShardkeepError("is odd", path="a"), click.Command("x"), []) == "a: is odd"
