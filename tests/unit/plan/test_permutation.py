"""The permutation: its inverse, stability and uniformity, also for few numbers."""

from __future__ import annotations

import math
import pickle
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.errors import PlanError
from shardkeep.plan import Permutation


@given(st.integers(0, 3000), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_forward_is_a_permutation_and_inverse_inverts_it(size: int, seed: int, stream: int) -> None:
    order = Permutation(size, seed, stream=stream)
    image = order.forward(np.arange(size))
    assert image.dtype == np.int64
    assert np.array_equal(np.sort(image), np.arange(size))
    assert np.array_equal(order.inverse(image), np.arange(size))


@given(st.integers(1, 2**60), st.integers(0, 2**64 - 1), st.data())
def test_inverse_undoes_forward_at_any_size(size: int, seed: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, size - 1), max_size=20))
    tweak = data.draw(st.lists(st.integers(0, 2**62), min_size=len(values), max_size=len(values)))
    order = Permutation(size, seed)
    image = order.forward(values, tweak=tweak)
    assert image.size == 0 or (image.min() >= 0 and image.max() < size)
    assert order.inverse(image, tweak=tweak).tolist() == values


@pytest.mark.parametrize(
    ("size", "seed", "stream", "first"),
    [
        (2, 0, 0, [0, 1]),
        (10, 7, 0, [1, 7, 9, 6, 2, 3, 4, 8]),
        (10, 7, 1, [1, 7, 6, 9, 2, 3, 8, 0]),
        (1023, 1, 0, [106, 95, 665, 611, 903, 710, 115, 246]),
        (1024, 1, 0, [596, 879, 648, 133, 570, 157, 484, 240]),
        (1_000_000, 42, 3, [722414, 512652, 747339, 945894, 406889, 666471, 960443, 908036]),
        (
            10_000_000_000,
            2**64 - 1,
            2**63,
            [9337774431, 1751603330, 9080266193, 7532334272, 7031274250, 8911111679, 5238365529, 9686639227],
        ),
        (
            2**60,
            5,
            0,
            [
                443838500775502091,
                480041928709598236,
                463325281211484830,
                1811107352079785,
                678572332972273574,
                411723109525040593,
                366144074402325204,
                463948195673989016,
            ],
        ),
    ],
)
def test_permutation_never_changes(size: int, seed: int, stream: int, first: list[int]) -> None:
    # A change here makes every saved state and receipt wrong: raise ORDER_VERSION and keep the old order.
    assert Permutation(size, seed, stream=stream).forward(np.arange(min(size, 8))).tolist() == first


def test_permutation_with_tweaks_never_changes() -> None:
    assert Permutation(100, 3).forward([0, 1, 0, 1], tweak=[0, 0, 1, 2**62]).tolist() == [32, 4, 43, 12]


def test_array_of_tweaks_equals_one_call_per_tweak() -> None:
    order = Permutation(50, 9)
    values, tweak = np.tile(np.arange(50), 3), np.repeat([0, 1, 99], 50)
    together = order.forward(values, tweak=tweak).reshape(3, 50)
    for row, one in zip(together, (0, 1, 99), strict=True):
        assert np.array_equal(row, order.forward(np.arange(50), tweak=one))
    assert not np.array_equal(together[0], together[1])


def test_long_calls_equal_short_calls() -> None:
    order = Permutation(20_011, 4)
    whole = order.forward(np.arange(20_011))
    parts = [order.forward(np.arange(k, min(k + 977, 20_011))) for k in range(0, 20_011, 977)]
    assert np.array_equal(whole, np.concatenate(parts))


def test_shapes_and_kinds_of_input() -> None:
    order = Permutation(30, 1)
    assert order.forward(7).shape == ()
    assert order.forward(np.zeros((2, 0, 3), np.int64)).shape == (2, 0, 3)
    square = order.forward(np.arange(30, dtype=np.uint64).reshape(5, 6))
    assert square.shape == (5, 6)
    assert square.ravel().tolist() == order.forward(np.arange(30, dtype=np.int8)).tolist()
    assert Permutation(0, 1).forward([]).tolist() == []
    assert Permutation(1, 1).forward([0, 0]).tolist() == [0, 0]


