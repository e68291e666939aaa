"""Check of memory: of the job, of maps of files, and of /dev/shm."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterator

from shardkeep.diagnosis.examination.machine.surroundings import Manager, manager
from shardkeep.diagnosis.examination.report import Fact, Problem
from shardkeep.diagnosis.examination.subject import Subject
from shardkeep.quantities import human_bytes

__all__ = ["memory", "shared_memory"]

_CHECK = "memory"
# A process that has imported PyTorch or TensorFlow, without a model and without data.
_OF_A_PROCESS = 256 << 20
_MAPS_OF_A_PROCESS = 4096
_MAPS_WANTED = 262_144
_SHM = "/dev/shm"
# Two batches of 16 MiB for each worker, as PyTorch's DataLoader keeps with prefetch_factor=2.
_SHM_OF_A_WORKER = 32 << 20


def memory(subject: Subject) -> Iterator[Problem | Fact]:
    """Yield the memory that the job can use, and what limits it."""
    yield from _available(subject)
    yield from _maps(subject)
    yield from _commit(subject)
    for name, kind, flag in (
        ("address space", resource.RLIMIT_AS, "v"),
        ("size of a file", resource.RLIMIT_FSIZE, "f"),
    ):
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY:
            yield Problem(
                "warning",
                _CHECK,
                f"the {name} is limited to {human_bytes(limit)}: beyond it a process gets an error or signal",
                "remove the limit before the job starts",
                f"ulimit -{flag} unlimited",
            )


def _available(subject: Subject) -> Iterator[Problem | Fact]:
    kernel = subject.kernel
    free = kernel.meminfo("MemAvailable")
    if free is None:
        return
    text, limit_name = f"{human_bytes(free)} available", "MemAvailable"
    found = kernel.group_limit("memory", "memory.max", "memory.limit_in_bytes")
    if found is not None:
        limit, folder = found
        used = (
            kernel.number(f"{folder}/memory.current") or kernel.number(f"{folder}/memory.usage_in_bytes") or 0
        )
        text += f", and {human_bytes(used)} of {human_bytes(limit)} of the control group used"
        # The page cache is counted as used, and given up when it is needed.
        unused = max(0, limit - used + _cache(subject, folder))
        if unused < free:
            free, limit_name = unused, "memory.max of the control group"
    yield Fact(_CHECK, "memory", text)
    wanted = subject.processes * _OF_A_PROCESS
    if wanted > free:
        yield Problem(
            "warning",
            _CHECK,
            f"{human_bytes(free)} are left ({limit_name}); {subject.processes:,} processes with a framework"
            f" take about {human_bytes(wanted)} without any data",
            _MORE_MEMORY[manager(subject.environment, kernel)],
            "free -h",
        )
    killed = _killed(subject)
    if killed:
        yield Problem(
            "note",
            _CHECK,
            f"the kernel has ended processes of this control group {killed:,} times since memory ran out",
            _MORE_MEMORY[manager(subject.environment, kernel)],
            "dmesg | grep -i 'out of memory'",
        )


def _cache(subject: Subject, folder: str) -> int:
    for line in (subject.kernel.text(f"{folder}/memory.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0


def _killed(subject: Subject) -> int:
    for folder in subject.kernel.group_folders("memory")[:1]:
        for name in ("memory.events", "memory.oom_control"):
            for line in (subject.kernel.text(f"{folder}/{name}") or "").splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0


def _maps(subject: Subject) -> Iterator[Problem | Fact]:
    largest = subject.kernel.number("proc/sys/vm/max_map_count")
    if largest is None:
        return
    wanted = _MAPS_OF_A_PROCESS + subject.shards
    yield Fact(_CHECK, "mapped regions of a process", f"at most {largest:,} (vm.max_map_count)")
    if wanted > largest:
        yield Problem(
            "warning",
            _CHECK,
            f"a process may have {largest:,} mapped regions (vm.max_map_count); one that maps"
            f" {subject.shards:,} shards needs about {wanted:,}",
            "raise vm.max_map_count as root on the host, also in /etc/sysctl.d",
            f"sysctl -w vm.max_map_count={max(_MAPS_WANTED, 2 * wanted)}",
        )


def _commit(subject: Subject) -> Iterator[Problem | Fact]:
    mode = subject.kernel.setting("vm/overcommit_memory")
    if mode is None:
        return
    yield Fact(_CHECK, "overcommit", {"0": "heuristic", "1": "always", "2": "never"}.get(mode, mode))
    limit, used = subject.kernel.meminfo("CommitLimit"), subject.kernel.meminfo("Committed_AS")
    if mode == "2" and limit is not None and used is not None:
        yield Problem(
            "warning",
            _CHECK,
            f"memory is not overcommitted (vm.overcommit_memory=2): {human_bytes(used)} of"
            f" {human_bytes(limit)} are promised, and each forked worker needs the size of its parent again",
            "start workers with spawn or forkserver, or allow overcommit as root",
            "sysctl -w vm.overcommit_memory=0",
        )


def shared_memory(subject: Subject) -> Iterator[Problem | Fact]:
    """Yield the size of /dev/shm, through which workers of PyTorch and NCCL pass data."""
    if not os.path.isdir("/proc/self"):
        return  # only Linux has it
    check = "shared memory"
    fix, command = _MORE_SHM[manager(subject.environment, subject.kernel)]
    try:
        status = os.statvfs(_SHM)
        with tempfile.TemporaryFile(dir=_SHM) as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        text = f"{_SHM} cannot be written ({error.strerror}): workers that pass data through it fail"
        yield Problem("error", check, text, fix, command, _SHM)
        return
    size, free = status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
    yield Fact(check, _SHM, f"{human_bytes(free)} of {human_bytes(size)} free")
    workers = subject.processes - subject.world.local_size
    wanted = workers * _SHM_OF_A_WORKER
    if free < wanted:
        known = ", the default of Docker" if size == 64 << 20 else ""
        yield Problem(
            "warning",
            check,
            f"{human_bytes(free)} of {human_bytes(size)} are free{known}; {workers:,} workers that pass"
            f" batches of 16 MiB need {human_bytes(wanted)}, and end with SIGBUS without it",
            fix,
            command,
            _SHM,
        )


_MORE_MEMORY: dict[Manager, str] = {
    "kubernetes": "raise resources.limits.memory of the pod, or start fewer ranks and workers",
    "container": "start the container with a higher --memory, or start fewer ranks and workers",
    "slurm": "ask for more memory (sbatch --mem=, --mem-per-cpu=), or start fewer ranks and workers",
    "systemd": "raise MemoryMax of the unit, or start fewer ranks and workers",
    "shell": "start fewer ranks and workers, or use a machine with more memory",
}
_MORE_SHM: dict[Manager, tuple[str, str]] = {
    "kubernetes": (
        "mount an emptyDir with medium: Memory at /dev/shm",
        "kubectl explain pod.spec.volumes.emptyDir.medium",
    ),
    "container": ("start the container with a larger one", "docker run --shm-size=8g IMAGE"),
    "slurm": (
        "use fewer workers; the administrator can enlarge it on the node",
        "mount -o remount,size=50% /dev/shm",
    ),
    "systemd": ("enlarge it as root, also in /etc/fstab", "mount -o remount,size=50% /dev/shm"),
    "shell": ("enlarge it as root, also in /etc/fstab", "mount -o remount,size=50% /dev/shm"),
}
