"""PyTorch's DataLoader, without workers and with some of each start method."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import shardkeep as sk
from shardkeep.adapters.torch import DataLoader
from tests.frameworks.consumers.drivers import Driver, after_a_peek, by_length, loop, with_a_queue
from tests.frameworks.consumers.stories import Answer, case, cases, endless, resumed, whole
from tests.frameworks.exactly_once import make_loader, write_shards


def workers(number: int, consume: Any = None, **options: Any) -> Driver:
    """Return the driver of a DataLoader with a number of workers."""
    return loop(lambda loader: DataLoader(loader, number, **options), *filter(None, [consume]))


class Plain(torch.utils.data.IterableDataset):
    """The dataset that users write over a loader."""

    def __init__(self, loader: sk.Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)


def in_workers_of_another_dataset(method: str, folder: Path) -> Answer:
    """Read the loader in each of two workers, which both refuse it."""
    plain = torch.utils.data.DataLoader(
        Plain(make_loader(write_shards(folder))),
        batch_size=None,
        num_workers=2,
        multiprocessing_context=method,
    )
    batches = iter(plain)
    with pytest.raises(sk.errors.PlanError):
        next(batches)
    # Garbage collection removes the semaphores of an iterator before it ends its workers: a worker that is
    # still starting would fail for want of them.
    next(batches)
    raise AssertionError


METHODS = ("fork", "spawn", "forkserver")
CASES = [
    *cases("torch DataLoader", workers(0), "iterates"),
    *cases("torch DataLoader, 2 workers", workers(2), "copies it to workers"),
    *(
        case(
            "copies it to workers",
            f"torch DataLoader, {method}",
            whole,
            workers(2, multiprocessing_context=method),
        )
        for method in METHODS
    ),
    *(
        case(
            "copies it to workers",
            f"torch DataLoader, {n} that persist",
            whole,
            workers(n, persistent_workers=True),
        )
        for n in (1, 3)
    ),
    *(
        case(
            "copies it to workers",
            f"a dataset of a user, {method}",
            in_workers_of_another_dataset,
            method,
            refusal=r"adapters\.torch\.DataLoader",
        )
        for method in ("fork", "spawn")
    ),
    *(
        case(row, f"torch DataLoader, {n} workers", story, workers(n, consume))
        for n in (0, 2)
        for row, story, consume in (
            ("ends by count", whole, by_length),
            ("ends by count without an end", endless, None),
            ("peeks", whole, after_a_peek),
            ("peeks at a resumed pass", resumed, after_a_peek),
            ("reads ahead", whole, with_a_queue),
        )
    ),
    *(
        case(
            f"resumes from {before} with {after} workers",
            "torch DataLoader",
            resumed,
            workers(before),
            later=workers(after),
        )
        for before, after in ((0, 2), (2, 0), (2, 3), (3, 1))
    ),
]
