"""The orders of an epoch: permutations of every size, stability, and ranges of windows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.errors import PlanError
from shardkeep.plan import ORDER_VERSION, BlockOrder, GlobalOrder, Permutation, SequentialOrder, epoch_order


@given(
    records=st.integers(0, 400),
    shuffle=st.sampled_from([False, "global", "blocks"]),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 1000),
    block_records=st.integers(1, 40),
    window_blocks=st.integers(1, 6),
)
def test_every_order_is_a_permutation(records, shuffle, seed, epoch, block_records, window_blocks) -> None:  # type: ignore[no-untyped-def]
    order = epoch_order(
        records,
        shuffle=shuffle,
        seed=seed,
        epoch=epoch,
        block_records=block_records,
        window_blocks=window_blocks,
    )
    image = order.records_at(np.arange(records))
    assert image.dtype == np.int64
    assert np.array_equal(np.sort(image), np.arange(records))
    assert np.array_equal(order.positions_of(image), np.arange(records))


@given(
    records=st.integers(10**10, 2**60),
    shuffle=st.sampled_from([False, "global", "blocks"]),
    seed=st.integers(0, 2**64 - 1),
    block_records=st.integers(1, 2**31 - 1),
    window_blocks=st.integers(1, 2**31 - 1),
    data=st.data(),
)
def test_orders_of_ten_billion_records_and_more_are_computed_directly(  # type: ignore[no-untyped-def]
    records, shuffle, seed, block_records, window_blocks, data
) -> None:
    order = epoch_order(
        records, shuffle=shuffle, seed=seed, block_records=block_records, window_blocks=window_blocks
    )
    some = data.draw(st.lists(st.integers(0, records - 1), max_size=5, unique=True))
    positions = np.unique([0, 1, records // 2, records - 2, records - 1, *some])
    image = order.records_at(positions)
    assert image.dtype == np.int64
    assert ((image >= 0) & (image < records)).all()
    assert len(np.unique(image)) == len(positions)
    assert np.array_equal(order.positions_of(image), positions)
    assert np.array_equal(order.records_at(order.positions_of(positions)), positions)


def test_orders_of_version_1_never_change() -> None:
    # A change here makes every saved state and receipt wrong: raise ORDER_VERSION and keep the old order.
    assert ORDER_VERSION == 1
    positions = np.arange(10)
    assert epoch_order(1000, shuffle="global", seed=5).records_at(positions).tolist() == [
        599,
        971,
        324,
        640,
        483,
        62,
        366,
        339,
        170,
        124,
    ]
    assert epoch_order(1000, shuffle="global", seed=5, epoch=1).records_at(positions).tolist() == [
        664,
        968,
        348,
        691,
        994,
        91,
        905,
        767,
        262,
        748,
    ]
    assert epoch_order(100_000, shuffle="blocks", seed=5).records_at(positions).tolist() == [
        48267,
        17892,
        83912,
        20441,
        24792,
        63213,
        11896,
        14949,
        20429,
        18789,
    ]
    small = epoch_order(1000, shuffle="blocks", seed=5, epoch=3, block_records=7, window_blocks=3)
    assert small.records_at(positions).tolist() == [698, 853, 693, 848, 847, 852, 695, 626, 849, 699]
    assert small.records_at(np.arange(990, 1000)).tolist() == [
        184,
        344,
        183,
        347,
        182,
        186,
        187,
        188,
        185,
        346,
    ]


def test_epochs_and_seeds_differ() -> None:
    positions = np.arange(500)
    for shuffle in ("global", "blocks"):
        seen = {
            tuple(epoch_order(500, shuffle=shuffle, seed=s, epoch=e).records_at(positions).tolist())
            for s in range(4)
            for e in range(4)
        }
        assert len(seen) == 16


@given(st.integers(1, 300), st.integers(1, 30), st.integers(1, 5), st.integers(0, 50))
def test_window_runs_are_the_records_of_a_window(records: int, block: int, blocks: int, seed: int) -> None:
    order = BlockOrder(records, seed, 0, block, blocks)
    image = order.records_at(np.arange(records))
    size = order.window_records
    for window in range(order.windows):
        starts, stops = order.window_runs(window)
        assert starts.size <= blocks + 2
        assert (starts < stops).all()
        assert (stops[:-1] < starts[1:]).all()
        held = np.concatenate([np.arange(a, b) for a, b in zip(starts, stops, strict=True)])
        assert np.array_equal(held, np.sort(image[window * size : (window + 1) * size]))


def test_short_block_may_be_at_any_slot() -> None:
    # 10 records in blocks of 4: the block of 2 must not always be last, or "drop" would starve it.
    last = {int(BlockOrder(10, seed, 0, 4, 1).positions_of(9)) // 4 for seed in range(40)}
    assert last == {0, 1, 2}


def test_single_window_shuffles_all_records() -> None:
    image = BlockOrder(1000, 1, 0, 100, 10).records_at(np.arange(1000))
    assert np.abs(np.diff(image)).mean() > 200


def test_scattered_positions_equal_contiguous_ones() -> None:
    order = BlockOrder(100_000, 1, 0)
    image = order.records_at(np.arange(100_000))
    some = np.array([99_999, 3, 50_000])
    assert np.array_equal(order.records_at(some), image[some])


def test_window_larger_than_the_epoch() -> None:
    order = BlockOrder(10, 1, 0, 2**31 - 1, 2**31 - 1)
    assert sorted(order.records_at(range(10)).tolist()) == list(range(10))


def test_orders_are_values() -> None:
    assert epoch_order(5) == SequentialOrder(5)
    assert epoch_order(5, shuffle="global", seed=1, epoch=2) == GlobalOrder(5, 1, 2)
    assert epoch_order(5, shuffle="blocks", seed=1, epoch=2) == BlockOrder(5, 1, 2)
    assert epoch_order(5, shuffle="global", seed=1).records_at([0]) == Permutation(5, 1).forward([0])


@pytest.mark.parametrize(
    "arguments",
    [
        {"records": -1},
        {"records": 5, "shuffle": True},
        {"records": 5, "shuffle": "Global"},
        {"records": 5, "shuffle": None},
        {"records": 5, "shuffle": "global", "seed": -1},
        {"records": 5, "shuffle": "global", "epoch": -1},
        {"records": 5, "shuffle": "blocks", "block_records": 0},
        {"records": 5, "shuffle": "blocks", "window_blocks": 0},
    ],
)
def test_bad_arguments_are_refused(arguments) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PlanError):
        epoch_order(**arguments)


@pytest.mark.parametrize("shuffle", [False, "global", "blocks"])
def test_positions_outside_are_refused(shuffle) -> None:  # type: ignore[no-untyped-def]
    order = epoch_order(5, shuffle=shuffle)
    for ask in (order.records_at, order.positions_of):
        with pytest.raises(PlanError, match=r"has the value 5.*\[0, 5\)"):
            ask([0, 5])


def test_window_out_of_range_is_refused() -> None:
    with pytest.raises(PlanError, match="window must be"):
        BlockOrder(10, 1, 0).window_runs(1)
