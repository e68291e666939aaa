"""Trainings for any framework; each returns the records of each epoch, and the receipts.

A driver is a function ``train(loader, epochs, stop=None)``. It drives the framework over the loader for a
number of epochs, or until `stop` batches of one were used, and returns the records of each epoch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import shardkeep as sk
from tests.frameworks import exactly_once
from tests.frameworks.exactly_once import RECORDS, bare, make_loader, write_shards

Passes = list[list[int]]
Answer = tuple[Passes, list[dict[str, Any]]]
Driver = Callable[..., Passes]

PROGRAMS = "tests.frameworks.consumers.programs"
"""The package of the programs that cases start."""
EPOCHS = 2
"""Epochs of these programs."""


def case(
    row: str,
    name: str,
    run: Callable[..., Answer],
    *arguments: Any,
    refusal: str = "",
    marks: Any = (),
    **options: Any,
) -> Any:
    """Return a parameter of the suite.

    Parameters
    ----------
    row : str
        What the framework does.
    name : str
        Framework and configuration.
    run : callable
        Training: it receives `arguments`, an empty folder, and `options`.
    refusal : str
        Regular expression of the error, if the training has to be refused.
    """
    return pytest.param(partial(run, *arguments, **options), refusal, marks=marks, id=f"{row}: {name}")


# -- trainings -----------------------------------------------------------------------------------------------


def whole(train: Driver, folder: Path, in_order: bool = True, **options: Any) -> Answer:
    """Train three epochs."""
    paths = write_shards(folder)
    loader = make_loader(paths, **options)
    passes = train(loader, 3)
    assert (loader.epoch, loader.position) == (3, 0)
    if in_order:
        assert passes == epochs_of(paths, 3, **options)
    return passes, [loader.receipt()]


def endless(train: Driver, folder: Path) -> Answer:
    """Train two epochs and then one of a loader without an end."""
    loader = make_loader(write_shards(folder), epochs=None)
    passes = train(loader, 2) + train(loader, 1)
    assert (loader.epoch, loader.position) == (3, 0)
    return passes, [loader.receipt()]


def resumed(train: Driver, folder: Path, in_order: bool = True, later: Driver | None = None) -> Answer:
    """Train five batches, and the rest of the epoch and two more with another loader that has the state."""
    paths = write_shards(folder)
    first, second = make_loader(paths), make_loader(paths)
    seen = train(first, 1, stop=5)[0]
    assert first.position == len(seen) == 80
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    passes = (later or train)(second, 3)
    passes[0] = seen + passes[0]
    if in_order:
        assert passes == epochs_of(paths, 3)
    return passes, [first.receipt(), second.receipt()]


def resumed_by_two(train: Driver, folder: Path) -> Answer:
    """Train four batches, and the rest and another epoch on two ranks with smaller batches."""
    paths = write_shards(folder)
    first = make_loader(paths)
    passes = [train(first, 1, stop=4)[0], []]
    receipts = [first.receipt()]
    for rank in range(2):
        loader = make_loader(paths, rank, 2, 10)
        loader.load_state_dict(first.state_dict())
        for seen, more in zip(passes, train(loader, 2), strict=True):
            seen += more
        receipts.append(loader.receipt())
    return passes, receipts


def cases(name: str, train: Driver, *rows: str, marks: Any = (), in_order: bool = True) -> Iterator[Any]:
    """Return the cases of a driver: the rows that it stands for, and the trainings that are resumed."""
    for row in rows:
        yield case(row, name, whole, train, marks=marks, in_order=in_order)
    yield case("resumes", name, resumed, train, marks=marks, in_order=in_order)
    yield case("resumes as two ranks", name, resumed_by_two, train, marks=marks)


def epochs_of(paths: list[str], epochs: int, **options: Any) -> Passes:
    """Return the records of each epoch in the order of the loader."""
    return [[row for step in steps for row in step] for steps in bare(paths, epochs, **options)]


def merged_epochs(run: Path | str, folder: Path) -> Answer:
    """Merge a run into a file in the folder; return the rows of two epochs. The merge refuses findings.

    Ranks that are not in step have no order in it: each epoch has a record once if the file has it twice.
    """
    sk.merge(run, folder / "merged.h5")
    with sk.hdf5.open(folder / "merged.h5") as file:
        x = sorted(file["x"][:].tolist())
        assert "loss" not in file or file["loss"][:].sum() == 2 * sum(x)
    receipts = sk.hdf5.receipts(folder / "merged.h5")
    assert [epoch.delivered for epoch in sk.plan.audit(receipts).epochs] == [RECORDS] * EPOCHS
    return [x[::2], x[1::2]], receipts


# -- drivers -------------------------------------------------------------------------------------------------


def by_length(batches: Any, stop: int | None) -> Iterator[Any]:
    """Yield batches until there are as many as the length."""
    return to_the_end(batches, stop or len(batches))


def to_the_end(batches: Iterable[Any], stop: int | None) -> Iterator[Any]:
    """Yield all batches, or `stop` of them, and end what reads for the iterator."""
    iterator = iter(batches)
    yield from islice(iterator, stop)
    getattr(iterator, "close", bool)()


def after_a_peek(batches: Any, stop: int | None) -> Iterator[Any]:
    """Inspect the first batch, and yield all of them."""
    list(to_the_end(batches, 1))
    yield from to_the_end(batches, stop)


def with_a_queue(batches: Any, stop: int | None) -> Iterator[Any]:
    """Yield batches two behind what was read, as after a transfer to a device."""
    queue: list[Any] = []
    for batch in to_the_end(batches, stop):
        queue.append(batch)
        if len(queue) > 2:
            yield queue.pop(0)
    yield from queue


def loop(
    make: Callable[[sk.Loader], Any],
    consume: Callable[[Any, int | None], Iterator[Any]] = to_the_end,
    rows: Callable[[Any], list[int]] = exactly_once.rows,
) -> Driver:
    """Return the driver of a loop over what `make` makes of a loader."""

    def train(loader: sk.Loader, epochs: int, stop: int | None = None) -> Passes:
        batches = make(loader)
        if loader.epochs is None:
            stop = loader.steps_per_epoch
        return [[row for batch in consume(batches, stop) for row in rows(batch)] for _ in range(epochs)]

    return train
