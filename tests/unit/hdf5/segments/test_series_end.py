"""Ranks that end by themselves, whatever the steps of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardkeep.errors import CorruptDataError, PlanError
from shardkeep.hdf5 import WorkerFile, merge, rollback
from shardkeep.jobs import verify
from shardkeep.world import World


def commit(run: Path, rank: int, *steps: int, finish: bool = True) -> None:
    with WorkerFile(run, World(rank, 2)) as out:
        for step in steps:
            out.append("x", [step])
            out.commit(step=step)
        if finish:
            out.finish()


def findings(run: Path) -> str:
    text = "\n".join(merge(run, run.parent / "all.h5", exists="replace", incomplete="allow").findings)
    verified = [finding.message for one in verify(run).files for finding in one.findings]
    assert "\n".join(verified) == text
    return text


def test_ranks_that_ended_at_different_steps_are_complete(tmp_path: Path) -> None:
    commit(tmp_path / "run", 0, 63)
    commit(tmp_path / "run", 1, 50, 126)
    assert findings(tmp_path / "run") == ""


def test_a_rank_that_did_not_end_is_named_also_if_it_is_the_newest(tmp_path: Path) -> None:
    commit(tmp_path / "run", 0, 63)
    commit(tmp_path / "run", 1, 126, finish=False)
    assert findings(tmp_path / "run").startswith("rank 1 of 2 has not ended, as rank 0 has in ")
    with pytest.raises(CorruptDataError, match="rank 1 of 2 has not ended"):
        merge(tmp_path / "run", tmp_path / "refused.h5")


def test_a_rank_that_is_opened_again_continues(tmp_path: Path) -> None:
    commit(tmp_path / "run", 0, 63)
    commit(tmp_path / "run", 1, 126)
    commit(tmp_path / "run", 0, finish=False)
    assert findings(tmp_path / "run").startswith("rank 0 of 2 has not ended, as rank 1 has in ")


def test_a_later_commit_and_a_rollback_continue_a_rank(tmp_path: Path) -> None:
    run = tmp_path / "run"
    commit(run, 1, 126)
    with WorkerFile(run, World(0, 2)) as out:
        out.commit(step=1)
        out.commit(step=2)
        out.finish()
        out.commit(step=3)
        assert findings(run).startswith("rank 0 of 2 has not ended")
        out.finish()
        assert findings(run) == ""
    rollback(run, step=2)
    assert findings(run) == "rank 1 of 2 has no commit (the newest is step 2) in " + repr(str(run))


def test_a_rank_with_uncommitted_rows_does_not_end(tmp_path: Path) -> None:
    with WorkerFile(tmp_path, World(0, 1)) as out:
        with pytest.raises(PlanError, match="rank 0 has no commit: call commit"):
            out.finish()
        out.append("x", [1])
        with pytest.raises(PlanError, match=r"rank 0 has uncommitted rows \(1 of 'x'\)"):
            out.finish()
        out.commit(step=1)
        out.finish()
        out.finish()
