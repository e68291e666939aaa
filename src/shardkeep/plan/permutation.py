"""A seeded permutation of ``range(size)`` that needs no memory.

The numbers below ``size`` are laid out in a grid of about √size rows and columns, and a Feistel network
works on (row, column): each round adds a hash of one coordinate to the other, modulo its range (Black and
Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002). The grid has at most ``2·√size + 2`` cells
too many; a value that lands on one of them is sent through the network again until it does not (cycle
walking), which keeps the whole a permutation. Ten rounds do from 1,024 numbers on. Below that a round
function has few values and 24 rounds are made: with 16, the permutations of 2 to 8 numbers are already
equally frequent as far as a chi-square test of 200,000 to 4 million draws can tell; with 10 they are not.

The hash is the pair of multiplications of MurmurHash3's 64-bit finaliser, and the key schedule is
SplitMix64. All of it is 64-bit integer arithmetic that wraps around, so the result is the same on every
machine. States and receipts rely on it: `shardkeep.plan.ORDER_VERSION` counts its revisions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shardkeep.plan.checks import MAX_RECORDS, MAX_SEED, checked_int, checked_positions

__all__ = ["Permutation"]

_ROUNDS, _ROUNDS_WHEN_SMALL, _SMALL = 10, 24, 1024
_WORD = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = np.uint64(0xFF51AFD7ED558CCD)
_SECOND = np.uint64(0xC4CEB9FE1A85EC53)
_HALF = np.uint64(32)
# 64 KiB an array: the five arrays of a pass stay in the second-level cache.
_PASS = 8192

U64 = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Permutation:
    """A permutation of ``range(size)``, chosen by `seed` and `stream`.

    Parameters
    ----------
    size : int
        How many numbers are permuted, 0 to 2**60.
    seed, stream : int
        0 to 2**64 - 1. Each pair gives a permutation of its own.

    Notes
    -----
    Pure and stateless: safe to share between threads and to send to other processes.

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
            # With both sides odd every round is an even permutation, so half of them could never occur.
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
        """Return where each value goes.

        Parameters
        ----------
        values : int or array of int
            Numbers in ``[0, size)``, any shape.
        tweak : int or array of int, optional
            Non-negative; a scalar or the shape of `values`. Each tweak stands for a permutation of its own,
            so one call serves a whole family of equally large permutations.

        Returns
        -------
        ndarray of int64
            The shape of `values`.

        Raises
        ------
        PlanError
            When a value is no integer or outside the range.
        """
        return self._walked(values, tweak, inverse=False)

    def inverse(self, values: ArrayLike, *, tweak: ArrayLike | None = None) -> NDArray[np.int64]:
        """Return where each value comes from: the inverse of `forward` with the same `tweak`."""
        return self._walked(values, tweak, inverse=True)

    def _walked(self, values: ArrayLike, tweak: ArrayLike | None, *, inverse: bool) -> NDArray[np.int64]:
        given = checked_positions("values", values, self.size)
        if given.size == 0 or self.size == 1:
            return np.zeros(given.shape, dtype=np.int64)
        flat = given.reshape(-1).view(np.uint64)
        tweaks = None
        if tweak is not None:
            checked = checked_positions("tweak", tweak, 2**63)
            tweaks = np.broadcast_to(checked, given.shape).reshape(-1).view(np.uint64)
        out = np.empty(flat.shape, dtype=np.uint64)
        size = np.uint64(self.size)
        for first in range(0, flat.size, _PASS):
            part = slice(first, first + _PASS)
            hashed = None if tweaks is None else _mixed_array(tweaks[part])
            walked = self._network(flat[part], hashed, inverse)
            beyond = np.flatnonzero(walked >= size)
            while beyond.size:
                again = self._network(walked[beyond], None if hashed is None else hashed[beyond], inverse)
                walked[beyond] = again
                beyond = beyond[again >= size]
            out[part] = walked
        return out.view(np.int64).reshape(given.shape)

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
            # The high 32 bits as a fraction of the modulus: no division, and a bias below modulus / 2**32.
            np.right_shift(hashed, _HALF, out=hashed)
            np.multiply(hashed, modulus, out=hashed)
            np.right_shift(hashed, _HALF, out=hashed)
            # Of the sum and the sum brought back by one modulus, the wrong one has wrapped past 2**63
            # or is larger by the modulus, so the smaller one is right.
            if inverse:
                np.subtract(changed, hashed, out=changed)
                np.add(changed, modulus, out=spare)
            else:
                np.add(changed, hashed, out=changed)
                np.subtract(changed, modulus, out=spare)
            np.minimum(changed, spare, out=changed)
        return row * columns + column


def _mixed(value: int) -> int:
    """Mix one 64-bit word: SplitMix64's finaliser."""
    value &= _WORD
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _WORD
    return value ^ value >> 31


def _mixed_array(values: U64) -> U64:
    """Do the same for an array of words, one step of SplitMix64 further so that 0 is no fixed point."""
    mixed = values + np.uint64(_GOLDEN)
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return mixed ^ mixed >> np.uint64(31)
