"""Start method, processors and limits of processes."""

from __future__ import annotations

import multiprocessing
import os
import resource
from pathlib import Path

import pytest

from shardkeep.diagnosis.examination.machine import processes as module
from shardkeep.diagnosis.examination.machine.processes import processes
from tests.described_machine import DescribedMachine


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DescribedMachine:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (4096, 4096))
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none: "fork")
    return DescribedMachine(tmp_path / "root")


def test_a_common_machine_is_healthy(machine: DescribedMachine) -> None:
    machine.environment["OMP_NUM_THREADS"] = "2"
    machine.ranks = 8
    problems, facts = machine.examine(processes)
    assert problems == []
    assert facts["processors"] == "16 of 16"
    assert facts["start method of multiprocessing"] == "fork"


def test_a_fork_with_live_threads_is_a_warning(
    machine: DescribedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.threads = ("tqdm_monitor", "pin_memory")
    (problem,), facts = machine.examine(processes)
    assert problem.severity == "warning" and "(tqdm_monitor, pin_memory)" in problem.evidence
    assert facts["other live threads of this process"] == "2"
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none: "spawn")
    assert machine.examine(processes)[0] == []


def test_more_threads_than_processors_are_a_note(machine: DescribedMachine) -> None:
    machine.ranks = 8
    (problem,), facts = machine.examine(processes)
    assert problem.severity == "note" and "8 ranks have 128 threads for 16 processors" in problem.evidence
    assert problem.command == "export OMP_NUM_THREADS=2"
    assert facts["OMP_NUM_THREADS"] == "not set: 16 threads in each rank"
    machine.environment["OMP_NUM_THREADS"] = "8"
    (problem,), _ = machine.examine(processes)
    assert "OMP_NUM_THREADS is 8: 8 ranks have 64 threads" in problem.evidence


def test_ranks_that_are_bound_to_few_processors_are_a_warning(
    machine: DescribedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.ranks = 4
    machine.environment = {"OMP_NUM_THREADS": "1", "SLURM_JOB_ID": "7"}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})
    (problem,), _ = machine.examine(processes)
    assert problem.severity == "warning" and "4 ranks share 1 of 16 processors" in problem.evidence
    assert "--cpus-per-task" in problem.fix


@pytest.mark.parametrize("version", [1, 2])
def test_a_quota_of_processor_time_counts(machine: DescribedMachine, version: int) -> None:
    machine.ranks = 4
    machine.environment["OMP_NUM_THREADS"] = "1"
    files = (
        {"cpu.max": "150000 100000"}
        if version == 2
        else {"cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "100000"}
    )
    machine.group("cpu", files, version=version)
    (problem,), facts = machine.examine(processes)
    assert facts["processors"] == "16 of 16, with the time of 1.5 (quota of the control group)"
    assert problem.severity == "warning"


def test_no_quota_is_no_limit(machine: DescribedMachine) -> None:
    machine.group("cpu", {"cpu.max": "max 100000"})
    assert machine.examine(processes)[0] == []
    machine.group("cpu", {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}, version=1)
    assert machine.examine(processes)[0] == []


def test_the_limit_of_threads_of_a_control_group(machine: DescribedMachine) -> None:
    machine.ranks = 8
    machine.environment["OMP_NUM_THREADS"] = "1"
    machine.group("pids", {"pids.max": "512", "pids.current": "100"})
    (problem,), facts = machine.examine(processes)
    assert facts["threads of the control group"] == "100 of 512 (pids.max)"
    assert "40 processes of about 16 threads" in problem.evidence
    assert problem.command == "systemctl set-property user-$UID.slice TasksMax=infinity"


def test_the_limit_of_threads_of_a_user(machine: DescribedMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.ranks = 60
    machine.environment["OMP_NUM_THREADS"] = "1"
    problems, _ = machine.examine(processes)
    assert problems[-1].command == "ulimit -u 9600"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert all("ulimit -u" not in (one.command or "") for one in machine.examine(processes)[0])


def test_the_default_start_method_is_not_set_by_asking(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none: None)
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["forkserver", "fork", "spawn"])
    _, facts = DescribedMachine(tmp_path).examine(module.processes)
    assert facts["start method of multiprocessing"] == "forkserver"
