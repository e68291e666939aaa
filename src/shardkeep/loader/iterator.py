"""Iterator over the batches of a loader, and the engine that reads them ahead."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from shardkeep import _core
from shardkeep.errors import CorruptRecordError, PlanError
from shardkeep.loader.batches import Batch, blank_like, with_ragged, without_rows
from shardkeep.loader.cursor import Cursor
from shardkeep.loader.sources import Source
from shardkeep.loader.steps import Step
from shardkeep.plan import Damage, Segment
from shardkeep.tfrecord.example.features import Feature, Image, describe
from shardkeep.tfrecord.format.file_kind import with_file_kind
from shardkeep.world import World, warn_of_siblings

__all__ = ["BatchIterator", "BatchOptions"]


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """Options of a `Loader` that decide how its batches are read and built."""

    features: dict[str, Feature] | None
    batch_size: int
    remainder: str
    with_ids: bool
    on_corrupt: Literal["raise", "skip", "repair"]
    threads: int
    prefetch: int
    world: World


class BatchIterator(Iterator[Batch]):
    """The batches of a loader from its position on; each batch that it returns moves the loader's cursor.

    An engine belongs to one process. In a forked child the iterator starts a new engine at the cursor, and
    reads again the batches that the parent had read ahead.

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
        steps_of_segment: Callable[[Segment], Iterator[Step]],
        last_epoch: int,
    ) -> None:
        self._options = options
        self._source = source
        self._cursor = cursor
        self._steps_of_segment = steps_of_segment
        self._last_epoch = last_epoch
        cursor.generation += 1
        self._generation = cursor.generation
        self._engine: _core.Engine | None = None
        self._ahead: deque[tuple[Segment, Step]] = deque()
        self._steps: Iterator[tuple[Segment, Step]] = iter(())
        self._shapes: Batch | None = None
        self._all_valid = np.ones(options.batch_size, bool)

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> Batch:
        if self._cursor.generation != self._generation:
            raise PlanError(
                "this iterator is over: its loader was iterated again, or moved by load_state_dict, reset"
                " or set_epoch; iterate the loader again"
            )
        try:
            return self._next()
        except BaseException as error:
            # A signal handler may have raised anywhere. The engine is discarded, and the next call starts at
            # the cursor, which changes in one assignment.
            self._engine = None
            if isinstance(error, CorruptRecordError):
                raise with_file_kind(error) from None
            raise

    def _next(self) -> Batch:
        if self._engine is None or self._engine.is_foreign:
            self._start()
        engine = self._engine
        assert engine is not None
        self._submit_steps(engine)
        if not self._ahead:
            self._cursor.finish_epochs(self._last_epoch)
            raise StopIteration
        raw = engine.take()
        assert raw is not None
        faults = engine.faults
        segment, step = self._ahead.popleft()
        self._submit_steps(engine)
        skipped = [row for row, repaired, *_ in faults if not repaired]
        batch = self._complete(with_ragged(raw), step, skipped)
        damage = (
            ()
            if not faults
            else tuple(
                Damage(segment.epoch, int(step.records[row]), start_bytes, stop_bytes, repaired)
                for row, repaired, start_bytes, stop_bytes, _ in faults
                if row < len(step.records)  # not of the sample record of an empty batch
            )
        )
        # Steps are submitted up to the end of the run, so without one ahead this was the last.
        next_epoch = self._ahead[0][0].epoch if self._ahead else self._last_epoch
        self._cursor.finish_step(segment, step.position, damage, next_epoch)
        return batch

    def _start(self) -> None:
        _refuse_torch_worker()
        warn_of_siblings(self._options.world)
        self._engine = self._new_engine(self._options.threads)
        self._ahead.clear()
        self._steps = _remaining_steps(self._cursor, self._steps_of_segment, self._last_epoch)

    def _new_engine(self, threads: int) -> _core.Engine:
        options = self._options
        shards = self._source.shards
        return _core.Engine(
            shards.paths,
            shards.starts,
            None if options.features is None else describe(options.features),
            threads=threads,
            on_corrupt=options.on_corrupt,
            holes=shards.holes,
        )

    def _submit_steps(self, engine: _core.Engine) -> None:
        options = self._options
        while len(self._ahead) < options.prefetch:
            following = next(self._steps, None)
            if following is None:
                return
            step = following[1]
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


def _refuse_torch_worker() -> None:
    """Raise in a worker of PyTorch's DataLoader: each would deliver all records, and lose its receipt."""
    torch: Any = sys.modules.get("torch.utils.data")
    worker = None if torch is None else torch.get_worker_info()
    if worker is not None:
        raise PlanError(
            f"this is worker {worker.id} of {worker.num_workers} of a torch DataLoader; each would deliver"
            " every record: pass num_workers=0 to the DataLoader, since a Loader has its own threads"
        )


# A function, because a generator that held the iterator would keep its threads alive after the last
# reference.
def _remaining_steps(
    cursor: Cursor, steps_of_segment: Callable[[Segment], Iterator[Step]], last_epoch: int
) -> Iterator[tuple[Segment, Step]]:
    """Yield segment and step for the rest of the run."""
    segment = cursor.current().segment
    while segment.epoch < last_epoch:
        for step in steps_of_segment(segment):
            yield segment, step
        segment = Segment(segment.epoch + 1, 0, 0)
