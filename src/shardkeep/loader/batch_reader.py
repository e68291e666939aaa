"""Reading of batches ahead with the Rust engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from shardkeep import _core
from shardkeep.errors import CorruptRecordError
from shardkeep.loader.batches import Batch, blank_like, with_ragged, without_rows
from shardkeep.loader.remote.ahead import FetchedAhead
from shardkeep.loader.sources import Source
from shardkeep.loader.steps import Step
from shardkeep.plan import Damage, Segment
from shardkeep.tfrecord.damage import OnCorrupt
from shardkeep.tfrecord.example.features import Feature, Image, describe
from shardkeep.tfrecord.format.file_kind import with_file_kind
from shardkeep.world import World

__all__ = ["BatchOptions", "BatchReader", "PlannedStep"]


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """Options of a `Loader` that decide how its batches are read and built."""

    features: dict[str, Feature] | None
    batch_size: int
    remainder: str
    with_ids: bool
    on_corrupt: OnCorrupt
    threads: int
    prefetch: int
    world: World


_Delivery = TypeVar("_Delivery")


class PlannedStep(NamedTuple):
    """A step, and its surroundings in the run.

    Attributes
    ----------
    segment : Segment
        The segment as it was before the iteration.
    step : Step
    start : int
        Position of the epoch before the step.
    next_epoch : int
        Epoch of the next step of the run; after the last step, the epoch before which the run ends.
    """

    segment: Segment
    step: Step
    start: int
    next_epoch: int


class BatchReader(Generic[_Delivery]):
    """Batches of planned steps, read ahead by an engine.

    An engine belongs to one process. After an error, and in a forked child, the reader starts a new engine
    and reads again the batches that it had read ahead. A signal handler may raise anywhere, so a step counts
    as delivered from the one assignment in `deliver` on.

    Parameters
    ----------
    options : BatchOptions
    source : Source
    remaining : callable
        Function that yields the steps which were not delivered yet.
    deliver : callable
        Function that records the delivery of a step with its damaged records; `take` returns its result. Like
        `remaining` it must not refer to the iterator that owns this reader: the threads of the engine would
        outlive its last reference.
    """

    def __init__(
        self,
        options: BatchOptions,
        source: Source,
        remaining: Callable[[], Iterator[PlannedStep]],
        deliver: Callable[[PlannedStep, tuple[Damage, ...]], _Delivery],
    ) -> None:
        self._options = options
        self._source = source
        self._remaining = remaining
        self._deliver = deliver
        self._engine: _core.Engine | None = None
        self._ahead: deque[PlannedStep] = deque()
        self._steps: Iterator[PlannedStep] = iter(())
        self._shapes: Batch | None = None
        self._all_valid = np.ones(options.batch_size, bool)

    @property
    def is_running(self) -> bool:
        """True if the next batch is read ahead in this process."""
        return self._engine is not None and not self._engine.is_foreign

    def take(self) -> tuple[Batch, _Delivery] | None:
        """Return the next batch, and the result of `deliver`; None after the last step."""
        taken = None
        try:
            taken = self._take()
        except CorruptRecordError as error:
            raise with_file_kind(error) from None
        finally:
            if taken is None:
                self._engine, self._steps = None, iter(())  # these refer to the engine, too
        return taken

    def _take(self) -> tuple[Batch, _Delivery] | None:
        if not self.is_running:
            self._engine = self._new_engine(self._options.threads)
            self._ahead.clear()
            self._steps = self._here(self._remaining(), self._engine)
        engine = self._engine
        assert engine is not None
        self._submit_steps(engine, wait=True)
        if not self._ahead:
            return None
        raw = engine.take()
        assert raw is not None
        faults = engine.faults
        planned = self._ahead.popleft()
        step = planned.step
        self._submit_steps(engine, wait=False)
        skipped = [row for row, repaired, *_ in faults if not repaired]
        batch = self._complete(with_ragged(raw), step, skipped)
        damage = (
            ()
            if not faults
            else tuple(
                Damage(planned.segment.epoch, int(step.records[row]), start_bytes, stop_bytes, repaired)
                for row, repaired, start_bytes, stop_bytes, _ in faults
                if row < len(step.records)  # not of the sample record of an empty batch
            )
        )
        return batch, self._deliver(planned, damage)

    def _here(self, steps: Iterator[PlannedStep], engine: _core.Engine) -> Iterator[PlannedStep]:
        shards = self._source.shards
        if shards.remote is None or shards.remote.link_cached():
            return steps
        ranks = self._options.world.local_size
        return FetchedAhead(shards.remote, shards.table, steps, ranks, engine.release)

    def _new_engine(self, threads: int) -> _core.Engine:
        options = self._options
        shards = self._source.shards
        return _core.Engine(
            shards.local_paths,
            shards.positions,
            None if options.features is None else describe(options.features),
            threads=threads,
            on_corrupt=options.on_corrupt,
            holes=shards.holes,
        )

    def _submit_steps(self, engine: _core.Engine, *, wait: bool) -> None:
        options, steps = self._options, self._steps
        if isinstance(steps, FetchedAhead):
            steps.keep_last(len(self._ahead))
        while len(self._ahead) < options.prefetch:
            # A batch that can be read is not delayed by the shards of those after it.
            if isinstance(steps, FetchedAhead) and not (wait and not self._ahead) and not steps.is_ready:
                return
            following = next(self._steps, None)
            if following is None:
                return
            step = following.step
            records, rows = step.records, options.batch_size
            if options.remainder != "mask":
                rows = len(records)
            elif not len(records):
                # A batch of padding only: the sample record has its shapes, and is not delivered.
                records, rows = np.array([step.sample_record]), 1
            engine.submit(records.view(np.uint64), rows)
            self._ahead.append(following)

    def _complete(self, batch: Batch, step: Step, skipped: list[int]) -> Batch:
        """Add padding, ``valid`` and ids to a batch, and remove or blank its skipped rows."""
        options = self._options
        rows = len(step.records)
        masked = options.remainder == "mask"
        if masked and not rows:
            batch, skipped = blank_like(self._shapes_of(batch, skipped, 1), options.batch_size), []
        elif skipped:
            shapes = self._shapes_of(batch, skipped, rows)
            if shapes is not batch:
                batch = blank_like(shapes, options.batch_size if masked else rows)
        if masked:
            valid = self._all_valid.copy()
            valid[rows:] = False
            if skipped:
                valid[skipped] = False
            batch["valid"] = valid
            rows = options.batch_size
        if options.with_ids:
            for name, numbers in self._source.row_ids(step.records, rows).items():
                numbers[skipped] = -1
                batch[name] = numbers
        return without_rows(batch, skipped) if skipped and not masked else batch

    def _shapes_of(self, batch: Batch, skipped: list[int], rows: int) -> Batch:
        """Return the batch, or one of an undamaged record if all rows are damaged and shapes vary."""
        features = (self._options.features or {}).values()
        shapes_vary = any(isinstance(feature, Image) and feature.size is None for feature in features)
        if len(skipped) < rows or not shapes_vary:
            return batch
        if self._shapes is None:
            engine = self._new_engine(1)
            for record in range(self._source.shards.table.total):
                engine.submit(np.array([record], np.uint64), 1)
                raw = engine.take()
                assert raw is not None
                if not any(not repaired for _, repaired, *_ in engine.faults):
                    batch = with_ragged(raw)
                    break
            self._shapes = batch
        return self._shapes
