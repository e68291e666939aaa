"""Consumers that count, peek, read ahead or divide, over the torch adapter: the audit is the judge.

Covers `shardkeep.loader.callers`.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import shardkeep as sk  # noqa: E402
from shardkeep.adapters.torch import DataLoader, ShardkeepDataset  # noqa: E402
from tests.frameworks.exactly_once import judge, make_loader, rows, write_shards  # noqa: E402

EPOCHS = 3
Receipts = list[dict[str, Any]]
Passes = list[list[int]]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_shards(tmp_path_factory.mktemp("shards"))


def whole(batches: DataLoader) -> Passes:
    return [[row for batch in batches for row in rows(batch)] for _ in range(EPOCHS)]


def by_count(batches: DataLoader) -> Passes:
    return [
        [row for _, batch in zip(range(len(batches)), batches, strict=False) for row in rows(batch)]
        for _ in range(EPOCHS)
    ]


def after_a_peek(batches: DataLoader) -> Passes:
    passes: Passes = []
    for _ in range(EPOCHS):
        next(iter(batches))
        passes.append([row for batch in batches for row in rows(batch)])
    return passes


def with_a_queue_of_two(batches: DataLoader) -> Passes:
    """Read two batches ahead, as a transfer to a device does, to the end of each epoch."""
    passes: Passes = []
    for _ in range(EPOCHS):
        queue: list[Any] = []
        passes.append([])
        for batch in batches:
            queue.append(batch)
            if len(queue) > 2:
                passes[-1] += rows(queue.pop(0))
        passes[-1] += [row for batch in queue for row in rows(batch)]
    return passes


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("consume", [whole, by_count, after_a_peek, with_a_queue_of_two])
def test_each_epoch_has_every_record_once(
    paths: list[str], consume: Callable[[DataLoader], Passes], workers: int
) -> None:
    loader = make_loader(paths)
    judge(consume(DataLoader(loader, workers)), [loader.receipt()])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_has_the_batches_that_were_used(paths: list[str], workers: int) -> None:
    first, later = make_loader(paths), make_loader(paths)
    batches = DataLoader(first, workers)
    seen = [row for _, batch in zip(range(3), batches, strict=False) for row in rows(batch)]
    resumed = DataLoader(later, workers)
    resumed.load_state_dict(batches.state_dict())
    seen += [row for batch in resumed for row in rows(batch)]
    judge([seen], [first.receipt(), later.receipt()])


class Plain(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """The dataset that users write over a loader."""

    def __init__(self, loader: sk.Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_loader_in_workers_of_another_dataset_is_refused(paths: list[str], method: str) -> None:
    plain = torch.utils.data.DataLoader(
        Plain(make_loader(paths)), batch_size=None, num_workers=2, multiprocessing_context=method
    )
    batches = iter(plain)
    with pytest.raises(sk.PlanError, match=r"adapters\.torch\.DataLoader"):
        next(batches)
    batches._shutdown_workers()


@pytest.fixture
def accelerator() -> Any:
    return pytest.importorskip("accelerate").Accelerator(cpu=True)


def test_accelerate_leaves_a_loader_as_it_is(paths: list[str], accelerator: Any) -> None:
    loaders = [make_loader(paths, rank, 2) for rank in range(2)]
    prepared = [accelerator.prepare(loader) for loader in loaders]
    seen = [row for one in prepared for batch in one for row in rows(batch)]
    judge([seen], [loader.receipt() for loader in loaders])


def test_accelerate_may_not_prepare_the_dataloader(paths: list[str], accelerator: Any) -> None:
    with pytest.raises(sk.PlanError, match=r"do not pass this DataLoader to prepare\(\)"):
        accelerator.prepare(DataLoader(make_loader(paths)))


@pytest.mark.parametrize(
    ("dataset", "workers", "method"),
    [
        (Plain, 0, None),
        (Plain, 1, "fork"),
        (ShardkeepDataset, 0, None),
        (ShardkeepDataset, 1, "fork"),
        (ShardkeepDataset, 1, "spawn"),
    ],
)
def test_a_dataset_that_accelerate_divides_again_is_refused(
    paths: list[str], accelerator: Any, dataset: Any, workers: int, method: str | None
) -> None:
    prepared = accelerator.prepare(
        torch.utils.data.DataLoader(
            dataset(make_loader(paths, 0, 2)),
            batch_size=None,
            num_workers=workers,
            multiprocessing_context=method,
        )
    )
    with pytest.raises(sk.PlanError, match=r"prepare\(\)|each would deliver every record") as caught:
        next(iter(prepared))
    # The traceback has the iterator, which ends its workers with its last reference.
    del caught, prepared
    gc.collect()
    for worker in multiprocessing.active_children():
        worker.join()
