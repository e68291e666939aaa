"""Iterators over the batches of a loader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from shardkeep.errors import PlanError
from shardkeep.loader.batch_reader import BatchOptions, BatchReader, PlannedStep
from shardkeep.loader.batches import Batch
from shardkeep.loader.callers import refuse_division, refuse_lightning, refuse_torch_worker
from shardkeep.loader.cursor import Cursor, Progress
from shardkeep.loader.place import Place
from shardkeep.loader.sources import Source
from shardkeep.loader.steps import Step
from shardkeep.plan import Damage, Segment
from shardkeep.world import refuse_late_rank, warn_of_siblings

__all__ = ["BatchIterator", "ReadAhead"]

StepsOfSegment = Callable[[Segment], Iterator[Step]]


class BatchIterator(Iterator[Batch]):
    """The batches of a loader from its position on; each batch that it returns moves the loader's cursor.

    Parameters
    ----------
    options : BatchOptions
    source : Source
    cursor : Cursor
        The cursor of the loader.
    steps_of_segment : callable
        Function that yields the steps of a segment.
    last_epoch : int
        Epoch before which the iteration ends.
    """

    def __init__(
        self,
        options: BatchOptions,
        source: Source,
        cursor: Cursor,
        steps_of_segment: StepsOfSegment,
        last_epoch: int,
    ) -> None:
        self._world = options.world
        self._cursor = cursor
        self._last_epoch = last_epoch
        cursor.generation += 1
        self._generation = cursor.generation
        self._reader = BatchReader(
            options,
            source,
            lambda: _planned_steps(cursor.current(), steps_of_segment, last_epoch),
            lambda planned, damage: cursor.finish_step(
                planned.segment, planned.step.position, damage, planned.next_epoch
            ),
        )

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> Batch:
        if self._cursor.generation != self._generation:
            raise PlanError(
                "this iterator is over: its loader was iterated again, or moved by load_state_dict, reset,"
                " set_epoch or consume; iterate the loader again"
            )
        if not self._reader.is_running:
            refuse_torch_worker(0)
            refuse_division(self._world)
            refuse_lightning()
            refuse_late_rank(self._world)
            warn_of_siblings(self._world)
        taken = self._reader.take()
        if taken is None:
            self._cursor.finish_epochs(self._last_epoch)
            raise StopIteration
        return taken[0]


class ReadAhead(Iterator[tuple[Batch, Place]]):
    """Batches from a place of a run on, or every n-th of them, with the place of each; moves no loader.

    Parameters
    ----------
    options : BatchOptions
    source : Source
    progress : Progress
        Place of the first step.
    steps_of_segment : callable
        Function that yields the steps of a segment.
    last_epoch : int
        Epoch before which the iteration ends.
    first, workers : int
        The steps ``first``, ``first + workers``, … are read.
    by_number : bool
        True if the caller asks for single steps, so that no process reads those of another by mistake.
    """

    def __init__(
        self,
        options: BatchOptions,
        source: Source,
        progress: Progress,
        steps_of_segment: StepsOfSegment,
        last_epoch: int,
        first: int = 0,
        workers: int = 1,
        by_number: bool = False,
    ) -> None:
        self._world = options.world
        self._workers = workers
        self._by_number = by_number
        made = 0

        def remaining() -> Iterator[PlannedStep]:
            steps = _planned_steps(progress, steps_of_segment, last_epoch)
            return islice(steps, first + made * workers, None, workers)

        def deliver(planned: PlannedStep, damage: tuple[Damage, ...]) -> Place:
            nonlocal made
            segment, step = planned.segment, planned.step
            place = Place(segment.epoch, planned.start, step.position, planned.next_epoch, damage)
            made += 1
            return place

        self._reader = BatchReader(options, source, remaining, deliver)

    def __iter__(self) -> ReadAhead:
        return self

    def __next__(self) -> tuple[Batch, Place]:
        if not self._reader.is_running:
            if not self._by_number:
                refuse_torch_worker(self._workers)
                refuse_division(self._world)
            refuse_late_rank(self._world)
            if self._workers == 1:
                warn_of_siblings(self._world)
        taken = self._reader.take()
        if taken is None:
            raise StopIteration
        return taken


def _planned_steps(
    progress: Progress, steps_of_segment: StepsOfSegment, last_epoch: int
) -> Iterator[PlannedStep]:
    """Yield the steps from a place to the end of the run."""
    segment, start = progress.segment, progress.position
    before: PlannedStep | None = None
    while segment.epoch < last_epoch:
        for step in steps_of_segment(segment):
            if before is not None:
                yield before._replace(next_epoch=segment.epoch)
            before = PlannedStep(segment, step, start, last_epoch)
            start = step.position
        segment, start = Segment(segment.epoch + 1, 0, 0), 0
    if before is not None:
        yield before
