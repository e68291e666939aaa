"""Messages between the parent and its workers, in the order of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkeep.demo.settings import Settings

__all__ = [
    "Assignment",
    "Committed",
    "Contribution",
    "Failed",
    "Finished",
    "MeanGradient",
    "Publish",
    "Published",
    "Ready",
]

# -- from the parent ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Assignment:
    """The first message to a worker: its rank and its work."""

    rank: int
    world_size: int
    settings: Settings
    shards: tuple[str, ...]
    run_dir: str
    checkpoint: str
    started_s: float  # time.monotonic() of the parent at the start of the run


@dataclass(frozen=True)
class MeanGradient:
    """The mean gradient of a step; `commit` is True if a checkpoint follows it."""

    gradient: npt.NDArray[Any]
    commit: bool


@dataclass(frozen=True)
class Publish:
    """A request to rank 0, after every rank has committed `step`, to publish the checkpoint."""

    step: int


# -- from a worker ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ready:
    """A worker's loader is at the position of the checkpoint; `steps` are left."""

    step: int
    steps: int


@dataclass(frozen=True)
class Contribution:
    """Loss and gradient of one rank in one step, before the gradients are averaged.

    `shard` and `index`, int64 of shape (rows,), are the records of the valid rows. `loss_sum` and
    `gradient_sum` are sums over these rows.
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
        """Number of records used."""
        return len(self.shard)


@dataclass(frozen=True)
class Committed:
    """A worker's rows up to `step` are durable; `loader_state` belongs to the same step."""

    step: int
    loader_state: dict[str, Any]
    open_files: int


@dataclass(frozen=True)
class Published:
    """The checkpoint of `step` is published."""

    step: int


@dataclass(frozen=True)
class Finished:
    """A worker has made all steps and closed its file."""

    open_files: int


@dataclass(frozen=True)
class Failed:
    """An exception ended a worker: a `ShardkeepError` or `OSError`, and the text of the traceback."""

    error: Exception
    traceback: str
