"""Order of an epoch over several data sets mixed by weight.

A pattern, in which each data set has a number of slots spread as evenly as possible, is repeated. The number
of records of each data set before any position is therefore computed, not counted. A mixture is an order like
others: its positions are divided among ranks, stored in states and proved by an audit.
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
    """One data set of a mixture: its records, its slots in the pattern, and its shuffle and seed."""

    records: int
    weight: int
    shuffle: Shuffle
    seed: int


def whole_weights(weights: Sequence[float]) -> list[int]:
    """Return weights as numbers of slots in a pattern.

    Weights that are ratios of integers with a sum up to `MAX_PERIOD` are exact (0.7 and 0.3 become 7 and 3);
    others are rounded to one part in `MAX_PERIOD`.

    Raises
    ------
    PlanError
        A weight is not positive, or too small compared with the others.

    Examples
    --------
    >>> whole_weights([0.7, 0.3]), whole_weights([3, 1])
    ([7, 3], [3, 1])
    """
    exact = []
    for weight in weights:
        if not isinstance(weight, (int, float, np.integer, np.floating)) or isinstance(weight, bool):
            raise PlanError(f"weight must be a positive number, not {weight!r:.80}")
        if not isfinite(weight) or weight <= 0:
            raise PlanError(
                f"weight must be positive and finite, not {weight}; to exclude a data set, leave it out"
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
            f"weight {small} is less than 1/{MAX_PERIOD} of all weights: raise it, or leave the data set out"
        )
    return places


@dataclass(frozen=True, slots=True, eq=False)
class _Section:
    """Positions from `start` on that share one pattern; `before` counts the earlier records of each."""

    start: int
    before: I64
    weights: I64
    pattern: NDArray[np.int32]
    occurrence: NDArray[np.int32]

    @classmethod
    def of(cls, start: int, before: I64, weights: I64) -> _Section:
        # The ideal point of slot i of w slots of a data set is (i + 1/2) / w of the period.
        source = np.repeat(np.arange(weights.size, dtype=np.int32), weights)
        number = np.concatenate([np.arange(w) for w in weights])
        order = np.argsort((number + 0.5) / weights[source], kind="stable")
        return cls(start, before, weights, source[order], number[order].astype(np.int32))

    def at(self, positions: I64) -> tuple[I64, I64]:
        """Return the data set at each position of this section, and the number of its records before."""
        inside = positions - self.start
        period = inside // self.pattern.size
        slot = inside - period * self.pattern.size
        source = self.pattern[slot].astype(np.int64)
        return source, self.before[source] + period * self.weights[source] + self.occurrence[slot]

    def position_of(self, source: int, number: int) -> int:
        """Return the position of record `number` of a data set, counted from `before`."""
        period, occurrence = divmod(number, int(self.weights[source]))
        slot = np.flatnonzero((self.pattern == source) & (self.occurrence == occurrence))[0]
        return self.start + period * self.pattern.size + int(slot)

    def counts(self, stop: int) -> I64:
        """Return the number of records of each data set before position `stop`."""
        period, slot = divmod(stop - self.start, self.pattern.size)
        inside = np.bincount(self.pattern[:slot], minlength=self.weights.size)
        return self.before + period * self.weights + inside


@dataclass(frozen=True)
class Mixture:
    """A mixture: its data sets, their proportions, and the end of an epoch.

    Parameters
    ----------
    parts : tuple of Part
    stop : {"all", "first", "repeat"}
        End of an epoch. "all": every record of every data set was delivered once; an exhausted data set is
        left out, and the others keep their proportions. "first": the next record would come from an exhausted
        data set. "repeat": every record was delivered at least once; an exhausted data set begins its next
        epoch. With "first" and "repeat", each data set continues in the next epoch of the mixture where it
        stopped in this one.

    Attributes
    ----------
    records : int
        Number of positions of one epoch of the mixture.

    Raises
    ------
    PlanError
        A data set is empty and `stop` is not "all", or a number is out of range.

    Examples
    --------
    >>> mixture = Mixture((Part(6, 2, False, 0), Part(2, 1, False, 0)), "all")
    >>> mixture.order(0).records_at(range(8)).tolist()
    [0, 6, 1, 2, 7, 3, 4, 5]
    """

    parts: tuple[Part, ...]
    stop: Stop
    records: int = field(init=False)
    _sections: tuple[_Section, ...] = field(init=False, repr=False, compare=False)
    _each_epoch: I64 = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.parts:
            raise PlanError("a mixture must have at least one data set")
        if self.stop not in get_args(Stop):
            raise PlanError(f'stop must be "all", "first" or "repeat", not {self.stop!r}')
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
        sections, records = _sections_of_epoch(sizes, weights, self.stop)
        if records > MAX_RECORDS:
            raise PlanError(
                f"an epoch of the mixture has more than {MAX_RECORDS} positions: check the weights"
            )
        each = sections[-1].counts(records) if sections else np.zeros(len(sizes), np.int64)
        object.__setattr__(self, "records", records)
        object.__setattr__(self, "_sections", tuple(sections))
        object.__setattr__(self, "_each_epoch", each)

    def order(self, epoch: int) -> MixedOrder:
        """Return the order of one epoch of the mixture."""
        most = MAX_RECORDS // max(int(self._each_epoch.max()), 1)
        return MixedOrder(self, checked_int("epoch", epoch, 0, min(most, MAX_EPOCH)))

    def sources_at(self, epoch: int, positions: I64) -> tuple[I64, I64]:
        """Return the data set at each position, and the number of its records before, over all epochs."""
        begins = [section.start for section in self._sections]
        which = np.searchsorted(begins, positions, side="right") - 1
        source, number = np.empty_like(positions), np.empty_like(positions)
        for i in np.unique(which).tolist():
            mine = which == i
            source[mine], number[mine] = self._sections[i].at(positions[mine])
        return source, number + epoch * self._each_epoch[source]


def _sections_of_epoch(sizes: Sequence[int], weights: I64, stop: Stop) -> tuple[list[_Section], int]:
    zero = np.zeros(weights.size, np.int64)
    if stop != "all":
        only = _Section.of(0, zero, weights)
        if stop == "first":
            return [only], min(only.position_of(i, size) for i, size in enumerate(sizes))
        return [only], max(only.position_of(i, size - 1) + 1 for i, size in enumerate(sizes))
    sections: list[_Section] = []
    start, before = 0, zero
    while True:
        active = np.array(sizes, np.int64) > before
        if not active.any():
            return sections, start
        last = _Section.of(start, before, np.where(active, weights, 0))
        sections.append(last)
        start = min(
            last.position_of(i, sizes[i] - 1 - int(before[i])) + 1 for i in np.flatnonzero(active).tolist()
        )
        before = last.counts(start)


@dataclass(frozen=True)
class MixedOrder:
    """The order of one epoch of a mixture, like `EpochOrder`; records are numbered through all data sets."""

    mixture: Mixture
    epoch: int

    @property
    def records(self) -> int:
        """Number of positions of the epoch."""
        return self.mixture.records

    def records_at(self, positions: ArrayLike) -> I64:
        """Return the record at each position; see `EpochOrder.records_at`."""
        checked = checked_positions("positions", positions, self.records)
        flat = checked.reshape(-1)
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
        return result.reshape(checked.shape)
