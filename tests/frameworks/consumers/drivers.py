"""Drivers: functions ``train(loader, epochs, stop=None)``.

A driver runs a framework over the loader for a number of epochs, or until `stop` batches of one were used,
and returns the records of each epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import shardkeep as sk
from tests.frameworks import exactly_once

Passes = list[list[int]]
Driver = Callable[..., Passes]


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
