"""Argument checks of plans, and the limits of their numbers.

The limits keep all sums and products of a plan inside int64 and the memory of an audit small, also when the
numbers come from a file of unknown origin.
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
# Entries of a receipt, where an entry for many epochs counts once for each epoch.
MAX_ENTRIES = 1_000_000
MAX_SEED = 2**64 - 1


def checked_int(name: str, value: SupportsIndex, low: int, high: int) -> int:
    """Return `value` as an int, or raise `PlanError` unless ``low <= value <= high``.

    Types with ``__index__``, such as NumPy integers, are accepted, except bool.

    Examples
    --------
    >>> checked_int("rank", 3, 0, 7)
    3
    """
    valid = f"from {low} to {high}" if high < MAX_RECORDS else f"of at least {low}"
    if isinstance(value, bool | np.bool_):
        raise PlanError(f"{name} must be an int {valid}, not the bool {value!r}")
    try:
        number = index(value)
    except TypeError:
        raise PlanError(f"{name} must be an int {valid}, not {value!r:.80}") from None
    if number < low:
        raise PlanError(f"{name} must be {valid.removeprefix('of ')}, not {number}")
    if number > high:
        raise PlanError(f"{name} must be from {low} to {high}, not {number}")
    return number


def checked_positions(name: str, values: ArrayLike, stop: int) -> NDArray[np.int64]:
    """Return `values` as an int64 array of the same shape, with every value in ``[0, stop)``.

    Raises
    ------
    PlanError
        The values are not integers, or a value is outside the range.

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
            f"{name} must be an array of integers, not of {array.dtype}; convert it with astype('int64')"
        )
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= stop:
        wrong = low if low < 0 else high
        raise PlanError(f"{name} has the value {wrong}, which is outside [0, {stop})")
    return array.astype(np.int64, copy=False)
