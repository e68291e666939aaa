"""Processes that hold the files of a job. Covers `shardkeep.diagnosis.examination.contents.open_files`."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import pytest

from shardkeep.diagnosis.examination.contents import holders
from shardkeep.diagnosis.examination.contents.listing import list_files
from shardkeep.diagnosis.examination.contents.open_files import find_open_files
from shardkeep.tfrecord import Writer
from tests.second_user import OTHER, needs_root, run_as, shared_folder
from tests.unit.diagnosis.examination.contents.conftest import subject_of

Shards = Callable[..., list[Path]]
SurveyOf = Callable[..., Any]


@contextlib.contextmanager
def holding(code: str) -> Iterator[int]:
    """Run Python code in a child that then waits; yield its pid."""
    script = f"import os, sys\n{code}\nprint(flush=True)\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child.pid


def test_a_shard_that_is_read_is_healthy(shards: Shards, survey_of: SurveyOf) -> None:
    paths = shards(2, 2)
    with holding(f"file = open({str(paths[0])!r}, 'rb')") as pid:
        found = survey_of(paths[0].parent)
        assert found.ok
        assert found.fact("holders", str(paths[0])) == f"open for reading by process {pid}"


def test_a_shard_that_is_written_is_an_error(shards: Shards, survey_of: SurveyOf) -> None:
    paths = shards(2, 2)
    with holding(f"file = open({str(paths[1])!r}, 'ab')") as pid:
        one = survey_of(paths[0].parent).only("holders")
        assert (one.severity, one.path) == ("error", str(paths[1]))
        assert f"pid {pid} on host " in one.evidence
        assert "its end may be half a record" in one.evidence
        assert one.command == f"shardkeep follow {paths[1]}"
    assert survey_of(paths[0].parent).ok


def test_a_shard_that_is_written_through_a_link_or_another_name_is_found(
    shards: Shards, survey_of: SurveyOf, tmp_path: Path
) -> None:
    (path,) = shards(2)
    (tmp_path / "link.tfrecord").symlink_to(path)
    with holding(f"file = open({str(path)!r}, 'ab')"):
        assert survey_of(tmp_path / "link.tfrecord").only("holders").severity == "error"
        moved = path.rename(tmp_path / "moved.tfrecord")
        assert survey_of(moved).only("holders").severity == "error"


def test_a_file_of_two_writers_is_an_error(shards: Shards, survey_of: SurveyOf) -> None:
    (path,) = shards(2)
    code = f"file = open({str(path)!r}, 'ab')"
    with holding(code) as first, holding(code) as second:
        one = survey_of(path).only("holders")
        assert one.severity == "error"
        assert "2 processes have it open for writing" in one.evidence
        assert f"pid {first} " in one.evidence and f"pid {second} " in one.evidence
        assert one.command == f"shardkeep verify {path}"


def test_this_process_is_named_as_such(shards: Shards, survey_of: SurveyOf) -> None:
    (path,) = shards(2)
    with Writer(path, exists="append") as writer:
        writer.write(b"x")
        assert f"pid {os.getpid()} (this process)" in survey_of(path).only("holders").evidence
    assert survey_of(path).ok


def test_an_hdf5_file_that_is_open_for_writing_is_a_warning(tmp_path: Path, survey_of: SurveyOf) -> None:
    path = tmp_path / "rows.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["x"] = [1]
    assert survey_of(path).ok
    with holding(f"import h5py; file = h5py.File({str(path)!r}, 'a')") as pid:
        found = survey_of(path)
        one = found.only("holders")
        assert one.severity == "warning"
        assert f'open for writing by "{sys.executable} -c' in one.evidence
        assert one.command == f"ps -o pid,user,lstart,args -p {pid}"
        assert found.of("hdf5") == []


def test_an_event_file_of_a_live_run_is_healthy(tmp_path: Path, survey_of: SurveyOf) -> None:
    path = tmp_path / "events.out.tfevents.1700000000.host"
    with Writer(path) as writer:
        writer.write(b"x")
    with holding(f"file = open({str(path)!r}, 'ab')"):
        assert survey_of(tmp_path).ok


@needs_root
def test_a_lock_of_a_process_that_cannot_be_seen_is_a_warning() -> None:
    with shared_folder() as folder:
        path = folder / "rows.h5"
        with h5py.File(path, "w") as file:
            file["x"] = [1]
        path.chmod(0o644)
        code = f"import fcntl; file = open({str(path)!r}, 'rb+'); fcntl.flock(file, fcntl.LOCK_EX)"
        with holding(code) as pid:
            one = run_as(OTHER, lambda: _holders_of(path))
    assert one.severity == "warning"
    assert f"process {pid} " in one.evidence
    assert "has an exclusive lock on it" in one.evidence


def _holders_of(path: Path) -> Any:
    from shardkeep.diagnosis.examination.contents.survey import survey

    (one,) = (
        one for one in survey(subject_of(path)) if getattr(one, "severity", "") and one.check == "holders"
    )
    return one


def test_deleted_files_that_are_open_are_a_warning(
    shards: Shards, survey_of: SurveyOf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = shards(2, 2)[0].parent
    monkeypatch.setattr(holders, "_DELETED_BYTES", 8 << 20)
    gone = tmp_path / "gone"
    code = f"path = {str(gone)!r}; file = open(path, 'wb'); file.write(bytes(9 << 20)); file.flush()"
    code += "; os.unlink(path)"
    with holding(code) as pid:
        mine = [one for one in survey_of(folder).of("holders") if f"pid {pid}," in one.evidence]
        assert [one.severity for one in mine] == ["warning"]
        assert "which take 9.0 MiB" in mine[0].evidence


def test_too_many_processes_are_noted(
    shards: Shards, survey_of: SurveyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shards(2, 2)[0].parent
    subject = subject_of(folder)
    subject.stop.set()
    listing = list_files([str(folder)], until_s=float("inf"))
    assert not find_open_files(listing, subject).is_complete
