"""Commits of run folders by their names."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardkeep.hdf5 import WorkerFile
from shardkeep.world import World

SurveyOf = Callable[..., Any]


def write_run(run: Path, *steps: int) -> None:
    """Write a run in which each rank has commits up to a step."""
    for rank, newest in enumerate(steps):
        with WorkerFile(run, World(rank, len(steps), rank, len(steps))) as out:
            for step in range(1, newest + 1):
                out.append("x", [[float(step)]])
                out.commit(step=step)


def test_a_complete_run_is_healthy(tmp_path: Path, survey_of: SurveyOf) -> None:
    write_run(tmp_path / "run", 2, 2, 2)
    found = survey_of(tmp_path)
    assert found.ok
    assert found.fact("run", f"{tmp_path}/run") == "3 ranks, 6 commits, newest step 2"


def test_a_rank_that_ended_early_is_a_warning(tmp_path: Path, survey_of: SurveyOf) -> None:
    write_run(tmp_path / "run", 3, 2, 3, 1)
    one = survey_of(tmp_path / "run").only("run")
    assert one.severity == "warning"
    assert "ranks 1, 3 ended before step 3, the first of them with step 1" in one.evidence
    assert one.command == f"shardkeep rollback {tmp_path}/run --step 1 --dry-run"


def test_a_run_that_may_have_been_resumed_with_fewer_ranks_is_a_note(
    tmp_path: Path, survey_of: SurveyOf
) -> None:
    write_run(tmp_path / "run", 3, 3, 1)
    one = survey_of(tmp_path / "run").only("run")
    assert one.severity == "note"
    assert "resumed with 2 ranks, or a merge refuses it" in one.evidence
    assert one.command.startswith("shardkeep merge --dry-run ")


def test_a_rank_that_was_finished_may_end_before_others(tmp_path: Path, survey_of: SurveyOf) -> None:
    write_run(tmp_path / "run", 1, 3)
    with WorkerFile(tmp_path / "run", World(0, 2, 0, 2)) as out:
        out.finish()
    assert survey_of(tmp_path / "run").of("run") == []


def test_a_rank_without_a_commit_is_a_warning(tmp_path: Path, survey_of: SurveyOf) -> None:
    write_run(tmp_path / "run", 3, 0)
    one = survey_of(tmp_path / "run").only("run")
    assert "rank 1 ended before step 3, without a commit" in one.evidence
    assert one.command.startswith("shardkeep merge --incomplete warn ")


def test_a_rank_without_a_folder_is_a_warning(tmp_path: Path, survey_of: SurveyOf) -> None:
    write_run(tmp_path / "run", 2, 2, 2)
    shutil.rmtree(tmp_path / "run" / "rank-00001")
    one = survey_of(tmp_path / "run").only("run")
    assert one.severity == "warning"
    assert "there is no folder of rank 1" in one.evidence


def test_a_folder_of_a_rank_with_a_huge_number(tmp_path: Path, survey_of: SurveyOf) -> None:
    write_run(tmp_path / "run", 2, 2, 2)
    (tmp_path / "run" / "rank-00001").rename(tmp_path / "run" / f"rank-{10**20}")
    evidence = [one.evidence for one in survey_of(tmp_path / "run").of("run")]
    assert f"there is no folder of ranks 1, 3 to {10**20 - 1}, although" in evidence[0]


def test_a_missing_segment_is_an_error(tmp_path: Path, survey_of: SurveyOf) -> None:
    write_run(tmp_path / "run", 3, 3)
    next((tmp_path / "run" / "rank-00001").glob("00000001-*")).unlink()
    one = survey_of(tmp_path / "run").only("run")
    assert one.severity == "error"
    assert "segment 1 is missing" in one.evidence


def test_ranks_of_a_live_run_may_differ(tmp_path: Path, survey_of: SurveyOf) -> None:
    write_run(tmp_path / "run", 2, 2)
    with WorkerFile(tmp_path / "run", World(1, 2, 1, 2)) as out:
        out.append("x", [[3.0]])
        out.commit(step=3)
        found = survey_of(tmp_path / "run")
        assert found.ok
        assert found.fact("run", f"{tmp_path}/run").endswith("; 1 rank being written")
    assert survey_of(tmp_path / "run").of("run") != []


@pytest.mark.parametrize("name", ["rank-0", "rank-000001"])
def test_a_folder_that_no_worker_made_is_an_error(name: str, tmp_path: Path, survey_of: SurveyOf) -> None:
    write_run(tmp_path / "run", 2, 2)
    (tmp_path / "run" / name).mkdir()
    assert "was not made by the worker" in survey_of(tmp_path / "run").only("run").evidence
