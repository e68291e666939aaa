"""Trainings for any framework; each returns the records of each epoch, and the receipts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.consumers.drivers import Driver, Passes
from tests.frameworks.exactly_once import bare, make_loader, write_shards

Answer = tuple[Passes, list[dict[str, Any]]]


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
