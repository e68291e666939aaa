"""The command ``shardkeep rollback``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardkeep.cli.app import run
from shardkeep.hdf5 import WorkerFile, rollback
from shardkeep.world import World


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for rank in range(2):
        with WorkerFile("run", World(rank=rank, size=2)) as out:
            for step in (10, 20, 30)[: 3 - rank]:
                out.append("loss", 0.5)
                out.commit(step=step)
    return tmp_path / "run"


def segments(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.h5"))


def test_every_rank_is_rolled_back(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rollback", "run", "--step", "10"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "0 30 10 1 20 10" in printed and "commits after step 10 are removed" in printed
    assert segments(folder) == ["00000000-step-10.h5"] * 2


@pytest.mark.parametrize("option", [[], ["--dry-run"]])
def test_a_step_without_commits_after_it_is_reported(
    folder: Path, option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = segments(folder)
    assert run(["rollback", "run", "--step", "30", *option]) == 0
    assert capsys.readouterr().out.endswith("\n\nnothing was removed: no commit is after step 30\n")
    assert segments(folder) == before


def test_a_dry_run_removes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = segments(folder)
    assert run(["rollback", "run", "--step", "-1", "--dry-run", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["ranks"] == [
        {"rank": 0, "before": 30, "after": None},
        {"rank": 1, "before": 20, "after": None},
    ]
    assert segments(folder) == before
    assert rollback("run", step=25, dry_run=True) == rollback("run", step=25) == {0: 20, 1: 20}


def test_a_run_that_is_written_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = segments(folder)
    with WorkerFile("run", World(rank=1, size=2)):
        assert run(["rollback", "run", "--step", "10"]) == 11
    assert "is locked" in capsys.readouterr().err
    assert segments(folder) == before


@pytest.mark.parametrize(
    ("arguments", "code"), [(["run"], 2), (["run", "--step", "-2"], 2), (["gone", "--step", "1"], 10)]
)
def test_wrong_calls(folder: Path, arguments: list[str], code: int) -> None:
    assert run(["rollback", *arguments]) == code
