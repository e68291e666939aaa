"""States of torchdata's StatefulDataLoader over a `ShardkeepDataset`.

Covers `shardkeep.adapters.torch.dataset`.
"""

from __future__ import annotations

import gc
import io
import multiprocessing
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchdata")

from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402

import shardkeep as sk  # noqa: E402
from shardkeep.adapters.torch import ShardkeepDataset  # noqa: E402
from tests.frameworks.exactly_once import bare, make_loader, rows  # noqa: E402

pytestmark = [
    # torchdata 0.11 calls a function that torch 2.15 calls deprecated.
    pytest.mark.filterwarnings("ignore:.*set_vital"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]


def stateful(paths: list[str], workers: int, epoch: int = 0, **options: Any) -> StatefulDataLoader:
    dataset = ShardkeepDataset(make_loader(paths, **options))
    dataset.set_epoch(epoch)
    return StatefulDataLoader(dataset, batch_size=None, num_workers=workers)


def saved(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file)
    return loaded


@pytest.mark.parametrize(("workers", "stop"), [(0, 5), (2, 5), (3, 1), (2, 14)])
def test_a_run_resumes_in_mid_epoch_with_as_many_workers(paths: list[str], workers: int, stop: int) -> None:
    first = stateful(paths, workers, epoch=1)
    seen = [rows(batch) for _, batch in zip(range(stop), first, strict=False)]
    later = stateful(paths, workers)
    later.load_state_dict(saved(first.state_dict()))
    seen += [rows(batch) for batch in later]
    assert seen == bare(paths, 2)[1]


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2), (2, 0), (0, 2)])
def test_another_number_of_workers_is_refused(paths: list[str], before: int, after: int) -> None:
    first = stateful(paths, before)
    iterator = iter(first)
    next(iterator)
    later = stateful(paths, after)
    later.load_state_dict(first.state_dict())
    # Between no workers and some, torchdata itself names the key that its state lacks.
    refused = (sk.PlanError, f"of {before} workers on each of 1 ranks") if before and after else None
    error, message = refused or (AssertionError, "State doesn't contain key")
    with pytest.raises(error, match=message) as caught:
        iter(later)
    # The traceback has the iterator, which ends its workers with its last reference.
    del caught, iterator, first
    gc.collect()
    for worker in multiprocessing.active_children():
        worker.join()


@pytest.mark.parametrize("options", [{"size": 2}, {"batch_size": 8}])
def test_another_division_is_refused(paths: list[str], options: dict[str, int]) -> None:
    first = stateful(paths, 0)
    next(iter(first))
    later = stateful(paths, 0, **options)
    later.load_state_dict(first.state_dict())
    with pytest.raises(sk.PlanError, match="whose state fits any number"):
        iter(later)
