"""Assignment of records to shards, computed from the sizes of their frames."""

from __future__ import annotations

import heapq
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from shardkeep.errors import PlanError
from shardkeep.files.threads.groups import size_runs
from shardkeep.files.user_warning import warn_user
from shardkeep.tfrecord.shard_names import checked_sizes

__all__ = ["BATCH_BYTES", "Mode", "Places", "Sizes", "assign", "warn_of_odd_shards"]

Mode = Literal["contiguous", "round-robin", "balanced"]
Sizes = npt.NDArray[np.int64]
Places = npt.NDArray[np.int32]

BATCH_BYTES = 16 << 20
"""Size of the records that one thread has in memory together."""


def assign(
    sizes: Sizes,
    *,
    shards: int | None = None,
    shard_bytes: int | None = None,
    shard_records: int | None = None,
    mode: Mode = "contiguous",
) -> tuple[Places, int]:
    """Return the shard of each record.

    Parameters
    ----------
    sizes : ndarray of int64, shape (records,)
        Size of each frame in bytes: the record and 16 bytes more.
    shards, shard_bytes, shard_records : int, optional
        Exactly one of the three; see `shardkeep.jobs.split.split`.
    mode : {"contiguous", "round-robin", "balanced"}
        See `shardkeep.jobs.split.split`.

    Returns
    -------
    ndarray of int32, shape (records,)
        The shard of each record. Records of one shard keep their order.
    int
        The number of shards; the last ones may have no records.

    Raises
    ------
    PlanError
        Not exactly one of the three is set, it is not positive, or the mode does not support it.

    Examples
    --------
    >>> sizes = np.array([30, 10, 10, 10, 40], "int64")
    >>> assign(sizes, shards=2)
    (array([0, 0, 1, 1, 1], dtype=int32), 2)
    >>> assign(sizes, shards=2, mode="balanced")
    (array([1, 1, 0, 1, 0], dtype=int32), 2)
    >>> assign(sizes, shard_bytes=50)
    (array([0, 0, 0, 1, 1], dtype=int32), 2)
    """
    if mode not in get_args(Mode):
        raise PlanError(f'mode={mode!r} is not known: use "contiguous", "round-robin" or "balanced"')
    given = {"shards": shards, "shard_bytes": shard_bytes, "shard_records": shard_records}
    chosen = checked_sizes(given)
    if len(chosen) != 1:
        raise PlanError(f"pass exactly one of shards=, shard_bytes= and shard_records=, not {len(chosen)}")
    ((name, value),) = chosen.items()
    if (mode, name) in (("round-robin", "shard_bytes"), ("balanced", "shard_records")):
        fit = '"contiguous" or "balanced"' if name == "shard_bytes" else '"contiguous" or "round-robin"'
        raise PlanError(f"{name}= is not supported by mode={mode!r}; use mode {fit}, or pass shards=")
    records = len(sizes)
    if mode == "contiguous" and shard_bytes is not None:
        return _filled(sizes, shard_bytes)
    if mode == "balanced" and shard_bytes is not None:
        return _balanced_below(sizes, shard_bytes)
    if shards is None:
        shards = max(1, -(-records // value))
    if mode == "round-robin":
        return (np.arange(records) % shards).astype(np.int32), shards
    if mode == "balanced":
        return _balanced(sizes, shards), shards
    if shard_records is not None:
        return (np.arange(records) // shard_records).astype(np.int32), shards
    ends = records * np.arange(1, shards + 1) // shards
    return np.repeat(np.arange(shards, dtype=np.int32), np.diff(ends, prepend=0)), shards


def warn_of_odd_shards(
    pattern: str, *, records: int, shards: int, shard_bytes: int | None, largest_bytes: int
) -> None:
    """Issue a `RuntimeWarning` if shards are empty, or if a record is larger than a shard should be.

    Parameters
    ----------
    pattern : str
        Pattern of the names of the shards.
    records, shards : int
        Number of records and of shards.
    shard_bytes : int or None
        Largest size of a shard, if there is one.
    largest_bytes : int
        Size of the largest record with its frame.
    """
    if shards > max(records, 1):
        warn_user(
            f"{pattern}: {shards - records:,} of {shards:,} shards have no record, since there are only"
            f" {records:,} records; choose fewer shards"
        )
    if shard_bytes is not None and largest_bytes > shard_bytes:
        warn_user(
            f"{pattern}: the largest record has {largest_bytes:,} bytes, more than the {shard_bytes:,} of a"
            " shard; such a record has a shard for itself; choose larger shards"
        )


def _filled(sizes: Sizes, shard_bytes: int) -> tuple[Places, int]:
    """Fill one shard after the other; a record longer than `shard_bytes` has a shard for itself."""
    counts = [last - first for first, last in size_runs(sizes, shard_bytes)] or [0]
    return np.repeat(np.arange(len(counts), dtype=np.int32), counts), len(counts)


def _balanced(sizes: Sizes, shards: int) -> Places:
    """Assign the largest records first, each to the smallest shard so far.

    No two shards then differ by more than the largest record (Graham, "Bounds on multiprocessing timing
    anomalies", 1969). Among equals the earlier record and the lower shard come first.
    """
    places = np.zeros(len(sizes), np.int32)
    loads = [(0, shard) for shard in range(shards)]
    order = np.argsort(-sizes, kind="stable")
    for record, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
        load, shard = loads[0]
        places[record] = shard
        heapq.heapreplace(loads, (load + size, shard))
    return places


def _balanced_below(sizes: Sizes, shard_bytes: int) -> tuple[Places, int]:
    # With one shard for each record the limit always holds.
    most = max(1, len(sizes))
    shards = min(max(1, -(-int(sizes.sum()) // shard_bytes)), most)
    while True:
        places = _balanced(sizes, shards)
        loads = np.zeros(shards, np.int64)
        np.add.at(loads, places, sizes)
        too_long = loads > shard_bytes
        # A record longer than the limit is alone in its shard; more shards do not help.
        if not too_long.any() or (np.bincount(places, minlength=shards)[too_long] == 1).all():
            return places, shards
        shards = min(shards + max(1, int((loads[too_long] - shard_bytes).sum()) // shard_bytes), most)
