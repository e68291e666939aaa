"""Check of the number of open files."""

from __future__ import annotations

import resource
from collections.abc import Iterator

from shardkeep.diagnosis.examination.machine.surroundings import Manager, manager
from shardkeep.diagnosis.examination.report import Fact, Problem, Severity
from shardkeep.diagnosis.examination.subject import Subject
from shardkeep.quantities import counted

__all__ = ["descriptors"]

_CHECK = "descriptors"
# Interpreter, libraries, devices of GPUs and sockets of one process with a framework.
_OF_A_PROCESS = 128
# `shardkeep.files.budget` goes beyond the soft limit up to this number.
_LARGEST_POOL = 65_536


def descriptors(subject: Subject) -> Iterator[Problem | Fact]:
    """Yield the limits of open files, and what is too low for the shards of the job."""
    soft, hard = (_limit(value) for value in resource.getrlimit(resource.RLIMIT_NOFILE))
    pool = _pool(soft, hard, subject)
    yield Fact(_CHECK, "soft limit of a process", f"{soft:,}")
    yield Fact(_CHECK, "hard limit of a process", f"{hard:,}")
    yield Fact(_CHECK, "Shardkeep's readers of a process use", f"up to {pool:,}")
    # Each rank may have a connection to a collector in one process.
    wanted = _OF_A_PROCESS + subject.shards + subject.world.size
    parts = [f"{_OF_A_PROCESS} for libraries", counted(subject.world.size, "connection")]
    parts += [counted(subject.shards, "shard")] if subject.shards else []
    need = f"{wanted:,} ({', '.join(parts)})"
    yield Fact(_CHECK, "a process that opens all shards needs", need)
    if soft < wanted:
        severity: Severity = "warning"
        text = f"a process may have {soft:,} files open and needs {need}"
        if soft < _OF_A_PROCESS:
            severity = "error"
        elif pool >= wanted:
            severity = "note"
            text += "; Shardkeep's readers go beyond the soft limit, other programs fail with EMFILE"
        how, command = _RAISE[manager(subject.environment, subject.kernel)]
        target = max(wanted, 4096)
        if target <= hard:
            how, command = f"the hard limit of {hard:,} allows it: {how}", f"ulimit -n {min(hard, 65_536)}"
        yield Problem(severity, _CHECK, text, how, command)
    yield from _of_the_system(subject, wanted)


def _limit(value: int) -> int:
    return value if value != resource.RLIM_INFINITY else 1 << 30


def _pool(soft: int, hard: int, subject: Subject) -> int:
    if hard > soft and subject.environment.get("SHARDKEEP_DESCRIPTORS") != "soft":
        return min(hard, _LARGEST_POOL)
    return soft * 3 // 4


def _of_the_system(subject: Subject, wanted: int) -> Iterator[Problem | Fact]:
    counts = (subject.kernel.setting("fs/file-nr") or "").split()
    if len(counts) != 3:
        return
    used, largest = int(counts[0]), int(counts[2])
    all_processes = wanted * subject.processes
    yield Fact(_CHECK, "open files of all processes", f"{used:,} of {largest:,} (fs.file-max)")
    if used + all_processes > largest:
        yield Problem(
            "warning",
            _CHECK,
            f"the kernel allows {largest:,} open files (fs.file-max) and has {used:,}; the job may add"
            f" {all_processes:,}: {subject.processes:,} processes of {wanted:,}",
            "raise fs.file-max as root, also in /etc/sysctl.d",
            f"sysctl -w fs.file-max={used + 2 * all_processes}",
        )


_LIMITS_CONF = "raise it in /etc/security/limits.conf (nofile), and log in again"
_RAISE: dict[Manager, tuple[str, str]] = {
    "kubernetes": (
        "raise the limit of the container runtime on the node (LimitNOFILE of containerd)",
        "systemctl show containerd -p LimitNOFILE",
    ),
    "container": (
        "start the container with a higher limit",
        "docker run --ulimit nofile=65536:65536 IMAGE",
    ),
    "slurm": (
        "raise it before sbatch, which passes it on (PropagateResourceLimits), or ask for a higher limit of"
        " slurmd",
        "ulimit -n 65536 && sbatch --propagate=NOFILE JOB",
    ),
    "systemd": ("set LimitNOFILE=65536 in the unit", "systemctl edit UNIT"),
    "shell": (_LIMITS_CONF, "ulimit -n 65536"),
}
