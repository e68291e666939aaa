"""What the parent and its workers say to each other, in the order of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkeep.demo.settings import Settings

__all__ = [
    "Assignment",
    "Average",
    "Committed",
    "Contribution",
    "Failed",
    "Finished",
    "Publish",
    "Published",
    "Ready",
]

# -- from the parent ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Assignment:
    """The first message to a worker: who it is and what to work on."""

    rank: int
    world_size: int
    settings: Settings
    shards: tuple[str, ...]
    records: int
    run_dir: str
    checkpoint: str
    started_s: float  # time.monotonic() of the parent at the start of the run


@dataclass(frozen=True)
class Average:
    """The mean gradient of a step; `commit` when a checkpoint follows it."""

    gradient: npt.NDArray[Any]
    commit: bool


@dataclass(frozen=True)
class Publish:
    """To rank 0, when every rank has committed `step`: make the checkpoint appear."""

    step: int


# -- from a worker ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ready:
    """The loader is open and stands at the checkpoint; `steps` are left."""

    step: int
    steps: int


@dataclass(frozen=True)
class Contribution:
    """One rank's part of one step, before the gradients are averaged.

    `shard` and `index` name the records of the valid rows, int64 (rows,); `loss_sum` and
    `gradient_sum` are sums over them.
    """

    step: int
    epoch: int
    loss_sum: float
    gradient_sum: npt.NDArray[Any]
    shard: npt.NDArray[np.int64]
    index: npt.NDArray[np.int64]
    open_files: int

    @property
    def rows(self) -> int:
        """How many records it has used."""
        return len(self.shard)


@dataclass(frozen=True)
class Committed:
    """The rows up to `step` survive anything; `loader_state` belongs to the same step."""

    step: int
    loader_state: dict[str, Any]
    open_files: int


@dataclass(frozen=True)
class Published:
    """The checkpoint of `step` is in place."""

    step: int


@dataclass(frozen=True)
class Finished:
    """No steps are left and the worker's file is closed."""

    open_files: int


@dataclass(frozen=True)
class Failed:
    """An exception ended the worker: the error itself if it is one of ours, and its traceback."""

    error: Exception
    traceback: str
