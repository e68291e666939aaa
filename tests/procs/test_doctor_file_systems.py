"""Real file systems with real faults, tried out by the processes of `doctor`.

Covers `shardkeep.diagnosis.examination.file_systems.probe` and
`shardkeep.diagnosis.examination.file_systems.probe_child`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardkeep.diagnosis.examination.file_systems import probe as probe_module
from shardkeep.diagnosis.examination.file_systems.probe import Probe, probe_all
from shardkeep.diagnosis.examination.file_systems.probe_child import PREFIX, probe
from shardkeep.diagnosis.examination.subject import Subject
from shardkeep.world import World
from tests.flock_shim import flock_environment
from tests.second_user import OTHER, needs_root, run_as, shared_folder
from tests.small_disk import mounted
from tests.waiting import PATIENCE_S, eventually


def try_out(folder: Path) -> Probe:
    subject = Subject((str(folder),), (str(folder),), World(), {})
    (found,) = probe_all([str(folder)], subject)
    return found


def doctor(folder: Path, **environment: str) -> dict[str, Any]:
    """Run the command on a folder, and return its report about file systems."""
    done = subprocess.run(
        [sys.executable, "-m", "shardkeep", "doctor", str(folder), "--json"],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=PATIENCE_S,
    )
    assert done.returncode in (0, 3), done.stderr
    report = json.loads(done.stdout)
    report["problems"] = [one for one in report["problems"] if one["check"] == "file system"]
    return report


def scratch_in(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(PREFIX)]


def test_all_operations_work_on_the_disk_of_the_tests(tmp_path: Path) -> None:
    found = try_out(tmp_path)
    assert (found.errors, found.hangs, found.folder_error) == ({}, None, None)
    for name in ("create_exclusively", "replace", "link", "shared_map", "posix_lock", "flock"):
        assert found.results[name] is True, name
    assert abs(found.results["clock"]["skew_s"]) < 1 and found.results["clock"]["is_coarse"] is False
    assert found.results["names"]["longest"] >= 143
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("number", [5, 11, 37, 95, 524])
def test_an_error_of_flock_is_reported_with_its_meaning(tmp_path: Path, number: int) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    report = doctor(folder, **flock_environment(tmp_path, number))
    (problem,) = report["problems"]
    assert f"flock fails with {number} (" in problem["evidence"]
    assert os.listdir(folder) == []


def test_a_flock_without_effect_is_an_error(tmp_path: Path) -> None:
    report = doctor(tmp_path, **flock_environment(tmp_path, 0))
    (problem,) = report["problems"]
    assert problem["severity"] == "error" and "flock has no effect" in problem["evidence"]


def test_a_flock_that_hangs_is_reported_in_time(tmp_path: Path) -> None:
    start_s = time.monotonic()
    report = doctor(tmp_path, **flock_environment(tmp_path, -1))
    assert time.monotonic() - start_s < PATIENCE_S
    assert report["seconds"] < 10
    (problem,) = report["problems"]
    assert "flock in" in problem["evidence"] and "did not end" in problem["evidence"]
    assert scratch_in(tmp_path) == []


def test_a_full_disk_is_one_error_and_stays_as_it_was(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "1m") as disk:
        (disk / "filler").write_bytes(b"x" * (1 << 20))
        report = doctor(disk)
        (problem,) = report["problems"]
        assert problem["severity"] == "error" and "full" in problem["evidence"]
        assert os.listdir(disk) == ["filler"]


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "fixed", "1m") as disk:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        yield disk


def test_a_read_only_file_system_is_not_tried_out(read_only: Path) -> None:
    report = doctor(read_only)
    assert report["problems"] == []
    facts = [one["value"] for one in report["facts"] if one["check"] == "file system"]
    assert "Read-only file system" in facts[1]


def output_of_child(folder: Path) -> bytes:
    """Call the function of the child here, since another user may have no right to the interpreter."""
    source, target = os.pipe()
    waits, _ = os.pipe()
    os.dup2(waits, 0)
    os.dup2(target, 1)
    probe(str(folder), 5.0)
    return os.read(source, 1 << 16)


@needs_root
def test_a_folder_of_another_user_is_not_tried_out() -> None:
    with shared_folder(0o755) as folder:
        lines = run_as(OTHER, lambda: output_of_child(folder)).splitlines()
        assert json.loads(lines[-1]) == {"folder": 13}
        folder.chmod(0o777)
        lines = run_as(OTHER, lambda: output_of_child(folder)).splitlines()
        assert json.loads(lines[-1]) == {"operation": "flock", "result": True}
        assert os.listdir(folder) == []


def test_a_hang_is_ended_long_before_a_late_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in flock_environment(tmp_path, -1).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(probe_module, "_LONGEST_S", 2.0)
    subject = Subject((), (), World(), {}, deadline_s=time.monotonic() + PATIENCE_S)
    (found,) = probe_all([str(tmp_path)], subject)
    assert found.hangs == "flock" and subject.left_s > PATIENCE_S / 2


def test_a_child_that_cannot_start_is_no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module, "_CHILD", "shardkeep.no_such_module")
    found = try_out(tmp_path)
    assert (found.exit_code, found.hangs) == (1, None)


def test_a_child_that_is_too_late_is_no_hang_even_if_it_cannot_be_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children: list[subprocess.Popen[bytes]] = []

    class Unkillable(subprocess.Popen[bytes]):
        def kill(self) -> None:
            children.append(self)

    monkeypatch.setattr(subprocess, "Popen", Unkillable)
    monkeypatch.setattr(probe_module, "_CHILD", "tests.sleeping_child")
    (found,) = probe_all([str(tmp_path)], Subject((), (), World(), {}, deadline_s=time.monotonic()))
    assert (found.exit_code, found.hangs) == (-1, None)
    for child in children:
        child.send_signal(signal.SIGKILL)
        child.wait(PATIENCE_S)


def test_a_folder_that_hangs_is_reported_before_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_module, "_CHILD", "tests.sleeping_child")
    subject = Subject((), (), World(), {}, deadline_s=time.monotonic() + 2)
    (found,) = probe_all([str(tmp_path)], subject)
    assert found.hangs == "the creation of a folder"
    assert subject.left_s >= 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_scratch_file_is_left_by_a_killed_examination(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    child = subprocess.Popen(
        [sys.executable, "-m", "shardkeep", "doctor", str(folder)],
        env=os.environ | flock_environment(tmp_path, -1),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    eventually(lambda: scratch_in(folder), "the scratch folder")
    child.send_signal(number)
    _, errors = child.communicate(timeout=PATIENCE_S)
    expected = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
    assert child.returncode == expected, errors
    eventually(lambda: not scratch_in(folder), "the removal of the scratch folder")


def test_an_interrupt_removes_scratch_files_before_the_command_ends(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    child = subprocess.Popen(
        [sys.executable, "-m", "shardkeep", "doctor", str(folder)],
        env=os.environ | flock_environment(tmp_path, -1),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    eventually(lambda: scratch_in(folder), "the scratch folder")
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=PATIENCE_S)
    assert scratch_in(folder) == []
