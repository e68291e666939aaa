"""Refusal of callers that would lose or repeat records of a loader."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from shardkeep.errors import PlanError
from shardkeep.world import World

__all__ = ["calling_modules", "refuse_division", "refuse_lightning", "refuse_skipping", "refuse_torch_worker"]

LIGHTNING = ("lightning.pytorch.", "pytorch_lightning.")
_DIVIDING = "accelerate.data_loader"


def refuse_torch_worker(workers: int) -> None:
    """Raise in a worker of PyTorch's DataLoader that reads the records of others, or loses its receipt."""
    torch: Any = sys.modules.get("torch.utils.data")
    worker = None if torch is None else torch.get_worker_info()
    if worker is not None and worker.num_workers != workers:
        raise PlanError(
            f"this is worker {worker.id} of {worker.num_workers} of a torch DataLoader; each would deliver"
            " every record: use shardkeep.adapters.torch.DataLoader, or read_ahead(worker, workers)"
        )


def refuse_division(world: World) -> None:
    """Raise in a DataLoader that accelerate's `prepare` made, which divides the batches again."""
    if _DIVIDING in sys.modules and world.size > 1 and _DIVIDING in calling_modules():
        raise PlanError(
            f"accelerate's prepare() would divide the batches of rank {world.rank} of {world.size} a second"
            " time, and records would be lost: do not pass this DataLoader to prepare(), since the Loader has"
            " rank and world size"
        )


def refuse_skipping() -> None:
    """Raise in a DataLoader that accelerate's `skip_first_batches` made of the dataset of another one.

    Hugging Face's Trainer calls it to resume.
    """
    if _DIVIDING in sys.modules and _DIVIDING in calling_modules():
        raise PlanError(
            "skip_first_batches() would read without the DataLoader, whose place would not move: set"
            " ignore_data_skip=True in TrainingArguments, and load the state of the DataLoader that was saved"
            " with the checkpoint"
        )


def refuse_lightning() -> None:
    """Raise if Lightning iterates a loader itself."""
    if next(calling_modules(), "").startswith(LIGHTNING):
        raise PlanError(
            "Lightning counts batches across a resume, and inspects some before the training, which a Loader"
            " does not expect: pass shardkeep.adapters.torch.DataLoader(loader) to the Trainer"
        )


def calling_modules() -> Iterator[str]:
    """Yield the name of the module of each caller outside of Shardkeep, the innermost first."""
    frame = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if not name.startswith("shardkeep."):
            yield name
        frame = frame.f_back  # type: ignore[assignment]
