"""The running half of a loader: an engine that is kept supplied with the steps to come."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from shardkeep import _core
from shardkeep.errors import CorruptRecordError, PlanError
from shardkeep.loader.batches import Batch, blank_like, without_rows, wrapped
from shardkeep.loader.steps import Step
from shardkeep.plan import Damage, Segment
from shardkeep.tfrecord.features import Image, describe
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
        self._shapes: Batch | None = None
        self._all_valid = np.ones(loader.batch_size, bool)

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
        faults = engine.faults
        stretch, step = self._ahead.popleft()
        self._supply(engine)
        skipped = [row for row, repaired, *_ in faults if not repaired]
        batch = self._finished(wrapped(raw), step, skipped)
        damage = (
            ()
            if not faults
            else tuple(
                Damage(stretch.epoch, int(step.records[row]), start_bytes, stop_bytes, repaired)
                for row, repaired, start_bytes, stop_bytes, _ in faults
                if row < len(step.records)  # not of a record that only told the shapes
            )
        )
        loader.delivered(stretch, step.position, damage)
        return batch

    def _start(self) -> None:
        self._engine = self._new_engine(self._loader.threads)
        self._ahead.clear()
        self._steps = _remaining(self._loader, self._last_epoch)

    def _new_engine(self, threads: int) -> _core.Engine:
        loader = self._loader
        shards = loader.shards
        return _core.Engine(
            shards.paths,
            shards.starts,
            None if loader.features is None else describe(loader.features),
            threads=threads,
            on_corrupt=loader.on_corrupt,
            holes=shards.holes,
        )

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
            engine.submit(records.view(np.uint64), rows)
            self._ahead.append(following)

    def _finished(self, batch: Batch, step: Step, skipped: list[int]) -> Batch:
        loader = self._loader
        rows = len(step.records)
        masked = loader.remainder == "mask"
        if masked and not rows:
            batch, skipped = blank_like(self._shapes_of(batch, skipped, 1), loader.batch_size), []
        elif skipped:
            shapes = self._shapes_of(batch, skipped, rows)
            if shapes is not batch:
                batch = blank_like(shapes, loader.batch_size if masked else rows)
        if masked:
            valid = self._all_valid.copy()
            valid[rows:] = False
            if skipped:
                valid[skipped] = False
            batch["valid"] = valid
            rows = loader.batch_size
        if loader.with_ids:
            for name, numbers in loader.ids(step.records, rows).items():
                numbers[skipped] = -1
                batch[name] = numbers
        return without_rows(batch, skipped) if skipped and not masked else batch

    def _shapes_of(self, batch: Batch, skipped: list[int], rows: int) -> Batch:
        """Return the batch, or one with the shapes of an undamaged record if all its rows are damaged."""
        features = (self._loader.features or {}).values()
        is_open = any(isinstance(feature, Image) and feature.size is None for feature in features)
        if len(skipped) < rows or not is_open:
            return batch
        if self._shapes is None:
            engine = self._new_engine(1)
            for record in range(self._loader.shards.table.total):
                engine.submit(np.array([record], np.uint64), 1)
                raw = engine.take()
                assert raw is not None
                if not any(not repaired for _, repaired, *_ in engine.faults):
                    batch = wrapped(raw)
                    break
            self._shapes = batch
        return self._shapes


# Not a method: a generator that held the iterator would keep its threads alive after the last reference.
def _remaining(loader: Loader, last_epoch: int) -> Iterator[tuple[Segment, Step]]:
    """Yield (the stretch it belongs to, step) for all that is left of the run."""
    stretch = loader.place().stretch
    while stretch.epoch < last_epoch:
        for step in loader.steps(stretch):
            yield stretch, step
        stretch = Segment(stretch.epoch + 1, 0, 0)
