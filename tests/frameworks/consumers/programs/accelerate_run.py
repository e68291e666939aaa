"""A rank of a run with accelerate. Arguments: task ("train" or "divide") and folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import accelerate
import torch

import shardkeep as sk
from shardkeep.adapters.torch import DataLoader, ShardkeepDataset
from tests.frameworks.exactly_once import rows

EPOCHS = 2
STOP = 3
"""Number of steps before the checkpoint."""


def make_loader(folder: str) -> sk.Loader:
    return sk.Loader(f"{folder}/*.tfrecord", {"x": sk.FixedLen()}, 16, shuffle="global")


def train(folder: str) -> None:
    """Train up to the checkpoint on two ranks, and from it to the end on one."""
    accelerator = accelerate.Accelerator(cpu=True)
    loader = make_loader(folder)
    batches = DataLoader(loader)
    model = torch.nn.Linear(1, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    accelerator.register_for_checkpointing(batches)
    checkpoint = Path(folder, "checkpoint")
    if checkpoint.exists():
        accelerator.load_state(str(checkpoint))
    seen: list[list[int]] = [[] for _ in range(EPOCHS)]
    steps, stop = 0, STOP if loader.world.size == 2 else -1
    while loader.epoch < EPOCHS and steps != stop:
        epoch = loader.epoch
        for batch in batches:
            accelerator.backward(model(batch["x"].float()[:, None]).mean() * 0)
            optimizer.step()
            seen[epoch] += rows(batch)
            steps += 1
            if steps == stop:
                accelerator.save_state(str(checkpoint))
                break
    answer = {"rows": seen, "receipt": loader.receipt()}
    Path(folder, f"{loader.world.size}-{loader.world.rank}.json").write_text(json.dumps(answer))
    accelerator.end_training()


def divide_again(folder: str) -> None:
    """Iterate a plain DataLoader that `prepare` divides."""
    accelerator = accelerate.Accelerator(cpu=True)
    plain = torch.utils.data.DataLoader(ShardkeepDataset(make_loader(folder)), batch_size=None)
    next(iter(accelerator.prepare(plain)))


if __name__ == "__main__":
    task, folder = sys.argv[1:]
    train(folder) if task == "train" else divide_again(folder)
