"""What every function of the plan asks of its arguments.

The limits keep all sums and products of a plan inside int64 and the memory of an audit small, even
when the numbers come from a file that somebody else wrote.
"""

from __future__ import annotations

from operator import index
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shardkeep.errors import PlanError

__all__ = [
    "MAX_BATCH_SIZE",
    "MAX_ENTRIES",
    "MAX_EPOCH",
    "MAX_RECORDS",
    "MAX_SEED",
    "MAX_WORLD_SIZE",
    "checked_int",
    "checked_positions",
]

MAX_RECORDS = 2**60
MAX_WORLD_SIZE = 2**20
MAX_BATCH_SIZE = 2**31 - 1
MAX_EPOCH = 2**60
# Of a receipt, once what it says of many epochs in one entry is counted by epochs.
MAX_ENTRIES = 1_000_000
MAX_SEED = 2**64 - 1


def checked_int(name: str, value: SupportsIndex, low: int, high: int) -> int:
    """Return `value` as an int, or raise `PlanError` unless ``low <= value <= high``.

    Accepts what has ``__index__`` (NumPy integers too), except bool.

    Examples
    --------
    >>> checked_int("rank", 3, 0, 7)
    3
    """
    if isinstance(value, bool | np.bool_):
        raise PlanError(f"{name}={value!r} is a bool: give a whole number from {low} to {high}")
    try:
        number = index(value)
    except TypeError:
        raise PlanError(f"{name}={value!r} is no whole number: give one from {low} to {high}") from None
    if not low <= number <= high:
        raise PlanError(f"{name}={number} is out of range: give a whole number from {low} to {high}")
    return number


def checked_positions(name: str, values: ArrayLike, stop: int) -> NDArray[np.int64]:
    """Return `values` as an int64 array of the same shape, every one in ``[0, stop)``.

    Raises
    ------
    PlanError
        When the values are no integers or one of them lies outside.

    Examples
    --------
    >>> checked_positions("positions", [0, 4], 5)
    array([0, 4])
    """
    array: NDArray[Any] = np.asarray(values)
    if array.size == 0:
        return np.zeros(array.shape, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise PlanError(
            f"{name} must be an array of integers, not of {array.dtype}: convert it with astype('int64')"
        )
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= stop:
        wrong = low if low < 0 else high
        raise PlanError(
            f"{name} holds {wrong}, which is outside [0, {stop}): give numbers from that range only"
        )
    return array.astype(np.int64, copy=False)
