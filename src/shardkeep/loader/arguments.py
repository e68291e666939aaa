"""What a Loader makes of arguments that are left out or hang together."""

from __future__ import annotations

import os

from shardkeep.errors import PlanError
from shardkeep.plan.checks import checked_int
from shardkeep.plan.division import MAX_CYCLE_LENGTH
from shardkeep.world import World

__all__ = ["checked_cycle_length", "default_threads"]

_CYCLE_LENGTH = 16


def default_threads(world: World) -> int:
    """Return this rank's share of the processors that this process may run on, 1 at least."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(processors // max(world.local_size, 1), 1)


def checked_cycle_length(shard_by: object, shuffle: object, given: int | None) -> int | None:
    """Return how many shards a rank reads at a time; None where ranks share the records of all shards."""
    if shard_by == "records":
        if given is not None:
            raise PlanError('cycle_length is for shard_by="files" only: leave it out, or give that too')
        return None
    if shard_by != "files":
        raise PlanError(f'shard_by={shard_by!r} is unknown: give "records" or "files"')
    if shuffle == "global":
        raise PlanError(
            'shuffle="global" mixes the records of all shards, so no rank can read whole ones: give'
            ' shard_by="records", or shuffle="blocks" to shuffle the shards'
        )
    return checked_int("cycle_length", _CYCLE_LENGTH if given is None else given, 1, MAX_CYCLE_LENGTH)
