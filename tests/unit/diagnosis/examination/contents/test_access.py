"""Rights, links and names."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardkeep.diagnosis.examination.contents import access, data_files
from shardkeep.diagnosis.examination.contents.survey import survey
from shardkeep.diagnosis.examination.report import Problem
from shardkeep.files.locks import probe
from shardkeep.files.locks.mounts import Mount
from shardkeep.hdf5 import WorkerFile
from shardkeep.tfrecord import Writer
from shardkeep.world import World
from tests.second_user import OTHER, needs_root, run_as, shared_folder
from tests.small_disk import mounted
from tests.unit.diagnosis.examination.contents.conftest import subject_of

Shards = Callable[..., list[Path]]
SurveyOf = Callable[..., Any]


def problems_of(path: Path) -> list[Problem]:
    return [one for one in survey(subject_of(path)) if isinstance(one, Problem) and one.check == "access"]


def write(path: Path) -> None:
    with Writer(path) as writer:
        writer.write(path.name.encode())


@needs_root
def test_files_that_this_user_cannot_read_are_an_error() -> None:
    with shared_folder() as folder:
        for number in range(3):
            write(folder / f"a-{number}.tfrecord")
            (folder / f"a-{number}.tfrecord").chmod(0o600)
        assert problems_of(folder) == []
        unreadable, *_ = run_as(OTHER, lambda: problems_of(folder))
    assert (unreadable.severity, unreadable.path) == ("error", str(folder))
    assert "cannot read 3 files: a-0.tfrecord, a-1.tfrecord, a-2.tfrecord" in unreadable.evidence
    assert "owner 'root' (user id 0), mode 600" in unreadable.evidence
    assert unreadable.command.startswith(f"chmod a+r {folder}/a-0.tfrecord ")


def test_a_file_that_the_file_system_cannot_read_is_an_error(
    shards: Shards, survey_of: SurveyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = shards(2, 2)

    def fails(path: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(data_files, "identify", fails)
    one = survey_of(paths[0].parent).only("access")
    assert (one.severity, one.path) == ("error", str(paths[0].parent))
    assert f"2 files cannot be read: {os.strerror(errno.EIO)}: train-00000-of-00002" in one.evidence
    assert "its disk has a fault" in one.fix


@needs_root
def test_a_folder_that_this_user_cannot_read_is_an_error() -> None:
    with shared_folder() as folder:
        (folder / "closed").mkdir(mode=0o700)
        (one,) = run_as(OTHER, lambda: problems_of(folder))
    assert (one.severity, one.path) == ("error", f"{folder}/closed")
    assert "Permission denied" in one.evidence


@needs_root
def test_a_run_that_this_user_cannot_write_is_an_error() -> None:
    with shared_folder() as folder:
        with WorkerFile(folder / "run", World(0, 1, 0, 1)) as out:
            out.append("x", [[1.0]])
            out.commit(step=1)
        assert problems_of(folder / "run") == []
        (one,) = run_as(OTHER, lambda: problems_of(folder / "run"))
    assert (one.severity, one.path) == ("error", f"{folder}/run")
    assert "cannot write in 2 folders of this run: run, rank-00000 (owner 'root' (user id 0))" in one.evidence


def test_a_set_of_unlike_modes_is_a_warning(shards: Shards, survey_of: SurveyOf) -> None:
    paths = shards(2, 2, 2)
    for path in paths:
        path.chmod(0o644)
    assert survey_of(paths[0].parent).ok
    paths[1].chmod(0o600)
    one = survey_of(paths[0].parent).only("access")
    assert one.severity == "warning"
    assert "1 of 3 files of a set have mode 600" in one.evidence
    assert one.command == f"chmod ugo+r {paths[1]}"


@needs_root
def test_a_set_of_two_owners_is_noted(shards: Shards, survey_of: SurveyOf) -> None:
    paths = shards(2, 2, 2)
    os.chown(paths[1], OTHER, OTHER)
    one = survey_of(paths[0].parent).only("access")
    assert one.severity == "note"
    assert f"1 of 3 files of a set belong to user id {OTHER}, the rest to 'root'" in one.evidence


def test_a_broken_link_is_an_error(shards: Shards, survey_of: SurveyOf) -> None:
    paths = shards(2, 2)
    (paths[0].parent / "more.tfrecord").symlink_to("/nowhere/more.tfrecord")
    one = survey_of(paths[0].parent).only("access")
    assert one.severity == "error"
    assert "1 link without a target: more.tfrecord; the first leads to /nowhere/more" in one.evidence
    (paths[0].parent / "more.tfrecord").unlink()
    (paths[0].parent / "annexed.tfrecord").symlink_to("../.git/annex/objects/x")
    assert survey_of(paths[0].parent).only("access").command == f"git annex get {paths[0].parent}"


def test_links_to_another_file_system_are_noted(shards: Shards, survey_of: SurveyOf, tmp_path: Path) -> None:
    paths = shards(2, 2)
    with mounted(tmp_path / "elsewhere", "1m") as folder:
        write(folder / "far.tfrecord")
        (paths[0].parent / "far.tfrecord").symlink_to(folder / "far.tfrecord")
        one = survey_of(paths[0].parent).only("access")
    assert one.severity == "note"
    assert f"1 link to another file system (tmpfs at {tmp_path}/elsewhere): far.tfrecord" in one.evidence


def test_a_large_folder_on_a_network_file_system_is_noted(
    shards: Shards, survey_of: SurveyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shards(2, 2)[0].parent
    monkeypatch.setattr(access, "_MANY_NAMES", 2)
    assert survey_of(folder).ok
    for module in (access, probe):
        monkeypatch.setattr(module, "mount_of", lambda _: Mount(1, "/data", "nfs4", "server:/", ()))
    assert "2 names in one folder on nfs4" in survey_of(folder).only("access").evidence


def test_a_name_without_room_for_that_of_an_index_is_a_warning(shards: Shards, survey_of: SurveyOf) -> None:
    (path,) = shards(2)
    path.rename(path.parent / ("x" * 240 + ".tfrecord"))
    one = survey_of(path.parent).only("access")
    assert one.severity == "warning"
    assert "a name of 249 bytes" in one.evidence