def test_input_is_not_changed() -> None:
    values = np.arange(30)
    values.flags.writeable = False
    Permutation(30, 1).forward(values, tweak=values)
    assert np.array_equal(values, np.arange(30))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([30], "has the value 30"),
        ([-1], "has the value -1"),
        ([1.0], "float64"),
        ([True], "bool"),
        (["1"], "<U1"),
    ],
)
def test_values_outside_are_refused(values: list[object], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        Permutation(30, 1).forward(values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments",
    [(-1, 0), (2**60 + 1, 0), (5, -1), (5, 2**64), (True, 0), (5.0, 0), ("5", 0)],
)
def test_bad_arguments_are_refused(arguments: tuple[int, int]) -> None:
    with pytest.raises(PlanError):
        Permutation(*arguments)


def test_pickled_permutation_is_equal() -> None:
    order = pickle.loads(pickle.dumps(Permutation(100, 1, stream=2)))
    assert order == Permutation(100, 1, stream=2)
    assert np.array_equal(order.forward(range(100)), Permutation(100, 1, stream=2).forward(range(100)))


@cache
def draws(size: int) -> np.ndarray:
    """Return 8,000 permutations, 500 of them by seed and the others by tweak."""
    values = np.arange(size)
    by_seed = [Permutation(size, seed).forward(values) for seed in range(500)]
    tweak = np.repeat(np.arange(7500), size)
    by_tweak = Permutation(size, 11).forward(np.tile(values, 7500), tweak=tweak).reshape(7500, size)
    return np.concatenate([np.array(by_seed), by_tweak])


def deviation(observed: np.ndarray, expected: float) -> float:
    """Return chi-square in standard deviations from its mean."""
    freedom = observed.size - 1
    chi = float(((observed - expected) ** 2 / expected).sum())
    return (chi - freedom) / math.sqrt(2 * freedom)


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_all_permutations_of_few_numbers_are_equally_frequent(size: int) -> None:
    drawn = draws(size)
    codes = (drawn * size ** np.arange(size)).sum(axis=1)
    _, observed = np.unique(codes, return_counts=True)
    assert observed.size == math.factorial(size)
    assert abs(deviation(observed, 8000 / observed.size)) < 4


@pytest.mark.parametrize("size", [6, 7, 8, 9, 10, 25])
def test_each_pair_goes_to_each_pair_of_positions_equally_often(size: int) -> None:
    drawn = draws(size)
    for i, j in ((0, 1), (0, size - 1), (size // 2, size // 2 + 1)):
        observed = np.bincount(drawn[:, i] * size + drawn[:, j], minlength=size * size).reshape(size, size)
        assert np.trace(observed) == 0
        assert abs(deviation(observed[~np.eye(size, dtype=bool)], 8000 / (size * (size - 1)))) < 4.5


@pytest.mark.parametrize("size", [9, 10, 25])
def test_odd_permutations_are_as_frequent_as_even_ones(size: int) -> None:
    drawn = draws(size)
    first, second = np.triu_indices(size, 1)
    odd = int(((drawn[:, first] > drawn[:, second]).sum(axis=1) % 2).sum())
    assert abs(odd - 4000) < 4 * math.sqrt(2000)


def test_neighbours_are_uncorrelated_in_a_large_permutation() -> None:
    size = 1_000_003
    image = Permutation(size, 12).forward(np.arange(200_000)).astype(np.float64)
    z = (image - (size - 1) / 2) / (size / math.sqrt(12))
    for distance in (1, 2, 1000, 1001):
        correlation = float((z[:-distance] * z[distance:]).mean())
        assert abs(correlation) < 4.5 / math.sqrt(200_000)
    bins = np.bincount((image * 1000 // size).astype(np.int64), minlength=1000)
    assert abs(deviation(bins, 200.0)) < 4.5
