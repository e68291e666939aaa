"""Names of the shards of a set, from a pattern."""

from __future__ import annotations

import os
import string

from shardkeep.errors import PlanError

__all__ = ["early_name", "lock_name", "shard_names"]


def shard_names(pattern: str, shards: int) -> list[str]:
    """Return the name of each shard.

    Raises
    ------
    PlanError
        `pattern` is not a valid pattern, or gives two shards the same name; or `shards` is not positive.

    Examples
    --------
    >>> shard_names("train-{shard:05d}-of-{shards:05d}.tfrecord", 2)
    ['train-00000-of-00002.tfrecord', 'train-00001-of-00002.tfrecord']
    """
    if shards < 1:
        raise PlanError(f"shards={shards} is not valid: pass at least 1")
    names = [_formatted(pattern, shard, shards) for shard in range(shards)]
    if len(set(names)) < shards:
        raise PlanError(f"{pattern!r} gives {shards} shards the same name; put {{shard:05d}} in it")
    return names


def early_name(pattern: str, shard: int) -> str:
    """Return a temporary name of a shard, in its folder, for an unknown number of shards.

    Raises
    ------
    PlanError
        As `shard_names`; or the folder depends on the number of shards.
    """
    if not shard:
        shard_names(pattern, 2)
    name = _formatted(pattern, shard, 1)
    if os.path.dirname(name) != os.path.dirname(_formatted(pattern, shard, 2)):
        raise PlanError(
            f"{pattern!r}: the folder cannot depend on {{shards}}, which is known only at the end"
        )
    return name


def lock_name(pattern: str, shards: int | None = None) -> str:
    """Return the name that writers of this set lock: the pattern without its number formats.

    Two runs with different number formats therefore exclude each other. The name is in the folder of the
    first shard.

    Examples
    --------
    >>> lock_name("train-{shard:05d}-of-{shards:05d}") == lock_name("train-{shard:05}-of-{shards}")
    True
    """
    folder, name = os.path.split(pattern)
    parts = string.Formatter().parse(name)
    plain = "".join(text + ("" if field is None else f"{{{field}}}") for text, field, _, _ in parts)
    return os.path.join(_formatted(folder, 0, shards or 1), plain)


def _formatted(pattern: str, shard: int, shards: int) -> str:
    try:
        return pattern.format(shard=shard, shards=shards)
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise PlanError(
            f"{pattern!r} is not a valid pattern of shard names ({error}); use {{shard:05d}}"
        ) from None
