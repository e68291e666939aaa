"""Judgement of a file system from its mount and from what two processes found."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from shardkeep.diagnosis.examination.file_systems import file_systems as check
from shardkeep.diagnosis.examination.file_systems.probe import Probe
from shardkeep.diagnosis.examination.report import Fact, Problem
from shardkeep.diagnosis.examination.subject import Subject
from shardkeep.files.locks.mounts import Mount
from shardkeep.world import World

LOCAL = Mount(1, "/data", "ext4", "/dev/sda1", ("rw", "relatime"))
WORKS = {
    "create_exclusively": True,
    "clock": {"skew_s": 0.0, "is_coarse": False},
    "replace": True,
    "link": True,
    "names": {"longest": 255, "case_matters": True},
    "sync": 0.005,
    "shared_map": True,
    "posix_lock": True,
    "flock": True,
}


class Machine:
    """A machine with one file system, on which the check is made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.patch, self.folder = monkeypatch, str(folder)

    def examine(
        self, probe: Probe, mount: Mount | None = LOCAL, **environment: str
    ) -> tuple[list[Problem], list[Fact]]:
        self.patch.setattr(check, "probe_all", lambda folders, subject: [probe] * len(folders))
        self.patch.setattr(check, "mount_of", lambda folder: mount)
        subject = Subject((self.folder,), (self.folder,), World(), environment)
        found = list(check.file_systems(subject))
        return [x for x in found if isinstance(x, Problem)], [x for x in found if isinstance(x, Fact)]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path)


def without(operation: str, number: int) -> Probe:
    results = {name: value for name, value in WORKS.items() if name != operation}
    return Probe(None, results, {operation: number}, None)


def test_a_local_disk_is_healthy(machine: Machine) -> None:
    problems, facts = machine.examine(Probe(None, dict(WORKS), {}, None))
    assert problems == []
    assert len(facts) == 10
    assert "ext4 (/dev/sda1) at /data" in facts[0].value


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (5, "lock service of the file server answers with an error"),
        (11, "kept a lock of a process that is gone"),
        (37, "no lock service, or no locks left"),
        (38, "this file system has no locks"),
        (95, "this file system has no locks"),
        (524, "passes no locks on"),
        (1, "ext4 refuses locks"),
    ],
)
def test_each_error_of_flock_has_its_finding(machine: Machine, number: int, words: str) -> None:
    (problem,), _ = machine.examine(without("flock", number))
    assert (problem.severity, problem.path) == ("error", machine.folder)
    assert f"flock fails with {number} (" in problem.evidence and words in problem.evidence
    assert problem.fix and problem.command and problem.command.startswith("flock -n ")


def test_the_fixes_of_the_errors_of_flock_differ(machine: Machine) -> None:
    fixes = {machine.examine(without("flock", number))[0][0].fix for number in (5, 11, 37, 95, 524)}
    assert len(fixes) == 5


def test_hdf5_without_locks_is_named_with_the_error(machine: Machine) -> None:
    (problem,), _ = machine.examine(without("flock", 95), HDF5_USE_FILE_LOCKING="FALSE")
    assert "since HDF5_USE_FILE_LOCKING is off" in problem.evidence


@pytest.mark.parametrize(
    ("operation", "severity"),
    [
        ("flock", "error"),
        ("posix_lock", "warning"),
        ("create_exclusively", "error"),
        ("replace", "error"),
        ("link", "note"),
        ("shared_map", "warning"),
    ],
)
def test_an_operation_without_effect_is_a_problem(machine: Machine, operation: str, severity: str) -> None:
    (problem,), facts = machine.examine(Probe(None, {**WORKS, operation: False}, {}, None))
    assert problem.severity == severity and "has no effect" in problem.evidence
    assert sum(one.value == "no" for one in facts) == 1
    (failed,), _ = machine.examine(without(operation, errno.EPERM))
    assert failed.severity == severity and "1 (EPERM)" in failed.evidence


def test_a_full_disk_is_one_problem(machine: Machine) -> None:
    probe = Probe(None, {}, dict.fromkeys(("clock", "sync", "replace"), errno.ENOSPC), None)
    (problem,), _ = machine.examine(probe)
    assert problem.severity == "error" and "full" in problem.evidence
    (problem,), _ = machine.examine(Probe(errno.EDQUOT, {}, {}, None))
    assert "quota" in problem.evidence


