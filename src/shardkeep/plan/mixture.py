"""Several data sets mixed by weight: which record of which of them comes at each position.

A pattern of whole numbers of places for each data set, as evenly spread as it can be, is repeated. So how
many records of each data set come before any position is arithmetic, and the mixture is one more order
of an epoch: positions are shared out among ranks, kept in states and proved by an audit as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import gcd, isfinite, lcm
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shardkeep.errors import PlanError
from shardkeep.plan.checks import MAX_EPOCH, MAX_RECORDS, checked_int, checked_positions
from shardkeep.plan.order import Shuffle, epoch_order

__all__ = ["MAX_PERIOD", "MixedOrder", "Mixture", "Part", "Stop", "whole_weights"]

MAX_PERIOD = 65_536

Stop = Literal["all", "first", "repeat"]
I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Part:
    """One data set of a mixture: its records and places in the pattern, and what decides its own order."""

    records: int
    weight: int
    shuffle: Shuffle
    seed: int


def whole_weights(weights: Sequence[float]) -> list[int]:
    """Return weights as places in a pattern.

    Weights that are ratios of whole numbers up to `MAX_PERIOD` together are kept exactly (0.7 and 0.3 are
    7 and 3); others to one part in `MAX_PERIOD`.

    Raises
    ------
    PlanError
        For a weight that is not positive, or too small beside the others.

    Examples
    --------
    >>> whole_weights([0.7, 0.3]), whole_weights([3, 1])
    ([7, 3], [3, 1])
    """
    exact = []
    for weight in weights:
        if not isinstance(weight, (int, float, np.integer, np.floating)) or isinstance(weight, bool):
            raise PlanError(f"weight {weight!r} is no number: give a positive one")
        if not isfinite(weight) or weight <= 0:
            raise PlanError(
                f"weight {weight} is not positive: leave the data set out, or give a weight above 0"
            )
        exact.append(Fraction(repr(float(weight))))
    common = lcm(*(one.denominator for one in exact))
    places = [int(one * common) for one in exact]
    shared = gcd(*places)
    places = [one // shared for one in places]
    if sum(places) <= MAX_PERIOD:
        return places
    total = sum(exact)
    quotas = [one * MAX_PERIOD / total for one in exact]
    places = [int(quota) for quota in quotas]
    by_remainder = sorted(range(len(quotas)), key=lambda i: (places[i] - quotas[i], i))
    for i in by_remainder[: MAX_PERIOD - sum(places)]:
        places[i] += 1
    if 0 in places:
        small = weights[places.index(0)]
        raise PlanError(
            f"weight {small} is less than 1/{MAX_PERIOD} of all: leave the data set out, or raise it"
        )
    return places


@dataclass(frozen=True, slots=True, eq=False)
class _Stretch:
    """Positions from `start` on with one pattern; `before` is how many records of each came earlier."""

    start: int
    before: I64
    weights: I64
    pattern: NDArray[np.int32]
    turns: NDArray[np.int32]

    @classmethod
    def of(cls, start: int, before: I64, weights: I64) -> _Stretch:
        # The i-th of w places of a data set would best lie at (i + 1/2) / w of the period.
        source = np.repeat(np.arange(weights.size, dtype=np.int32), weights)
        number = np.concatenate([np.arange(w) for w in weights])
        order = np.argsort((number + 0.5) / weights[source], kind="stable")
        return cls(start, before, weights, source[order], number[order].astype(np.int32))

    def at(self, positions: I64) -> tuple[I64, I64]:
        """Return (data set, how many of it came before) of positions in this stretch."""
        inside = positions - self.start
        period = inside // self.pattern.size
        place = inside - period * self.pattern.size
        source = self.pattern[place].astype(np.int64)
        return source, self.before[source] + period * self.weights[source] + self.turns[place]

    def position_of(self, source: int, number: int) -> int:
        """Return the position at which record `number` of a data set comes, counted from `before`."""
        period, turn = divmod(number, int(self.weights[source]))
        place = np.flatnonzero((self.pattern == source) & (self.turns == turn))[0]
        return self.start + period * self.pattern.size + int(place)

    def counts(self, stop: int) -> I64:
        """Return how many records of each data set come before position `stop`."""
        period, place = divmod(stop - self.start, self.pattern.size)
        inside = np.bincount(self.pattern[:place], minlength=self.weights.size)
        return self.before + period * self.weights + inside


@dataclass(frozen=True)
class Mixture:
    """Which data sets are mixed, in which proportions, and where an epoch of the mixture ends.

    Parameters
    ----------
    parts : tuple of Part
    stop : {"all", "first", "repeat"}
        "all": when every record of every data set was delivered once; one that is exhausted is left out,
        the others keep their proportions. "first": when one would be needed that is exhausted. "repeat": when
        each was delivered once at least; one that is exhausted begins its own next epoch. With the last
        two, each data set goes on in the next epoch of the mixture where it stopped in this one.

    Attributes
    ----------
    records : int
        Positions of one epoch of the mixture.

    Raises
    ------
    PlanError
        For an empty data set unless `stop` is "all", and for numbers out of range.

    Examples
    --------
    >>> mixture = Mixture((Part(6, 2, False, 0), Part(2, 1, False, 0)), "all")
    >>> mixture.order(0).records_at(range(8)).tolist()
    [0, 6, 1, 2, 7, 3, 4, 5]
    """

    parts: tuple[Part, ...]
    stop: Stop
    records: int = field(init=False)
    _stretches: tuple[_Stretch, ...] = field(init=False, repr=False, compare=False)
    _each_epoch: I64 = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.parts:
            raise PlanError("a mixture of no data set: give at least one")
        if self.stop not in get_args(Stop):
            raise PlanError(f'stop={self.stop!r} is unknown: give "all", "first" or "repeat"')
        sizes = [checked_int("records", part.records, 0, MAX_RECORDS) for part in self.parts]
        weights = np.array(
            [checked_int("weight", part.weight, 1, MAX_PERIOD) for part in self.parts], np.int64
        )
        if int(weights.sum()) > MAX_PERIOD:
            raise PlanError(f"the weights add up to more than {MAX_PERIOD}: use whole_weights")
        if self.stop != "all" and 0 in sizes:
            raise PlanError(
                f'data set {sizes.index(0)} of the mixture is empty: leave it out, or use stop="all"'
            )
        stretches, records = _laid_out(sizes, weights, self.stop)
        if records > MAX_RECORDS:
            raise PlanError(
                f"an epoch of the mixture has more than {MAX_RECORDS} positions: check the weights"
            )
        each = stretches[-1].counts(records) if stretches else np.zeros(len(sizes), np.int64)
        object.__setattr__(self, "records", records)
        object.__setattr__(self, "_stretches", tuple(stretches))
        object.__setattr__(self, "_each_epoch", each)

    def order(self, epoch: int) -> MixedOrder:
        """Return the order of one epoch of the mixture."""
        most = MAX_RECORDS // max(int(self._each_epoch.max()), 1)
        return MixedOrder(self, checked_int("epoch", epoch, 0, min(most, MAX_EPOCH)))

    def sources_at(self, epoch: int, positions: I64) -> tuple[I64, I64]:
        """Return the data set at each position, and how many of its records came before in all epochs."""
        begins = [stretch.start for stretch in self._stretches]
        which = np.searchsorted(begins, positions, side="right") - 1
        source, number = np.empty_like(positions), np.empty_like(positions)
        for i in np.unique(which).tolist():
            mine = which == i
            source[mine], number[mine] = self._stretches[i].at(positions[mine])
        return source, number + epoch * self._each_epoch[source]


def _laid_out(sizes: Sequence[int], weights: I64, stop: Stop) -> tuple[list[_Stretch], int]:
    zero = np.zeros(weights.size, np.int64)
    if stop != "all":
        only = _Stretch.of(0, zero, weights)
        if stop == "first":
            return [only], min(only.position_of(i, size) for i, size in enumerate(sizes))
        return [only], max(only.position_of(i, size - 1) + 1 for i, size in enumerate(sizes))
    stretches: list[_Stretch] = []
    start, before = 0, zero
    while True:
        active = np.array(sizes, np.int64) > before
        if not active.any():
            return stretches, start
        left = np.where(active, weights, 0)
        stretches.append(_Stretch.of(start, before, left))
        last = stretches[-1]
        start = min(
            last.position_of(i, sizes[i] - 1 - int(before[i])) + 1 for i in np.flatnonzero(active).tolist()
        )
        before = last.counts(start)


@dataclass(frozen=True)
class MixedOrder:
    """One epoch of a mixture: like `EpochOrder`, with the data sets' records laid end to end."""

    mixture: Mixture
    epoch: int

    @property
    def records(self) -> int:
        """Positions of the epoch."""
        return self.mixture.records

    def records_at(self, positions: ArrayLike) -> I64:
        """Return the record at each position, numbered through all data sets; see `EpochOrder.records_at`."""
        given = checked_positions("positions", positions, self.records)
        flat = given.reshape(-1)
        source, number = self.mixture.sources_at(self.epoch, flat)
        result = np.empty_like(flat)
        offset = 0
        for i, part in enumerate(self.mixture.parts):
            mine = np.flatnonzero(source == i)
            epochs = number[mine] // max(part.records, 1)
            for epoch in np.unique(epochs).tolist():
                chosen = mine[epochs == epoch]
                order = epoch_order(part.records, shuffle=part.shuffle, seed=part.seed, epoch=epoch)
                result[chosen] = offset + order.records_at(number[chosen] - epoch * part.records)
            offset += part.records
        return result.reshape(given.shape)
