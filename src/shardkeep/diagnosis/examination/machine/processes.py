"""Check of processes: how many, how they start, and how they share the processors."""

from __future__ import annotations

import multiprocessing
import os
import resource
from collections.abc import Iterator

from shardkeep.diagnosis.examination.machine.surroundings import Manager, manager
from shardkeep.diagnosis.examination.report import Fact, Problem
from shardkeep.diagnosis.examination.subject import Subject
from shardkeep.tfrecord.index.scan import processors

__all__ = ["processes"]

_CHECK = "processes"
_THREADS_OF_A_PROCESS = 16
_OMP = "OMP_NUM_THREADS"


def processes(subject: Subject) -> Iterator[Problem | Fact]:
    """Yield the start method, live threads, processors, and limits of processes and threads."""
    yield from _start_method(subject)
    yield from _processors(subject)
    yield from _limits(subject)


def _start_method(subject: Subject) -> Iterator[Problem | Fact]:
    # The first is the default of this version of Python on this system.
    method = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    yield Fact(_CHECK, "start method of multiprocessing", method)
    count = len(subject.threads)
    yield Fact(_CHECK, "other live threads of this process", f"{count:,}")
    if method == "fork" and count:
        names = ", ".join(subject.threads[:3]) + (", …" if count > 3 else "")
        yield Problem(
            "warning",
            _CHECK,
            f"workers are forked while this process has {count:,} other threads ({names}): a lock that one of"
            " them holds stays locked in the worker, which then hangs",
            "call multiprocessing.set_start_method('forkserver') or 'spawn', or start workers before threads",
        )


def _processors(subject: Subject) -> Iterator[Problem | Fact]:
    allowed = processors()
    present = max(allowed, os.cpu_count() or 1)
    usable, quota = float(allowed), _quota(subject)
    text = f"{allowed:,} of {present:,}"
    if quota is not None and quota < usable:
        usable = quota
        text += f", with the time of {quota:.1f} (quota of the control group)"
    yield Fact(_CHECK, "processors", text)
    ranks = subject.world.local_size
    if ranks > usable and usable < present:
        yield Problem(
            "warning",
            _CHECK,
            f"{ranks:,} ranks share {text} processors: they wait for each other at every step",
            _MORE_PROCESSORS[manager(subject.environment, subject.kernel)],
            "taskset -cp $$",
        )
    value = subject.environment.get(_OMP, "")
    threads = int(value) if value.isdecimal() else allowed
    yield Fact(_CHECK, _OMP, value or f"not set: {threads:,} threads in each rank")
    if ranks > 1 and ranks * threads > 2 * max(usable, ranks):
        how = value or "not set, so each rank takes all processors"
        yield Problem(
            "note",
            _CHECK,
            f"{_OMP} is {how}: {ranks:,} ranks have {ranks * threads:,} threads for {usable:g} processors",
            "set it for each rank; torchrun sets it to 1",
            f"export {_OMP}={max(1, int(usable) // ranks)}",
        )


def _quota(subject: Subject) -> float | None:
    """Return the number of processors whose time the control groups allow; None without a limit."""
    found = []
    for folder in subject.kernel.group_folders("cpu"):
        limit = (subject.kernel.text(f"{folder}/cpu.max") or "").split()
        if len(limit) == 2 and limit[0].isdecimal():
            found.append(int(limit[0]) / int(limit[1]))
        quota = subject.kernel.number(f"{folder}/cpu.cfs_quota_us")
        period = subject.kernel.number(f"{folder}/cpu.cfs_period_us")
        if quota is not None and period:
            found.append(quota / period)
    return min(found, default=None)


def _limits(subject: Subject) -> Iterator[Problem | Fact]:
    wanted = subject.processes * _THREADS_OF_A_PROCESS
    who = f"{subject.processes:,} processes of about {_THREADS_OF_A_PROCESS} threads"
    found = subject.kernel.group_limit("pids", "pids.max")
    if found is not None:
        limit, folder = found
        used = subject.kernel.number(f"{folder}/pids.current") or 0
        yield Fact(_CHECK, "threads of the control group", f"{used:,} of {limit:,} (pids.max)")
        if used + wanted > limit:
            how, command = _RAISE_PIDS[manager(subject.environment, subject.kernel)]
            text = (
                f"the control group allows {limit:,} threads (pids.max) and has {used:,}; the job needs {who}"
            )
            yield Problem("warning", _CHECK, text, how, command)
    soft = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if soft == resource.RLIM_INFINITY:
        return
    yield Fact(_CHECK, "threads of this user", f"at most {soft:,} (ulimit -u)")
    # The limit does not hold for root.
    if wanted > soft and os.geteuid() != 0:
        text = f"this user may have {soft:,} threads (ulimit -u); the job needs {who}"
        yield Problem("warning", _CHECK, text, "raise the limit", f"ulimit -u {2 * wanted}")


_MORE_PROCESSORS: dict[Manager, str] = {
    "kubernetes": "raise resources.limits.cpu of the pod",
    "container": "start the container with more --cpus or --cpuset-cpus",
    "slurm": "ask for processors for each rank: --cpus-per-task, also for srun",
    "systemd": "raise CPUQuota or CPUAffinity of the unit",
    "shell": "start the job without taskset or numactl, or with fewer ranks",
}
_RAISE_PIDS: dict[Manager, tuple[str, str]] = {
    "kubernetes": ("raise podPidsLimit of the kubelet", "kubectl describe node NODE"),
    "container": ("start the container with a higher limit", "docker run --pids-limit=32768 IMAGE"),
    "slurm": ("ask the administrator for a higher pids.max of jobs", "scontrol show config"),
    "systemd": ("set TasksMax=infinity in the unit", "systemctl edit UNIT"),
    "shell": ("set TasksMax of the user's slice", "systemctl set-property user-$UID.slice TasksMax=infinity"),
}
