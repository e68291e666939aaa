"""A curve of any number of values in bounded memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Series"]

_MOST_PARTS = 1024


@dataclass(slots=True)
class _Part:
    """Some values that follow each other: the smallest and the largest, each with its step."""

    low_step: int
    low: float
    high_step: int
    high: float

    def add(self, other: _Part) -> None:
        # A value that is not a number is replaced by any other.
        if math.isnan(self.low) or other.low < self.low:
            self.low_step, self.low = other.low_step, other.low
        if math.isnan(self.high) or other.high > self.high:
            self.high_step, self.high = other.high_step, other.high


class Series:
    """The values of one tag in one event file.

    They are divided into at most 1,024 parts of the same number of values, which grow with it.

    Attributes
    ----------
    count : int
        Number of values.
    first_step : int or None
    last_step : int
    last : float
    low, high : float
        Smallest and largest value; NaN without a number.
    """

    def __init__(self) -> None:
        self.count = 0
        self.first_step: int | None = None
        self.last_step, self.last = 0, math.nan
        self.low = self.high = math.nan
        self._width = 1
        self._parts: list[_Part] = []

    def add(self, step: int, value: float) -> None:
        """Add the next value."""
        part = _Part(step, value, step, value)
        if self.count % self._width == 0:
            if len(self._parts) == _MOST_PARTS:
                for left, right in zip(self._parts[::2], self._parts[1::2], strict=True):
                    left.add(right)
                del self._parts[1::2]
                self._width *= 2
            self._parts.append(part)
        else:
            self._parts[-1].add(part)
        self.count += 1
        self.first_step = step if self.first_step is None else min(self.first_step, step)
        self.last_step, self.last = step, value
        self.low, self.high = _least(self.low, value), -_least(-self.high, -value)

    def points(self) -> list[tuple[int, float]]:
        """Return steps and values, at most two of each part, in the order of the steps."""
        found = []
        for part in list(self._parts):  # another thread may be adding
            found.append((part.low_step, part.low))
            if part.high_step != part.low_step:
                found.append((part.high_step, part.high))
        return sorted(found, key=lambda one: one[0])


def _least(one: float, other: float) -> float:
    return other if math.isnan(one) or other < one else one
