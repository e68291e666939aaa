"""Jobs that several subjects use: complete passes over the files of a workload."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from benchmarks.comparison import Job
from shardkeep.loader import Loader
from shardkeep.tfrecord import FixedLen
from shardkeep.world import World

__all__ = ["TABLE", "first_batch", "loaded", "plain_read"]

# The features of the workload "table".
TABLE: dict[str, Any] = {f"f{i:02d}": FixedLen((1,), "float32") for i in range(13)}
TABLE |= {f"i{i:02d}": FixedLen((1,)) for i in range(26)} | {"label": FixedLen()}


def loaded(**options: Any) -> Job:
    """Return a job that reads one epoch through a Loader with these options."""
    return partial(_load, options)


def _load(options: dict[str, Any], paths: list[str]) -> int:
    return sum(int(batch["valid"].sum()) for batch in Loader(paths, world=World(), **options))


def first_batch(**options: Any) -> Job:
    """Return a job that creates a Loader with these options and takes one batch."""
    return partial(_first, options)


def _first(options: dict[str, Any], paths: list[str]) -> int:
    next(iter(Loader(paths, world=World(), **options)))
    return 1


def plain_read(paths: list[str]) -> int:
    """Read all bytes on all cores without processing them, as an upper limit of reading."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(_read, paths))
    return 0


def _read(path: str) -> None:
    buffer = bytearray(1 << 20)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
