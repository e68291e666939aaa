"""What starts the processes here: it decides which command raises a limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from shardkeep.diagnosis.kernel import Kernel

__all__ = ["Manager", "manager"]

Manager = Literal["kubernetes", "container", "slurm", "systemd", "shell"]


def manager(environment: Mapping[str, str], kernel: Kernel) -> Manager:
    """Return what set the limits of this process.

    Examples
    --------
    >>> manager({"SLURM_JOB_ID": "7"}, Kernel("/nowhere")), manager({}, Kernel("/nowhere"))
    ('slurm', 'shell')
    """
    # First, since a job of Slurm may run in a container, whose limits Slurm sets too.
    if environment.get("SLURM_JOB_ID"):
        return "slurm"
    if environment.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if kernel.has(".dockerenv") or kernel.has("run/.containerenv") or environment.get("container"):
        return "container"
    return "systemd" if environment.get("INVOCATION_ID") else "shell"
