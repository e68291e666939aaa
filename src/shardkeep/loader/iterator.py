"""The running half of a loader: an engine that is kept supplied with the steps to come."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from shardkeep import _core
from shardkeep.errors import CorruptRecordError, PlanError
from shardkeep.loader.batches import Batch, blank_like, wrapped
from shardkeep.loader.steps import Step
from shardkeep.plan import Segment
from shardkeep.tfrecord.features import describe
from shardkeep.tfrecord.reader import explained

if TYPE_CHECKING:
    from shardkeep.loader.loader import Loader

__all__ = ["BatchIterator"]


class BatchIterator(Iterator[Batch]):
    """The batches of a loader from its place on; moves the loader's place as it hands them out.

    An engine lives in one process. When the iterator finds itself in a forked child it starts another one
    there, at the loader's place: what the parent had read ahead is read again.
    """

    def __init__(self, loader: Loader, turn: int, last_epoch: int) -> None:
        self._loader = loader
        self._turn = turn
        self._last_epoch = last_epoch
        self._engine: _core.Engine | None = None
        self._ahead: deque[tuple[Segment, Step]] = deque()
        self._steps: Iterator[tuple[Segment, Step]] = iter(())

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> Batch:
        loader = self._loader
        if loader.turn != self._turn:
            raise PlanError("this iterator is over: its loader was iterated or given a state since")
        try:
            return self._next()
        except BaseException as error:
            # A signal handler may have raised anywhere: what was read ahead is given up, and the next call
            # begins at the loader's place, which changes in one assignment.
            self._engine = None
            if isinstance(error, CorruptRecordError):
                raise explained(error) from None
            raise

    def _next(self) -> Batch:
        loader = self._loader
        if self._engine is None or self._engine.is_foreign:
            self._start()
        engine = self._engine
        assert engine is not None
        self._supply(engine)
        if not self._ahead:
            loader.finish_epochs(self._last_epoch)
            raise StopIteration
        raw = engine.take()
        assert raw is not None
        stretch, step = self._ahead.popleft()
        self._supply(engine)
        batch = self._finished(wrapped(raw), step)
        loader.delivered(stretch, step.position)
        return batch

    def _start(self) -> None:
        loader = self._loader
        shards = loader.shards
        self._engine = _core.Engine(
            shards.paths,
            shards.starts,
            None if loader.features is None else describe(loader.features),
            threads=loader.threads,
        )
        self._ahead.clear()
        self._steps = _remaining(loader, self._last_epoch)

    def _supply(self, engine: _core.Engine) -> None:
        loader = self._loader
        while len(self._ahead) < loader.prefetch:
            following = next(self._steps, None)
            if following is None:
                return
            step = following[1]
            records, rows = step.records, loader.batch_size
            if loader.remainder != "mask":
                rows = len(records)
            elif not len(records):
                # A batch of padding only: one record tells the shapes, and is not delivered.
                records, rows = np.array([step.some_record]), 1
            engine.submit(records.astype(np.uint64), rows)
            self._ahead.append(following)

    def _finished(self, batch: Batch, step: Step) -> Batch:
        loader = self._loader
        rows = len(step.records)
        if loader.remainder == "mask":
            if not rows:
                batch = blank_like(batch, loader.batch_size)
            rows = loader.batch_size
            batch["valid"] = np.arange(rows) < len(step.records)
        if loader.with_ids:
            batch.update(loader.ids(step.records, rows))
        return batch


# Not a method: a generator that held the iterator would keep its threads alive after the last reference.
def _remaining(loader: Loader, last_epoch: int) -> Iterator[tuple[Segment, Step]]:
    """Yield (the stretch it belongs to, step) for all that is left of the run."""
    stretch = loader.place().stretch
    while stretch.epoch < last_epoch:
        for step in loader.steps(stretch):
            yield stretch, step
        stretch = Segment(stretch.epoch + 1, 0, 0)
