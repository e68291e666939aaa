"""Limits of open files against what a job needs.

Covers `shardkeep.diagnosis.examination.machine.surroundings`.
"""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from shardkeep.diagnosis.examination.machine.descriptors import descriptors
from tests.described_machine import DescribedMachine


@pytest.fixture
def machine(tmp_path: Path) -> DescribedMachine:
    return DescribedMachine(tmp_path / "root")


def limit(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft, hard))


def shards(folder: Path, count: int) -> tuple[str, ...]:
    folder.mkdir()
    for number in range(count):
        (folder / f"{number}.tfrecord").touch()
    (folder / "0.tfrecord.skidx").touch()
    return (str(folder),)


def test_a_common_machine_is_healthy(machine: DescribedMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, 1024, 524_288)
    machine.write("proc/sys/fs/file-nr", "1000\t0\t9223372036854775807\n")
    problems, facts = machine.examine(descriptors)
    assert problems == []
    assert facts["soft limit of a process"] == "1,024"
    assert facts["Shardkeep's readers of a process use"] == "up to 65,536"


def test_a_limit_below_the_libraries_is_an_error(
    machine: DescribedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, 64, 524_288)
    (problem,), _ = machine.examine(descriptors)
    assert problem.severity == "error" and "64 files open and needs 129" in problem.evidence
    assert problem.command == "ulimit -n 65536" and "hard limit of 524,288 allows it" in problem.fix


def test_more_shards_than_the_soft_limit_are_a_note_where_readers_go_beyond(
    machine: DescribedMachine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine.paths = shards(tmp_path / "data", 200)
    limit(monkeypatch, 256, 4096)
    (problem,), facts = machine.examine(descriptors)
    assert problem.severity == "note" and "200 shards" in problem.evidence
    assert facts["a process that opens all shards needs"].startswith("329 ")
    machine.environment["SHARDKEEP_DESCRIPTORS"] = "soft"
    (problem,), _ = machine.examine(descriptors)
    assert problem.severity == "warning"
    limit(monkeypatch, 256, 256)
    (problem,), facts = machine.examine(descriptors)
    assert problem.severity == "warning" and facts["Shardkeep's readers of a process use"] == "up to 192"


@pytest.mark.parametrize(
    ("environment", "file", "command"),
    [
        ({}, None, "ulimit -n 65536"),
        ({"SLURM_JOB_ID": "1"}, None, "ulimit -n 65536 && sbatch --propagate=NOFILE JOB"),
        ({}, ".dockerenv", "docker run --ulimit nofile=65536:65536 IMAGE"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, None, "systemctl show containerd -p LimitNOFILE"),
        ({"INVOCATION_ID": "x"}, None, "systemctl edit UNIT"),
    ],
)
def test_the_fix_is_that_of_what_started_the_processes(
    machine: DescribedMachine,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    file: str | None,
    command: str,
) -> None:
    limit(monkeypatch, 64, 64)
    machine.environment.update(environment)
    if file is not None:
        machine.write(file)
    (problem,), _ = machine.examine(descriptors)
    assert problem.command == command


def test_the_limit_of_the_kernel_counts_for_all_processes(
    machine: DescribedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, 65_536, 65_536)
    machine.ranks = 8
    machine.write("proc/sys/fs/file-nr", "1000 0 6000\n")
    (problem,), facts = machine.examine(descriptors)
    assert facts["open files of all processes"] == "1,000 of 6,000 (fs.file-max)"
    assert "5,440: 40 processes of 136" in problem.evidence
    assert problem.command == "sysctl -w fs.file-max=11880"
