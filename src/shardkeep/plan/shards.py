"""Table that maps global record numbers to pairs (shard, record number in it) and back."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shardkeep._summary import summary
from shardkeep.errors import PlanError
from shardkeep.plan.checks import MAX_RECORDS, checked_positions

__all__ = ["ShardTable"]


@dataclass(frozen=True, slots=True, eq=False)
class ShardTable:
    """Number of records of each shard, and the global number of its first record.

    Parameters
    ----------
    counts : array of int, shape (shards,)
        Number of records of each shard, which may be 0. Copied to a read-only int64 array.

    Attributes
    ----------
    offsets : ndarray of int64, shape (shards + 1,)
        Global number of the first record of each shard, and the total.

    Raises
    ------
    PlanError
        The counts are not integers, not one-dimensional, negative, or more than 2**60 together.

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

    __repr__ = summary

    def __init__(self, counts: ArrayLike) -> None:
        checked = checked_positions("counts", counts, MAX_RECORDS + 1).copy()
        if checked.ndim != 1:
            raise PlanError(f"counts must have one dimension, not {checked.ndim}: one number for each shard")
        # In floating point first, because an int64 sum could overflow silently.
        if float(checked.sum(dtype=np.float64)) > MAX_RECORDS:
            raise PlanError(f"counts must not add up to more than {MAX_RECORDS} records")
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
        """Number of records of all shards together."""
        return int(self.offsets[-1])

    def locate(self, records: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the shard of each global record number, and the record number in that shard.

        Parameters
        ----------
        records : int or array of int
            Global record numbers.

        Returns
        -------
        shard, index : ndarray of int64
            Arrays in the shape of `records`.

        Raises
        ------
        PlanError
            A number is not an integer, or is outside ``[0, total)``.
        """
        checked = checked_positions("records", records, self.total)
        # side="right", because of the shards with the same offset all but the last are empty.
        shard = np.searchsorted(self.offsets, checked, side="right").astype(np.int64, copy=False) - 1
        return shard, checked - self.offsets[shard]

    def global_of(self, shard: ArrayLike, index: ArrayLike) -> NDArray[np.int64]:
        """Return the global record numbers of pairs (shard, record number in it).

        Parameters
        ----------
        shard, index : int or array of int
            Shards, and record numbers in them.

        Returns
        -------
        ndarray of int64
            Global record numbers in the common shape.

        Raises
        ------
        PlanError
            A shard does not exist, or does not have the record.
        """
        shards = checked_positions("shard", shard, len(self))
        indices = checked_positions("index", index, MAX_RECORDS)
        try:
            shards, indices = np.broadcast_arrays(shards, indices)
        except ValueError:
            raise PlanError(
                f"shard and index must have the same shape, not {shards.shape} and {indices.shape}"
            ) from None
        beyond = indices >= self.counts[shards]
        if beyond.any():
            which = np.flatnonzero(beyond.reshape(-1))[0]
            bad_shard, bad_index = int(shards.reshape(-1)[which]), int(indices.reshape(-1)[which])
            held = int(self.counts[bad_shard])
            raise PlanError(f"index of shard {bad_shard} must be below its {held} records, not {bad_index}")
        return self.offsets[shards] + indices
