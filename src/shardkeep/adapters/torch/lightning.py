"""Corrections for Lightning's Trainer, which counts the batches of an epoch itself.

Lightning stores its count and the state of each DataLoader in a checkpoint. It asks for the length of an
epoch before it loads the states, so its count must be that of this number of devices; and after an epoch it
does not load them at all. Both are found by the loop that calls, since a DataLoader has no reference to it.
"""

from __future__ import annotations

import sys
from typing import Any

from shardkeep.errors import PlanError
from shardkeep.loader.callers import LIGHTNING, calling_modules

__all__ = ["correct_count", "is_calling", "unread_state"]

_FABRIC = ("lightning.fabric.", "lightning_fabric.")
_LOADING = "_load_combined_loader_states"
_BEGINNING = "setup_data"


def is_calling() -> bool:
    """Return True if the Trainer called the DataLoader, also through a function of Fabric."""
    modules = (name for name in calling_modules() if not name.startswith(_FABRIC))
    return next(modules, "").startswith(LIGHTNING)


def correct_count(before: int, now: int) -> None:
    """Correct the count of batches of a loop that loads a state, for another world or batch size.

    Parameters
    ----------
    before, now : int
        Number of batches of the pass, in those of the state, and in those of this loader.

    Raises
    ------
    PlanError
        The loop is of an unknown version of Lightning.
    """
    loop = _loop_in(_LOADING)
    if loop is None:
        raise PlanError(
            f"the checkpoint is from the middle of an epoch, after {before} batches, which would be {now} of"
            " this number of devices and batch size; this version of Lightning counts them in an unknown way:"
            " resume with the same number, or from the end of an epoch"
        )
    progress = loop.epoch_loop.batch_progress.current
    for name in ("ready", "started", "processed", "completed"):
        setattr(progress, name, max(0, getattr(progress, name) - before + now))


def unread_state(data_loader: object) -> Any:
    """Return, once, the state that a checkpoint from the end of an epoch has for a DataLoader, or None.

    Lightning loads only those from the middle of an epoch.
    """
    loop = _loop_in(_BEGINNING)
    states = getattr(loop, "_combined_loader_states_to_load", None) or []
    for i, state in enumerate(states):
        if loop._combined_loader.flattened[i] is data_loader:
            states[i] = None
            return state
    return None


def _loop_in(method: str) -> Any:
    """Return the loop of Lightning of which `method` is running."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if frame.f_code.co_name == method and name.startswith(LIGHTNING):
            return frame.f_locals.get("self")
        frame = frame.f_back
    return None
