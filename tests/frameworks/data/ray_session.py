"""A session of Ray for tests: small, and on the loopback interface only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.processes import descendants
from tests.waiting import eventually

# Before the import of Ray. Without a cluster over several machines it takes 127.0.0.1 as its address.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")


@contextmanager
def ray_session(cpus: int = 2) -> Iterator[None]:
    """Start Ray; at the end, wait until none of its processes is left."""
    import ray

    ray.init(
        num_cpus=cpus,
        object_store_memory=100 << 20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        yield
    finally:
        started = descendants(os.getpid())
        ray.shutdown()
    eventually(lambda: not any(map(_runs, started)), "a process of Ray outlives its session")
    for pid in started:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
