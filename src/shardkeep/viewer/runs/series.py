"""A curve of any number of values in bounded memory."""

from __future__ import annotations

import math
from array import array

__all__ = ["MOST_PARTS", "Series"]

MOST_PARTS = 1024
"""Number of parts of a series that is among few."""


class Series:
    """The values of one tag in one event file.

    They are divided into at most 1,024 parts of the same number of values, which grow with it. A part takes
    32 bytes: its smallest and its largest value, each with its step.

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
        self._most_parts = MOST_PARTS
        self._width = 1
        self._parts = _Parts()

    def add(self, step: int, value: float) -> None:
        """Add the next value."""
        if self.count % self._width == 0 and len(self._parts) >= self._most_parts:
            self._halve()
        if self.count % self._width == 0:
            self._parts.append(step, value, step, value)
        else:
            self._parts.widen(step, value, step, value)
        self.count += 1
        self.first_step = step if self.first_step is None else min(self.first_step, step)
        self.last_step, self.last = step, value
        self.low, self.high = _least(self.low, value), -_least(-self.high, -value)

    def limit(self, most_parts: int) -> None:
        """Keep at most so many parts from now on."""
        self._most_parts = most_parts
        while len(self._parts) > most_parts:
            self._halve()

    def _halve(self) -> None:
        halved = _Parts()
        for number, part in enumerate(self._parts.all()):
            (halved.widen if number % 2 else halved.append)(*part)
        self._parts, self._width = halved, 2 * self._width

    def points(self) -> list[tuple[int, float]]:
        """Return steps and values, at most two of each part, in the order of the steps."""
        found = []
        for low_step, low, high_step, high in self._parts.all():  # another thread may be adding
            found.append((low_step, low))
            if high_step != low_step:
                found.append((high_step, high))
        return sorted(found, key=lambda one: one[0])


class _Parts:
    """Smallest and largest value of each part, with their steps."""

    def __init__(self) -> None:
        self._low_steps, self._lows = array("q"), array("d")
        self._high_steps, self._highs = array("q"), array("d")

    def __len__(self) -> int:
        return len(self._highs)

    def all(self) -> list[tuple[int, float, int, float]]:
        """Return all parts; without the last one while another thread appends it."""
        return list(zip(self._low_steps, self._lows, self._high_steps, self._highs, strict=False))

    def append(self, low_step: int, low: float, high_step: int, high: float) -> None:
        self._low_steps.append(low_step)
        self._lows.append(low)
        self._high_steps.append(high_step)
        self._highs.append(high)

    def widen(self, low_step: int, low: float, high_step: int, high: float) -> None:
        """Add values to the last part; one that is not a number is replaced by any other."""
        if math.isnan(self._lows[-1]) or low < self._lows[-1]:
            self._low_steps[-1], self._lows[-1] = low_step, low
        if math.isnan(self._highs[-1]) or high > self._highs[-1]:
            self._high_steps[-1], self._highs[-1] = high_step, high


def _least(one: float, other: float) -> float:
    return other if math.isnan(one) or other < one else one
