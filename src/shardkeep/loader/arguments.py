"""Checks and defaults of a loader's arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from shardkeep.errors import PlanError, SchemaError
from shardkeep.plan.checks import checked_int
from shardkeep.plan.file_assignment import MAX_CYCLE_LENGTH
from shardkeep.tfrecord.example.features import Feature
from shardkeep.tfrecord.index.scan import processors
from shardkeep.world import World

__all__ = ["check_names", "check_sources", "checked_cycle_length", "default_threads"]

LoaderType = TypeVar("LoaderType")

_CYCLE_LENGTH = 16


def default_threads(world: World) -> int:
    """Return this rank's share of the processors that this process may use, at least 1."""
    return max(processors() // world.local_size, 1)


def checked_cycle_length(shard_by: object, shuffle: object, cycle_length: int | None) -> int | None:
    """Return how many shards a rank reads at a time, or None if ranks share the records of all shards."""
    if shard_by == "records":
        if cycle_length is not None:
            raise PlanError('cycle_length is valid only with shard_by="files"')
        return None
    if shard_by != "files":
        raise PlanError(f'shard_by must be "records" or "files", not {shard_by!r}')
    if shuffle == "global":
        raise PlanError(
            'shuffle="global" mixes the records of all shards and is not valid with shard_by="files"; pass'
            ' shard_by="records", or shuffle="blocks" to shuffle the shards'
        )
    return checked_int(
        "cycle_length", _CYCLE_LENGTH if cycle_length is None else cycle_length, 1, MAX_CYCLE_LENGTH
    )


def check_names(features: Mapping[str, Feature] | None, *, masked: bool, with_ids: bool) -> None:
    """Refuse features with the name of a column that the loader adds."""
    for name in (["valid"] if masked else []) + (["shard", "index"] if with_ids else []):
        if features is not None and name in features:
            advice = 'pass remainder="short" or "drop"' if name == "valid" else "leave out with_ids=True"
            raise SchemaError(f"feature {name!r} has the name of a column that the loader adds; {advice}")


def check_sources(
    sources: Sequence[tuple[LoaderType, float]], kind: type[LoaderType], shared: Sequence[str]
) -> tuple[list[LoaderType], list[float]]:
    """Return the loaders and weights of a mixture.

    Parameters
    ----------
    sources : sequence of (Loader, weight)
    kind : type
        The class of the loaders.
    shared : sequence of str
        Attributes that must be equal in all loaders.

    Raises
    ------
    PlanError, SchemaError
        The loaders cannot be mixed.
    """
    pairs = list(sources) if isinstance(sources, Iterable) else [sources]
    if not pairs:
        raise PlanError("a mixture needs at least one pair (loader, weight)")
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], kind):
            raise PlanError(f"each source must be a pair (loader, weight), not {pair!r:.80}")
    loaders: list[Any] = [loader for loader, _ in pairs]
    for i, loader in enumerate(loaders):
        if loader.mixture is not None:
            raise PlanError(f"source {i} is a mixture: pass its data sets, with the products of the weights")
        if loader.cycle_length is not None:
            raise PlanError(f'source {i} has shard_by="files"; a mixture needs shard_by="records"')
        if loader.with_ids and loader.features is not None and "source" in loader.features:
            raise SchemaError(
                "feature 'source' has the name of a column that the loader adds; leave out with_ids=True"
            )
        for name in shared:
            first, mine = getattr(loaders[0], name), getattr(loader, name)
            if mine != first:
                raise PlanError(
                    f"sources 0 and {i} have different {name} ({first!r:.60} and {mine!r:.60});"
                    " a batch has rows of all sources, so it must be the same"
                )
    return loaders, [weight for _, weight in pairs]
