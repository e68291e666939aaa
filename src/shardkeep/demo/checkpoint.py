"""The checkpoint of a run: one file that is replaced whole.

The order around it is what makes a restart exact: every worker commits its own file at a step, and
only when all of them have does the checkpoint of that step appear. So a checkpoint never speaks of
rows that a worker could still lose; rows committed after the newest checkpoint are rolled back.
"""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkeep import files
from shardkeep.errors import CorruptDataError, NotFoundError

__all__ = ["Checkpoint", "load", "publish"]


@dataclass(frozen=True)
class Checkpoint:
    """Where a run can go on from.

    Attributes
    ----------
    step : int
        Steps done.
    loader_state : dict or None
        `Loader.state_dict` after that step, the same on every rank; None before the first step.
    parameters, velocity : ndarray of float32, shape (parameters,)
        Of the model and the optimiser.
    """

    step: int
    loader_state: dict[str, Any] | None
    parameters: npt.NDArray[Any]
    velocity: npt.NDArray[Any]


def publish(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Replace the checkpoint at `path`: after a crash it is the old one or the new one, whole.

    Raises
    ------
    DurabilityError
        It could not be written or synced; the old one is still there.
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
    """Read a checkpoint back.

    Raises
    ------
    NotFoundError
        There is none.
    CorruptDataError
        The file is not one of ours, or its bytes changed since.
    """
    try:
        # Opened here: np.load leaves a file open that is cut short.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            state = json.loads(stored["state"].tobytes())
            return Checkpoint(state["step"], state["loader"], stored["parameters"], stored["velocity"])
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no checkpoint to go on from", path=path) from None
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise CorruptDataError(
            f"{path}: not a whole checkpoint ({error}); run the demo again", path=path
        ) from error
