"""Free space and inodes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardkeep.hdf5 import WorkerFile, merge
from shardkeep.world import World
from tests.small_disk import mounted

SurveyOf = Callable[..., Any]


def write_run(run: Path, commits: int, rows: int) -> list[Path]:
    with WorkerFile(run, World(0, 1, 0, 1)) as out:
        for step in range(commits):
            out.append("x", [[float(step)] * 1000] * rows)
            out.commit(step=step)
    return sorted((run / "rank-00000").glob("*.h5"))


def test_a_file_system_with_space_is_healthy(tmp_path: Path, survey_of: SurveyOf) -> None:
    write_run(tmp_path / "run", 4, 1)
    found = survey_of(tmp_path / "run")
    assert found.ok
    assert " inodes (" in found.fact("space", f"free at {tmp_path}/run")
    assert found.fact("space", f"run {tmp_path}/run").startswith("4 commits, ")


def test_a_full_file_system_is_an_error(tmp_path: Path, survey_of: SurveyOf) -> None:
    with mounted(tmp_path / "small", "4m") as folder:
        assert survey_of(folder).ok
        (folder / "other").write_bytes(bytes(4000 << 10))
        one = survey_of(folder).only("space")
    assert (one.severity, one.command) == ("error", f"df -h {folder}")
    assert "the file system is full: 96.0 KiB free of 4.0 MiB (2.3%)" in one.evidence


def test_a_nearly_full_file_system_is_a_warning(tmp_path: Path, survey_of: SurveyOf) -> None:
    with mounted(tmp_path / "small", "2g") as folder:
        fd = os.open(folder / "other", os.O_CREAT | os.O_WRONLY)
        os.posix_fallocate(fd, 0, (2 << 30) - (90 << 20))
        os.close(fd)
        one = survey_of(folder).only("space")
    assert one.severity == "warning"
    assert "the file system is nearly full: 90.0 MiB free of 2.0 GiB (4.4%)" in one.evidence


def test_missing_inodes_are_an_error(tmp_path: Path, survey_of: SurveyOf) -> None:
    with mounted(tmp_path / "small", "1m,nr_inodes=200") as folder:
        assert survey_of(folder).ok
        for number in range(195):
            (folder / f"{number}.txt").touch()
        (one,) = (one for one in survey_of(folder).of("space") if "inodes" in one.evidence)
    assert (one.severity, one.command) == ("error", f"df -i {folder}")
    assert "4 inodes are free of 200" in one.evidence


def test_a_run_that_its_file_system_cannot_hold_merged_is_a_warning(
    tmp_path: Path, survey_of: SurveyOf
) -> None:
    with mounted(tmp_path / "small", "4m") as folder:
        write_run(folder / "run", 3, 100)
        one = survey_of(folder / "run").only("space")
        assert one.severity == "warning"
        assert "a merge of this run writes about 3.0 MiB, and 1.0 MiB are free" in one.evidence
        assert one.command == f"shardkeep merge --mode virtual {folder}/run {folder}/run.h5"
        with pytest.raises(OSError):
            merge(folder / "run", folder / "run.h5")
        merge(folder / "run", folder / "run.h5", mode="virtual")


def test_a_run_that_fills_its_file_system_within_a_day_is_a_warning(
    tmp_path: Path, survey_of: SurveyOf
) -> None:
    with mounted(tmp_path / "small", "40m") as folder:
        segments = write_run(folder / "run", 4, 100)
        now = time.time()
        for number, path in enumerate(reversed(segments)):
            os.utime(path, (now, now - number * 1200))
        one = survey_of(folder / "run").only("space")
        assert one.severity == "warning"
        assert "the commits of this run write 3.0 MiB an hour, and 36.0 MiB are free" in one.evidence
        assert "enough for 12." in one.evidence
        for path in segments:
            os.utime(path, (now - 1e6, path.stat().st_mtime - 1e6))
        assert survey_of(folder / "run").ok
