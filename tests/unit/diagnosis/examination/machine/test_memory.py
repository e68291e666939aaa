"""Memory of a machine or control group against what a job needs."""

from __future__ import annotations

import os
import resource
import tempfile
from pathlib import Path
from typing import Any

import pytest

from shardkeep.diagnosis.examination.machine.memory import memory, shared_memory
from tests.described_machine import GIB, DescribedMachine


@pytest.fixture
def machine(tmp_path: Path) -> DescribedMachine:
    found = DescribedMachine(tmp_path / "root")
    found.meminfo(MemAvailable=64, CommitLimit=32, Committed_AS=20)
    found.write("proc/sys/vm/max_map_count", "65530")
    found.write("proc/sys/vm/overcommit_memory", "0")
    return found


def test_a_common_machine_is_healthy(machine: DescribedMachine) -> None:
    problems, facts = machine.examine(memory)
    assert problems == []
    assert facts == {
        "memory": "64.0 GiB available",
        "mapped regions of a process": "at most 65,530 (vm.max_map_count)",
        "overcommit": "heuristic",
    }


@pytest.mark.parametrize("version", [1, 2])
def test_the_limit_of_a_control_group_counts(machine: DescribedMachine, version: int) -> None:
    machine.ranks = 8
    names = (
        ("memory.max", "memory.current")
        if version == 2
        else (
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
        )
    )
    files = dict(zip(names, (str(8 * GIB), str(6 * GIB)), strict=True))
    machine.group("memory", files | {"memory.stat": f"inactive_file {GIB}\n"}, version=version)
    (problem,), facts = machine.examine(memory)
    assert "6.0 GiB of 8.0 GiB of the control group used" in facts["memory"]
    assert problem.severity == "warning"
    assert "3.0 GiB are left" in problem.evidence and "40 processes with a framework take" in problem.evidence
    machine.ranks = 1
    assert machine.examine(memory)[0] == []


def test_a_group_without_a_limit_inherits_that_of_its_parent(machine: DescribedMachine) -> None:
    machine.group("memory", {"memory.max": "max", "memory.current": "0"}, "outer/inner")
    assert machine.examine(memory)[0] == []
    machine.group("memory", {"memory.max": str(GIB), "memory.current": "0"}, "outer")
    machine.write("proc/self/cgroup", "0::/outer/inner\n")
    (problem,), _ = machine.examine(memory)
    assert "1.0 GiB are left" in problem.evidence


def test_a_group_of_version_1_without_a_limit(machine: DescribedMachine) -> None:
    machine.group("memory", {"memory.limit_in_bytes": "9223372036854771712"}, version=1)
    problems, facts = machine.examine(memory)
    assert problems == [] and facts["memory"] == "64.0 GiB available"


def test_processes_that_were_ended_are_a_note(machine: DescribedMachine) -> None:
    machine.group("memory", {"memory.events": "oom 3\noom_kill 2\n"})
    (problem,), _ = machine.examine(memory)
    assert problem.severity == "note" and "2 times" in problem.evidence


def test_more_shards_than_mapped_regions(machine: DescribedMachine, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number in range(50):
        (tmp_path / "data" / f"{number}.h5").touch()
    machine.paths = (str(tmp_path / "data"),)
    machine.write("proc/sys/vm/max_map_count", "4100")
    (problem,), _ = machine.examine(memory)
    assert "maps 50 shards needs about 4,146" in problem.evidence
    assert problem.command == "sysctl -w vm.max_map_count=262144"


def test_memory_that_is_not_overcommitted(machine: DescribedMachine) -> None:
    machine.write("proc/sys/vm/overcommit_memory", "2")
    (problem,), facts = machine.examine(memory)
    assert facts["overcommit"] == "never" and "20.0 GiB of 32.0 GiB" in problem.evidence


def test_limits_of_a_shell_are_named(machine: DescribedMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {resource.RLIMIT_AS: 4 * GIB, resource.RLIMIT_FSIZE: 1 << 20}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limits[kind], limits[kind]))
    first, second = machine.examine(memory)[0]
    assert "address space is limited to 4.0 GiB" in first.evidence and first.command == "ulimit -v unlimited"
    assert "size of a file is limited to 1.0 MiB" in second.evidence


def shm(monkeypatch: pytest.MonkeyPatch, size: int, free: int) -> None:
    values = (4096, 4096, size // 4096, free // 4096, free // 4096, 0, 0, 0, 0, 255)
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(values))


def test_the_shared_memory_of_docker_is_too_small_for_workers(
    machine: DescribedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.write(".dockerenv")
    shm(monkeypatch, 64 << 20, 64 << 20)
    (problem,), facts = machine.examine(shared_memory)
    assert facts == {"/dev/shm": "64.0 MiB of 64.0 MiB free"}
    assert "the default of Docker" in problem.evidence and "need 128.0 MiB" in problem.evidence
    assert problem.command == "docker run --shm-size=8g IMAGE"


def test_enough_shared_memory_is_healthy(machine: DescribedMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    shm(monkeypatch, 8 * GIB, 7 * GIB)
    assert machine.examine(shared_memory)[0] == []


def test_shared_memory_that_cannot_be_written_is_an_error(
    machine: DescribedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    (problem,), facts = machine.examine(shared_memory)
    assert problem.severity == "error" and "Permission denied" in problem.evidence and facts == {}
