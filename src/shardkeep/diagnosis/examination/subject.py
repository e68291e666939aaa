"""What the checks of one examination examine."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from shardkeep.diagnosis.kernel import Kernel
from shardkeep.files.kinds.data_names import is_bare_shard, kind_of_name
from shardkeep.world import World

__all__ = ["Subject"]

# Processes that load data for each rank, besides the rank itself.
_WORKERS = 4


@dataclass(frozen=True)
class Subject:
    """The machine, the paths and the size of one training job.

    Attributes
    ----------
    paths : tuple of str
        Existing files and folders, as the user named them, patterns replaced by their matches; often empty.
    folders : tuple of str
        The folders of the paths, each once; without paths the working directory.
    world : World
        `world.size` is the number of ranks of the job, `world.local_size` the number of them that run here.
    environment : mapping of str to str
        Environment variables.
    kernel : Kernel
        Settings of the kernel and limits of a container.
    threads : tuple of str
        Names of the other live threads of this process when the examination began.
    deadline_s : float
        Value of `time.monotonic` at which every check must have ended. What it has yielded is kept.
    stop : threading.Event
        Set when the examination is interrupted or has ended: a check then stops and removes what it made.
    """

    paths: tuple[str, ...]
    folders: tuple[str, ...]
    world: World
    environment: Mapping[str, str]
    kernel: Kernel = field(default_factory=Kernel)
    threads: tuple[str, ...] = ()
    deadline_s: float = field(default_factory=lambda: time.monotonic() + 8)
    stop: threading.Event = field(default_factory=threading.Event)

    @functools.cached_property
    def shards(self) -> int:
        """Number of files that are data by their names in the folders of the paths, or were passed."""
        count = 0
        for path in self.paths:
            count += not os.path.isdir(path)
            for _, _, names in os.walk(path):
                if not self.left_s:
                    break
                count += sum(1 for name in names if kind_of_name(name) or is_bare_shard(name))
        return count

    @property
    def left_s(self) -> float:
        """Seconds until a check must have ended; never negative."""
        return 0.0 if self.stop.is_set() else max(0.0, self.deadline_s - time.monotonic())

    @property
    def processes(self) -> int:
        """Number of processes of the job on this machine: ranks and their workers."""
        return self.world.local_size * (1 + _WORKERS)
