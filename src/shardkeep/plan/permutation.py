"""A seeded permutation of ``range(size)`` in constant memory.

The numbers below ``size`` are arranged in a grid of about √size rows and columns. A Feistel network permutes
the cells: each round adds a hash of one coordinate to the other, modulo its range (Black and Rogaway,
"Ciphers with arbitrary finite domains", CT-RSA 2002). The grid has at most ``2·√size + 2`` cells too many; a
value in such a cell passes through the network again until it is below ``size`` (cycle walking). From 1,024
numbers on, ten rounds are made. Below that, where a round function has few values, 24 are made: a chi-square
test of 200,000 to 4 million draws finds the permutations of 2 to 8 numbers equally frequent with 16 rounds,
but not with 10.

The hash is the pair of multiplications of MurmurHash3's 64-bit finaliser, and the key schedule is SplitMix64.
All arithmetic is on 64-bit integers that wrap around, so the result is the same on every machine. States and
receipts depend on it; any change increments `shardkeep.plan.ORDER_VERSION`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shardkeep.plan.checks import MAX_RECORDS, MAX_SEED, checked_int, checked_positions

__all__ = ["Permutation", "mixed_words"]

_ROUNDS, _ROUNDS_WHEN_SMALL, _SMALL = 10, 24, 1024
_WORD = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = np.uint64(0xFF51AFD7ED558CCD)
_SECOND = np.uint64(0xC4CEB9FE1A85EC53)
_HALF = np.uint64(32)
# 64 KiB per array, so that the five arrays of a pass stay in the second-level cache.
_PASS = 8192

U64 = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Permutation:
    """A permutation of ``range(size)``, chosen by `seed` and `stream`.

    Parameters
    ----------
    size : int
        Number of values, 0 to 2**60.
    seed, stream : int
        Key of the permutation, each 0 to 2**64 - 1. Different pairs give different permutations.

    Notes
    -----
    The object has no mutable state; threads and processes can share it.

    Examples
    --------
    >>> p = Permutation(10, seed=7)
    >>> order = p.forward(range(10))
    >>> sorted(order.tolist()) == list(range(10))
    True
    >>> p.inverse(order).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    size: int
    seed: int
    stream: int = field(default=0, kw_only=True)
    _rows: int = field(init=False, repr=False, compare=False)
    _columns: int = field(init=False, repr=False, compare=False)
    _keys: tuple[np.uint64, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        size = checked_int("size", self.size, 0, MAX_RECORDS)
        seed = checked_int("seed", self.seed, 0, MAX_SEED)
        stream = checked_int("stream", self.stream, 0, MAX_SEED)
        rows = isqrt(max(size, 1) - 1) + 1
        columns = -(-size // rows) or 1
        if size > 1 and rows * columns % 2:
            # With two odd sides every round is an even permutation, so half of all permutations could not
            # occur.
            columns += 1
        state = _mixed(_mixed(seed + _GOLDEN) ^ _mixed(stream + 2 * _GOLDEN))
        rounds = _ROUNDS_WHEN_SMALL if size < _SMALL else _ROUNDS
        keys = tuple(np.uint64(_mixed(state + i * _GOLDEN)) for i in range(1, rounds + 1))
        for name, value in (("size", size), ("seed", seed), ("stream", stream)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_rows", rows)
        object.__setattr__(self, "_columns", columns)
        object.__setattr__(self, "_keys", keys)

    def forward(self, values: ArrayLike, *, tweak: ArrayLike | None = None) -> NDArray[np.int64]:
        """Return the permuted values.

        Parameters
        ----------
        values : int or array of int
            Numbers in ``[0, size)``, of any shape.
        tweak : int or array of int, optional
            Non-negative numbers, a scalar or in the shape of `values`. Each tweak selects a different
            permutation, so one call can apply many permutations of equal size.

        Returns
        -------
        ndarray of int64
            Permuted values, in the shape of `values`.

        Raises
        ------
        PlanError
            A value is not an integer, or is outside the range.
        """
        return self._walked(values, tweak, inverse=False)

    def inverse(self, values: ArrayLike, *, tweak: ArrayLike | None = None) -> NDArray[np.int64]:
        """Return the inverse of `forward` with the same `tweak`.

        Parameters
        ----------
        values, tweak
            As in `forward`.

        Returns
        -------
        ndarray of int64
            The values that `forward` maps to `values`.

        Raises
        ------
        PlanError
            A value is not an integer, or is outside the range.
        """
        return self._walked(values, tweak, inverse=True)

    def _walked(self, values: ArrayLike, tweak: ArrayLike | None, *, inverse: bool) -> NDArray[np.int64]:
        positions = checked_positions("values", values, self.size)
        if positions.size == 0 or self.size == 1:
            return np.zeros(positions.shape, dtype=np.int64)
        flat = positions.reshape(-1).view(np.uint64)
        tweaks = None
        if tweak is not None:
            checked = checked_positions("tweak", tweak, 2**63)
            tweaks = np.broadcast_to(checked, positions.shape).reshape(-1).view(np.uint64)
        out = np.empty(flat.shape, dtype=np.uint64)
        size = np.uint64(self.size)
        for first in range(0, flat.size, _PASS):
            part = slice(first, first + _PASS)
            # One increment, so that 0 is not a fixed point.
            hashed = None if tweaks is None else mixed_words(tweaks[part] + np.uint64(_GOLDEN))
            walked = self._network(flat[part], hashed, inverse)
            beyond = np.flatnonzero(walked >= size)
            while beyond.size:
                again = self._network(walked[beyond], None if hashed is None else hashed[beyond], inverse)
                walked[beyond] = again
                beyond = beyond[again >= size]
            out[part] = walked
        return out.view(np.int64).reshape(positions.shape)

    def _network(self, values: U64, tweak: U64 | None, inverse: bool) -> U64:
        columns = np.uint64(self._columns)
        sides = (np.uint64(self._rows), columns)
        row = values // columns
        column = values - row * columns
        halves = (row, column)
        hashed, spare = np.empty_like(values), np.empty_like(values)
        rounds = range(len(self._keys))
        for i in reversed(rounds) if inverse else rounds:
            changed, source, modulus = halves[i % 2], halves[1 - i % 2], sides[i % 2]
            if tweak is None:
                np.bitwise_xor(source, self._keys[i], out=hashed)
            else:
                np.add(source, tweak, out=hashed)
                np.bitwise_xor(hashed, self._keys[i], out=hashed)
            np.multiply(hashed, _FIRST, out=hashed)
            np.right_shift(hashed, _HALF, out=spare)
            np.bitwise_xor(hashed, spare, out=hashed)
            np.multiply(hashed, _SECOND, out=hashed)
            # The high 32 bits times the modulus: without a division, with a bias below modulus / 2**32.
            np.right_shift(hashed, _HALF, out=hashed)
            np.multiply(hashed, modulus, out=hashed)
            np.right_shift(hashed, _HALF, out=hashed)
            # Of the sum and the sum minus the modulus, the wrong one has wrapped past 2**63 or is larger by
            # the modulus, so the smaller one is correct.
            if inverse:
                np.subtract(changed, hashed, out=changed)
                np.add(changed, modulus, out=spare)
            else:
                np.add(changed, hashed, out=changed)
                np.subtract(changed, modulus, out=spare)
            np.minimum(changed, spare, out=changed)
        return row * columns + column


def _mixed(value: int) -> int:
    """Return the SplitMix64 finaliser of a 64-bit word."""
    value &= _WORD
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _WORD
    return value ^ value >> 31


def mixed_words(words: U64) -> U64:
    """Return the SplitMix64 finaliser of each 64-bit word."""
    mixed = (words ^ words >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return mixed ^ mixed >> np.uint64(31)
