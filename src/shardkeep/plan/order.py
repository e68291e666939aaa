"""Order of the records in an epoch: a pure function of (records, shuffle, seed, epoch, position).

A *position* numbers the deliveries of all ranks together in an epoch, from 0. A *record* is a global record
number, with the shards concatenated. An order maps positions to records and back in O(1) memory, so a state
or a receipt needs only positions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shardkeep.errors import PlanError
from shardkeep.plan.checks import MAX_EPOCH, MAX_RECORDS, MAX_SEED, checked_int, checked_positions
from shardkeep.plan.permutation import Permutation

__all__ = [
    "BLOCK_RECORDS",
    "FILES_PURPOSE",
    "ORDER_VERSION",
    "WINDOW_BLOCKS",
    "BlockOrder",
    "EpochOrder",
    "GlobalOrder",
    "SequentialOrder",
    "Shuffle",
    "epoch_order",
    "stream_of",
]

ORDER_VERSION = 1
"""Version of the orders, part of every state and receipt; a change of any order increments it."""

BLOCK_RECORDS = 256
WINDOW_BLOCKS = 64

Shuffle = Literal[False, "global", "blocks"]

_GLOBAL, _BLOCKS, _WINDOWS, FILES_PURPOSE = range(4)


def stream_of(epoch: int, purpose: int) -> int:
    """Return the stream number of the permutation for one purpose in one epoch."""
    return epoch * 4 + purpose


class EpochOrder(Protocol):
    """The common interface of all orders of an epoch."""

    @property
    def records(self) -> int:
        """Number of records of the epoch."""

    def records_at(self, positions: ArrayLike) -> NDArray[np.int64]:
        """Return the global record number at each position.

        Parameters
        ----------
        positions : int or array of int

        Returns
        -------
        ndarray of int64
            Record numbers in the shape of `positions`.

        Raises
        ------
        PlanError
            A position is not an integer, or is outside ``[0, records)``.
        """

    def positions_of(self, records: ArrayLike) -> NDArray[np.int64]:
        """Return the position of each global record number, the inverse of `records_at`.

        Parameters
        ----------
        records : int or array of int

        Returns
        -------
        ndarray of int64
            Positions in the shape of `records`.

        Raises
        ------
        PlanError
            A number is not an integer, or is outside ``[0, records)``.
        """


@dataclass(frozen=True, slots=True)
class SequentialOrder:
    """The order in which position and record number are equal."""

    records: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "records", checked_int("records", self.records, 0, MAX_RECORDS))

    def records_at(self, positions: ArrayLike) -> NDArray[np.int64]:
        """Return a copy of `positions` as int64; see `EpochOrder.records_at`."""
        return checked_positions("positions", positions, self.records).copy()

    def positions_of(self, records: ArrayLike) -> NDArray[np.int64]:
        """Return a copy of `records` as int64; see `EpochOrder.positions_of`."""
        return checked_positions("records", records, self.records).copy()


@dataclass(frozen=True, slots=True)
class GlobalOrder:
    """A permutation of all records, different in each epoch."""

    records: int
    seed: int
    epoch: int
    _order: Permutation = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_seeded(self)
        object.__setattr__(
            self, "_order", Permutation(self.records, self.seed, stream=stream_of(self.epoch, _GLOBAL))
        )

    def records_at(self, positions: ArrayLike) -> NDArray[np.int64]:
        """See `EpochOrder.records_at`."""
        return self._order.forward(checked_positions("positions", positions, self.records))

    def positions_of(self, records: ArrayLike) -> NDArray[np.int64]:
        """See `EpochOrder.positions_of`."""
        return self._order.inverse(checked_positions("records", records, self.records))


@dataclass(frozen=True, slots=True)
class BlockOrder:
    """Blocks of consecutive records in random order, with records shuffled inside windows of blocks.

    The records are divided into blocks of `block_records` (the last one may be shorter), and the blocks are
    permuted. The sequence of blocks is then divided into windows of ``block_records * window_blocks``
    positions, and the positions of each window are permuted. The records of one window are therefore at most
    ``window_blocks + 2`` contiguous ranges of records, each of which can be read at once; `window_runs`
    returns them.

    Parameters
    ----------
    records, seed, epoch : int
        Arguments of `epoch_order`.
    block_records, window_blocks : int
        Records of a block and blocks of a window, 1 to 2**31 - 1.

    Examples
    --------
    >>> order = BlockOrder(10, seed=1, epoch=0, block_records=3, window_blocks=2)
    >>> starts, stops = order.window_runs(0)
    >>> int((stops - starts).sum()), order.windows
    (6, 2)
    >>> inside = {r for a, b in zip(starts.tolist(), stops.tolist()) for r in range(a, b)}
    >>> inside == set(order.records_at(range(6)).tolist())
    True
    """

    records: int
    seed: int
    epoch: int
    block_records: int = BLOCK_RECORDS
    window_blocks: int = WINDOW_BLOCKS
    _blocks: Permutation = field(init=False, repr=False, compare=False)
    _window: Permutation = field(init=False, repr=False, compare=False)
    _last_window: Permutation = field(init=False, repr=False, compare=False)
    _short_slot: int = field(init=False, repr=False, compare=False)
    _missing: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_seeded(self)
        for name in ("block_records", "window_blocks"):
            object.__setattr__(self, name, checked_int(name, getattr(self, name), 1, 2**31 - 1))
        blocks = Permutation(
            -(-self.records // self.block_records), self.seed, stream=stream_of(self.epoch, _BLOCKS)
        )
        inside = stream_of(self.epoch, _WINDOWS)
        last = self.records - max(self.windows - 1, 0) * self.window_records
        object.__setattr__(self, "_blocks", blocks)
        # A window larger than the epoch is not used, because the last window is the only one.
        whole = min(self.window_records, MAX_RECORDS)
        object.__setattr__(self, "_window", Permutation(whole, self.seed, stream=inside))
        object.__setattr__(self, "_last_window", Permutation(last, self.seed, stream=inside))
        object.__setattr__(self, "_missing", blocks.size * self.block_records - self.records)
        short_slot = int(blocks.inverse(blocks.size - 1)) if blocks.size else 0
        object.__setattr__(self, "_short_slot", short_slot)

    @property
    def window_records(self) -> int:
        """Number of positions of a window (the last one may have fewer)."""
        return self.block_records * self.window_blocks

    @property
    def windows(self) -> int:
        """Number of windows of the epoch."""
        return -(-self.records // self.window_records)

    def records_at(self, positions: ArrayLike) -> NDArray[np.int64]:
        """See `EpochOrder.records_at`."""
        checked = checked_positions("positions", positions, self.records)
        if checked.size == 0:
            return checked.copy()
        slot, inside = self._slots(self._shuffled(checked, inverse=False))
        first, last = int(slot.min()), int(slot.max())
        if last - first < slot.size:
            # Neighbouring positions share blocks, so each slot of the range is permuted once.
            block = self._blocks.forward(np.arange(first, last + 1))[slot - first]
        else:
            block = self._blocks.forward(slot)
        return block * self.block_records + inside

    def positions_of(self, records: ArrayLike) -> NDArray[np.int64]:
        """See `EpochOrder.positions_of`."""
        checked = checked_positions("records", records, self.records)
        if checked.size == 0:
            return checked.copy()
        block = checked // self.block_records
        slot = self._blocks.inverse(block)
        spread = slot * self.block_records + (checked - block * self.block_records)
        return self._shuffled(spread - self._missing * (slot > self._short_slot), inverse=True)

    def window_runs(self, window: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the ranges of records that one window delivers.

        Parameters
        ----------
        window : int
            Number of the window, from 0.

        Returns
        -------
        starts, stops : ndarray of int64
            Half-open ranges of global record numbers, ascending, disjoint and not adjacent.

        Raises
        ------
        PlanError
            `window` is not in ``[0, windows)``.
        """
        window = checked_int("window", window, 0, self.windows - 1)
        start = window * self.window_records
        stop = min(start + self.window_records, self.records)
        (first, last), (head, tail) = self._slots(np.array([start, stop - 1]))
        blocks = self._blocks.forward(np.arange(first, last + 1))
        starts = blocks * self.block_records
        stops = np.minimum(starts + self.block_records, self.records)
        # The last block first, because with a single block both ends cut the same range.
        stops[-1] = starts[-1] + tail + 1
        starts[0] += head
        ascending = np.argsort(starts)
        starts, stops = starts[ascending], stops[ascending]
        apart = starts[1:] != stops[:-1]
        return starts[np.append(True, apart)], stops[np.append(apart, True)]

    def _shuffled(self, positions: NDArray[np.int64], *, inverse: bool) -> NDArray[np.int64]:
        """Permute positions inside their windows, or invert that permutation."""
        window = positions // self.window_records
        first = window * self.window_records
        inside = positions - first
        last = window == self.windows - 1
        if not last.any():
            permuted = _permuted(self._window, inside, window, inverse)
        elif last.all():
            permuted = _permuted(self._last_window, inside, window, inverse)
        else:
            permuted = np.empty_like(inside)
            permuted[last] = _permuted(self._last_window, inside[last], window[last], inverse)
            permuted[~last] = _permuted(self._window, inside[~last], window[~last], inverse)
        return first + permuted

    def _slots(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return block slot and offset in the block for indices in the sequence of records."""
        short_stop = (self._short_slot + 1) * self.block_records - self._missing
        spread = indices + self._missing * (indices >= short_stop)
        slot = spread // self.block_records
        return slot, spread - slot * self.block_records


def _permuted(
    order: Permutation, values: NDArray[np.int64], tweak: NDArray[np.int64], inverse: bool
) -> NDArray[np.int64]:
    return order.inverse(values, tweak=tweak) if inverse else order.forward(values, tweak=tweak)


def _check_seeded(order: GlobalOrder | BlockOrder) -> None:
    object.__setattr__(order, "records", checked_int("records", order.records, 0, MAX_RECORDS))
    object.__setattr__(order, "seed", checked_int("seed", order.seed, 0, MAX_SEED))
    object.__setattr__(order, "epoch", checked_int("epoch", order.epoch, 0, MAX_EPOCH))


def epoch_order(
    records: int,
    *,
    shuffle: Shuffle = False,
    seed: int = 0,
    epoch: int = 0,
    block_records: int = BLOCK_RECORDS,
    window_blocks: int = WINDOW_BLOCKS,
) -> SequentialOrder | GlobalOrder | BlockOrder:
    """Return the order of one epoch.

    Parameters
    ----------
    records : int
        Number of records of the data set, 0 to 2**60.
    shuffle : False, "global" or "blocks"
        False for the stored order, "global" for one permutation of all records, "blocks" for blocks of
        consecutive records that are permuted and mixed inside windows of several blocks (see `BlockOrder`),
        which are read in long ranges.
    seed : int
        Seed of the shuffle, 0 to 2**64 - 1.
    epoch : int
        Number of the epoch, from 0; each epoch has a different order.
    block_records, window_blocks : int
        Sizes of `BlockOrder`; used only with "blocks".

    Returns
    -------
    EpochOrder
        A frozen dataclass with ``records_at(positions)`` and ``positions_of(records)``. Equal arguments give
        the same order on every machine as long as `ORDER_VERSION` is the same.

    Raises
    ------
    PlanError
        An argument is out of range, or `shuffle` is unknown.

    Examples
    --------
    >>> order = epoch_order(6, shuffle="global", seed=1)
    >>> order.records_at(range(6)).tolist()
    [3, 2, 5, 0, 4, 1]
    >>> order.positions_of(order.records_at([2, 5])).tolist()
    [2, 5]
    """
    if shuffle is False:
        return SequentialOrder(records)
    if shuffle == "global":
        return GlobalOrder(records, seed, epoch)
    if shuffle == "blocks":
        return BlockOrder(records, seed, epoch, block_records, window_blocks)
    raise PlanError(f'shuffle must be False, "global" or "blocks", not {shuffle!r}')
