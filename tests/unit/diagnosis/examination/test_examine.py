"""The function `doctor`. Covers `shardkeep.diagnosis.examination.subject`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import shardkeep as sk
from shardkeep.diagnosis.examination import examine
from shardkeep.diagnosis.examination.report import Fact, Problem
from shardkeep.diagnosis.examination.subject import Subject
from shardkeep.errors import NotFoundError, WorldError


def check_with(monkeypatch: pytest.MonkeyPatch, *checks: examine.Check) -> None:
    monkeypatch.setattr(examine, "_CHECKS", tuple((one.__name__, one) for one in checks))


def test_findings_of_all_checks_are_sorted_by_severity(monkeypatch: pytest.MonkeyPatch) -> None:
    def first(subject: Subject) -> Iterator[Problem | Fact]:
        yield Problem("note", "first", "a", "b")
        yield Fact("first", "ranks", str(subject.world.size))

    def second(_: Subject) -> Iterator[Problem | Fact]:
        yield Problem("error", "second", "c", "d")

    check_with(monkeypatch, first, second)
    report = sk.doctor(world=3)
    assert [one.severity for one in report.problems] == ["error", "note"]
    assert report.facts == (Fact("first", "ranks", "3"),)
    assert (report.ranks, report.ranks_here, report.checks) == (3, 3, ("first", "second"))
    assert not report.ok


def test_a_check_that_hangs_is_reported_and_others_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = []

    def hangs(subject: Subject) -> Iterator[Problem | Fact]:
        yield Fact("hangs", "before", "the wait")
        subject.stop.wait(60)
        stopped.append(True)
        time.sleep(0.5)

    def ends(_: Subject) -> Iterator[Problem | Fact]:
        yield Fact("ends", "a", "b")

    check_with(monkeypatch, hangs, ends)
    monkeypatch.setattr(examine, "_TIME_S", 0.2)
    monkeypatch.setattr(examine, "_PATIENCE_S", 0.1)
    report = sk.doctor()
    assert [one.name for one in report.facts] == ["before", "a"]
    assert "'hangs' did not end" in report.problems[0].evidence
    assert stopped


def test_an_error_of_the_system_is_a_note_and_a_bug_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_: Subject) -> Iterator[Problem | Fact]:
        yield Fact("denied", "a", "b")
        raise PermissionError(13, "Permission denied", "/x")

    check_with(monkeypatch, denied)
    report = sk.doctor()
    assert report.ok and "Permission denied" in report.problems[0].evidence and len(report.facts) == 1

    def wrong(_: Subject) -> Iterator[Problem | Fact]:
        yield Fact("wrong", "a", "b")
        raise KeyError("x")

    check_with(monkeypatch, wrong)
    with pytest.raises(KeyError):
        sk.doctor()


def test_the_folders_of_the_paths_are_examined_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = []

    def look(subject: Subject) -> Iterator[Problem | Fact]:
        seen.append((subject.paths, subject.folders))
        yield Fact("look", "a", "b")

    check_with(monkeypatch, look)
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    sk.doctor([tmp_path / "a", tmp_path / "b", tmp_path])
    sk.doctor()
    assert seen == [
        ((f"{tmp_path}/a", f"{tmp_path}/b", str(tmp_path)), (str(tmp_path),)),
        ((), (".",)),
    ]


def test_paths_may_be_an_iterator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check_with(monkeypatch)
    assert sk.doctor(iter([tmp_path])).paths == (str(tmp_path),)
    assert sk.doctor(iter([])).paths == ()


def test_paths_that_hang_are_an_error_and_the_machine_is_examined(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def ranks(subject: Subject) -> Iterator[Problem | Fact]:
        mine = [name for name in subject.threads if name.startswith("shardkeep-doctor")]
        yield Fact("ranks", "folders and own threads", f"{len(subject.folders)} {len(mine)}")

    check_with(monkeypatch, ranks)
    never = threading.Event()
    monkeypatch.setattr(examine, "_PATHS_S", 0.1)
    monkeypatch.setattr(examine, "expand", lambda given: never.wait())
    try:
        report = sk.doctor(tmp_path)
    finally:
        never.set()
    assert [(one.severity, one.check) for one in report.problems] == [("error", "files")]
    assert f"did not respond in 0 s: {tmp_path}" in report.problems[0].evidence
    assert report.facts == (Fact("ranks", "folders and own threads", "0 0"),)


def test_only_data_files_count_as_shards(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    names = ("a.tfrecord", "a.tfrecord.skidx", "b.jpg", "sub/train-00000-of-00001", "sub/all.h5")
    for name in names:
        (tmp_path / name).touch()
    passed = str(tmp_path / "b.jpg")
    assert Subject((str(tmp_path), passed), (), sk.World(), {}).shards == 4


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        sk.doctor(tmp_path / "absent")
    for world in (0, -1, True, "8"):
        with pytest.raises(WorldError, match="number of ranks"):
            sk.doctor(world=world)  # type: ignore[arg-type]


def test_contradicting_launchers_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    check_with(monkeypatch)
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    report = sk.doctor()
    assert [(one.severity, one.check) for one in report.problems] == [("error", "world")]
    assert "RANK=1" in report.problems[0].evidence


def test_another_number_of_ranks_than_the_launcher_has_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    check_with(monkeypatch)
    for name, value in {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    report = sk.doctor(world=np.int64(8))  # type: ignore[arg-type]
    assert "torchrun has 4 ranks for this process, not 8" in report.problems[0].evidence
    assert (report.ranks, report.ranks_here) == (8, 8)
    report = sk.doctor(world=4)
    assert report.ok and (report.ranks, report.ranks_here) == (4, 2)
