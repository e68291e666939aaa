"""The `image_raw`/`label` input of several GPUs: DistributedDataParallel on two ranks.

The two ranks train with gloo on processors, so that this runs anywhere; with GPUs only the back end differs.
All ranks must make the same number of steps, and torch's sampler repeats or drops images for that.

    python examples/recipes/torch_images.py
"""

from __future__ import annotations

import datetime
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
from recipe import Processes, finish, heading, png, show, write_shards
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

import shardkeep as sk
from shardkeep.adapters.torch import DataLoader, RecordDataset

RANKS = 2
COUNTS = (60, 31)
FEATURES = {"image_raw": sk.Image(1, size=(8, 8)), "label": sk.FixedLen(), "number": sk.FixedLen()}


def train(rank: int, paths: list[str], input_of: Callable[[int, list[str]], Any]) -> list[int]:
    """Train for an epoch; return the numbers of the images that were used."""
    file = f"{paths[0]}.{input_of.__name__}"
    timeout = datetime.timedelta(seconds=10)  # by default half an hour
    torch.distributed.init_process_group(
        "gloo", f"file://{file}", timeout=timeout, rank=rank, world_size=RANKS
    )
    try:
        model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        used: list[int] = []
        for batch in input_of(rank, paths):
            # Without a Loader each row is one of the data.
            valid = batch.get("valid", torch.ones(len(batch["label"]), dtype=torch.bool))
            losses = torch.nn.functional.cross_entropy(
                model(batch["image_raw"]), batch["label"], reduction="none"
            )
            optimizer.zero_grad()
            (losses * valid).sum().div(valid.sum().clamp(min=1)).backward()
            optimizer.step()
            used += batch["number"][valid].tolist()
        return used
    finally:
        torch.distributed.destroy_process_group()


def files_of_the_rank(rank: int, paths: list[str]) -> Iterator[dict[str, Any]]:
    """WRONG: one rank has more batches than the other, and waits for its gradients."""
    dataset = RecordDataset(paths[rank], FEATURES)
    return iter(torch.utils.data.DataLoader(dataset, batch_size=8))


def sampler(rank: int, paths: list[str]) -> Iterator[dict[str, Any]]:
    """WRONG: the sampler repeats images, until the ranks have the same number."""
    dataset = RecordDataset(paths, FEATURES)
    return iter(torch.utils.data.DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset)))


def sampler_that_drops(rank: int, paths: list[str]) -> Iterator[dict[str, Any]]:
    """WRONG: or it drops them."""
    dataset = RecordDataset(paths, FEATURES)
    sampler = DistributedSampler(dataset, drop_last=True)
    return iter(torch.utils.data.DataLoader(dataset, batch_size=8, sampler=sampler))


def loader(rank: int, paths: list[str]) -> Iterator[dict[str, Any]]:
    """RIGHT: equal steps, in which `valid` marks the images; the rank comes from torch.distributed."""
    return iter(DataLoader(sk.Loader(paths, FEATURES, 8, shuffle="global")))


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, Processes(RANKS) as ranks:
        paths = write_shards(
            folder, COUNTS, image_raw=lambda number: png(8, number), label=lambda number: number % 10
        )
        heading(f"{RANKS} ranks train with {sum(COUNTS)} images")
        outcomes = [
            show(title, range(sum(COUNTS)), ranks.run(train, paths, input_of))
            for title, input_of in (
                ("a file for each rank", files_of_the_rank),
                ("DistributedSampler", sampler),
                ("DistributedSampler(drop_last=True)", sampler_that_drops),
                ("a Loader on each rank", loader),
            )
        ]
    return finish(outcomes, [False, False, False, True])


if __name__ == "__main__":
    sys.exit(main())