def test_a_folder_that_cannot_be_written_is_a_fact(machine: Machine) -> None:
    for number, words in ((errno.EACCES, "Permission denied"), (errno.EROFS, "Read-only file system")):
        problems, facts = machine.examine(Probe(number, {}, {}, None))
        assert problems == [] and words in facts[-1].value and "not tried out" in facts[-1].name


@pytest.mark.parametrize(
    ("code", "text"),
    [(1, "ended with exit code 1"), (0, "did not start in time: the machine is busy"), (-9, "in time")],
)
def test_a_process_that_tried_nothing_is_a_fact(machine: Machine, code: int, text: str) -> None:
    problems, facts = machine.examine(Probe(None, {}, {}, None, exit_code=code))
    assert problems == [] and text in facts[-1].value


def test_an_operation_that_hangs_is_an_error(machine: Machine) -> None:
    probe = Probe(None, {name: WORKS[name] for name in ("clock", "sync")}, {}, "flock")
    (problem,), _ = machine.examine(probe)
    assert (
        problem.severity == "error" and "flock in" in problem.evidence and "did not end" in problem.evidence
    )


@pytest.mark.parametrize(
    ("operation", "value", "severity", "words"),
    [
        ("sync", 2.5, "warning", "took 2.5 s"),
        ("clock", {"skew_s": -61.0, "is_coarse": False}, "warning", "61.0 s behind"),
        ("clock", {"skew_s": 5.0, "is_coarse": False}, "warning", "5.0 s ahead of"),
        ("clock", {"skew_s": 0.0, "is_coarse": True}, "note", "whole seconds"),
        ("names", {"longest": 143, "case_matters": True}, "note", "143 bytes"),
        ("names", {"longest": 255, "case_matters": False}, "note", "upper and lower case"),
    ],
)
def test_measured_values_are_judged(
    machine: Machine, operation: str, value: object, severity: str, words: str
) -> None:
    (problem,), _ = machine.examine(Probe(None, {**WORKS, operation: value}, {}, None))
    assert problem.severity == severity and words in problem.evidence


@pytest.mark.parametrize(
    ("kind", "options", "severity", "words"),
    [
        ("nfs", ("rw", "nolock", "vers=3"), "warning", "nolock keeps locks on this machine"),
        ("nfs4", ("rw", "local_lock=all"), "warning", "local_lock=all"),
        ("nfs4", ("rw", "soft", "local_lock=none"), "warning", "option soft"),
        ("lustre", ("rw", "noflock"), "error", "option noflock"),
        ("lustre", ("rw", "localflock"), "warning", "localflock"),
        ("fuse.s3fs", ("rw",), "warning", "an object store has no locks"),
        ("fuse.sshfs", ("rw",), "warning", "each mount of it keeps its locks"),
        ("fuse.unheard-of", ("rw",), "warning", "is not known"),
        ("9p", ("rw",), "warning", "9p server may grant every lock"),
    ],
)
def test_a_mount_whose_locks_do_not_exclude_is_named(
    machine: Machine, kind: str, options: tuple[str, ...], severity: str, words: str
) -> None:
    mount = Mount(1, "/mnt/x", kind, "server:/x", options)
    (problem,), _ = machine.examine(Probe(None, dict(WORKS), {}, None), mount)
    assert problem.severity == severity and words in problem.evidence and "/mnt/x" in problem.evidence


@pytest.mark.parametrize("kind", ["ext4", "xfs", "overlay", "tmpfs", "nfs4", "lustre", "ceph"])
def test_a_mount_whose_locks_exclude_is_healthy(machine: Machine, kind: str) -> None:
    mount = Mount(1, "/mnt/x", kind, "server:/x", ("rw", "hard", "flock"))
    assert machine.examine(Probe(None, dict(WORKS), {}, None), mount)[0] == []


def test_locks_that_the_user_trusts_are_a_note(machine: Machine) -> None:
    mount = Mount(1, "/mnt/x", "9p", "x", ("rw",))
    (problem,), _ = machine.examine(Probe(None, dict(WORKS), {}, None), mount, SHARDKEEP_LOCKS="trust")
    assert problem.severity == "note"


def test_one_folder_of_each_file_system_is_tried(machine: Machine, tmp_path: Path) -> None:
    folders = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        folders.append(str(tmp_path / name))
    assert check._one_folder_each(tuple(folders)) == [folders[0]]
