"""The checkpoint of a run: one file that is replaced atomically.

Every worker commits its own file at a step before the checkpoint of that step is published. A checkpoint
therefore refers only to durable rows, and a restart rolls back the rows that were committed after the newest
checkpoint.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkeep import files

__all__ = ["Checkpoint", "load", "publish"]


@dataclass(frozen=True)
class Checkpoint:
    """The state from which a run can resume.

    Attributes
    ----------
    step : int
        Number of steps done.
    loader_state : dict or None
        `Loader.state_dict` after that step, equal on every rank; None before the first step.
    parameters, velocity : ndarray of float32, shape (parameters,)
        State of the model and of the optimiser.
    """

    step: int
    loader_state: dict[str, Any] | None
    parameters: npt.NDArray[Any]
    velocity: npt.NDArray[Any]


def publish(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Replace the checkpoint at `path`; after a crash the file is the old or the new one.

    Raises
    ------
    DurabilityError
        The file could not be written or synced; the old checkpoint is unchanged.
    """
    state = json.dumps({"step": checkpoint.step, "loader": checkpoint.loader_state})
    with files.publish(path, exists="replace") as out:
        np.savez(
            out,
            parameters=checkpoint.parameters,
            velocity=checkpoint.velocity,
            state=np.frombuffer(state.encode(), np.uint8),
        )


def load(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a checkpoint of this run; it is whole, since it was published."""
    with np.load(path, allow_pickle=False) as stored:
        state = json.loads(stored["state"].tobytes())
        return Checkpoint(state["step"], state["loader"], stored["parameters"], stored["velocity"])
