"""From a global record number to (shard, record number inside it) and back."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shardkeep.errors import PlanError
from shardkeep.plan.checks import MAX_RECORDS, checked_positions

__all__ = ["ShardTable"]


@dataclass(frozen=True, slots=True, eq=False)
class ShardTable:
    """How many records each shard has, and where they begin when the shards are laid end to end.

    Parameters
    ----------
    counts : array of int, shape (shards,)
        Records of each shard; 0 is allowed, anywhere. Copied to a read-only int64 array.

    Attributes
    ----------
    offsets : ndarray of int64, shape (shards + 1,)
        The global number of each shard's first record, and the total.

    Raises
    ------
    PlanError
        When the counts are no integers, negative, not one-dimensional, or more than 2**60 together.

    Examples
    --------
    >>> table = ShardTable([3, 0, 2])
    >>> table.total
    5
    >>> shard, index = table.locate([2, 3])
    >>> shard.tolist(), index.tolist()
    ([0, 2], [2, 0])
    >>> table.global_of(shard, index).tolist()
    [2, 3]
    """

    counts: NDArray[np.int64]
    offsets: NDArray[np.int64] = field(init=False, repr=False)

    def __init__(self, counts: ArrayLike) -> None:
        checked = checked_positions("counts", counts, MAX_RECORDS + 1).copy()
        if checked.ndim != 1:
            raise PlanError(f"counts has {checked.ndim} dimensions: give one number for each shard")
        # In floating point first: an int64 sum could wrap around unseen.
        if float(checked.sum(dtype=np.float64)) > MAX_RECORDS:
            raise PlanError(f"counts add up to more than {MAX_RECORDS} records: check them")
        offsets = np.zeros(checked.size + 1, dtype=np.int64)
        np.cumsum(checked, out=offsets[1:])
        checked.flags.writeable = offsets.flags.writeable = False
        object.__setattr__(self, "counts", checked)
        object.__setattr__(self, "offsets", offsets)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShardTable):
            return NotImplemented
        return np.array_equal(self.counts, other.counts)

    def __hash__(self) -> int:
        return hash(self.counts.tobytes())

    def __len__(self) -> int:
        return self.counts.size

    @property
    def total(self) -> int:
        """Records of all shards together."""
        return int(self.offsets[-1])

    def locate(self, records: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the shard of each global record number, and the record number inside that shard.

        Returns
        -------
        shard, index : ndarray of int64
            The shape of `records`.

        Raises
        ------
        PlanError
            When a number is no integer or outside ``[0, total)``.
        """
        given = checked_positions("records", records, self.total)
        # From the right: of the shards that begin at one place, all but the last are empty.
        shard = np.searchsorted(self.offsets, given, side="right").astype(np.int64, copy=False) - 1
        return shard, given - self.offsets[shard]

    def global_of(self, shard: ArrayLike, index: ArrayLike) -> NDArray[np.int64]:
        """Return the global record numbers of pairs (shard, record number inside it).

        Raises
        ------
        PlanError
            When there is no such shard, or no such record in it.
        """
        shards = checked_positions("shard", shard, len(self))
        indices = checked_positions("index", index, MAX_RECORDS)
        try:
            shards, indices = np.broadcast_arrays(shards, indices)
        except ValueError:
            raise PlanError(
                f"shard and index have shapes {shards.shape} and {indices.shape}: give them the same shape"
            ) from None
        beyond = indices >= self.counts[shards]
        if beyond.any():
            which = np.flatnonzero(beyond.reshape(-1))[0]
            bad_shard, bad_index = int(shards.reshape(-1)[which]), int(indices.reshape(-1)[which])
            held = int(self.counts[bad_shard])
            raise PlanError(
                f"shard {bad_shard} has {held} records and none numbered {bad_index}: count from 0"
            )
        return self.offsets[shards] + indices
