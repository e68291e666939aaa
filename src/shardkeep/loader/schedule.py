"""Steps of one rank in each epoch of its source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shardkeep.loader.cursor import Cursor
from shardkeep.loader.sources import ShardSource, Source
from shardkeep.loader.steps import Step, steps_of
from shardkeep.plan import EpochPlan, Segment
from shardkeep.plan.epoch import StepPlan
from shardkeep.plan.file_assignment import HistoryEntry
from shardkeep.plan.file_plan import FilePlan
from shardkeep.world import World

__all__ = ["Schedule"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Steps of one rank in each epoch of its source; the parameters are those of a `Loader`."""

    source: Source
    world: World
    batch_size: int
    remainder: Any
    cycle_length: int | None

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps of a whole epoch, equal in all epochs and on every rank."""
        return self.plan(Segment(0, 0, 0)).steps

    def plan(self, segment: Segment) -> StepPlan:
        """Return the plan of an epoch from the beginning of a segment."""
        if self.cycle_length is None:
            return EpochPlan(
                self.source.positions, segment.start, self.world.size, self.batch_size, self.remainder
            )
        assert isinstance(self.source, ShardSource)
        return FilePlan(
            self.source.files,
            self.world.size,
            self.batch_size,
            self.cycle_length,
            self.remainder,
            epoch=segment.epoch,
            history=segment.history,
        )

    def position(self, segment: Segment) -> int:
        """Return the position of the epoch after the steps of a segment."""
        plan, made = self.plan(segment), segment.steps
        return plan.positions_after(made - 1, made)[0] if made else plan.start

    def steps(self, segment: Segment) -> Iterator[Step]:
        """Yield the steps of this rank that a segment has not made yet."""
        order = self.source.order(segment.epoch) if self.cycle_length is None else None
        return steps_of(self.plan(segment), order, self.world.rank, made=segment.steps)

    def basis(self) -> dict[str, Any]:
        """Return the values that a state and its loader must share."""
        shards = self.source.shards
        return {
            "dataset": shards.identity.fingerprint,
            "members": shards.members,
            "shards": len(shards.table),
            "records": self.source.positions,
            "shard_by": "records" if self.cycle_length is None else "files",
            **self.source.order_settings(),
        }

    def new_cursor(self) -> Cursor:
        """Return a cursor at the beginning of epoch 0."""
        if self.cycle_length is None:
            return Cursor(None)
        return Cursor(HistoryEntry(self.world.size, self.batch_size, self.cycle_length, 0))
