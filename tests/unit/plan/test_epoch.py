"""The steps of an epoch: each position once, and equal steps on every rank.

Covers `shardkeep.plan.checks`.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.errors import PlanError
from shardkeep.plan import EpochPlan, steps_per_epoch

PLANS = st.integers(0, 300).flatmap(
    lambda records: st.builds(
        EpochPlan,
        st.just(records),
        st.integers(0, records),
        st.integers(1, 20),
        st.integers(1, 20),
        st.sampled_from(["mask", "drop", "short"]),
    )
)


@given(PLANS)
def test_each_position_goes_to_one_rank_at_one_step(plan: EpochPlan) -> None:
    seen: list[int] = []
    for step in range(plan.steps):
        start, stop = plan.span(step)
        assert start == plan.start + len(seen)
        of_ranks = [plan.rank_span(step, rank) for rank in range(plan.world_size)]
        assert list(zip(*(edges.tolist() for edges in plan.step_spans(step)), strict=True)) == of_ranks
        for a, b in of_ranks:
            assert 0 <= b - a <= plan.batch_size
            seen.extend(range(a, b))
        assert of_ranks[0][0] == start
        assert of_ranks[-1][1] == stop
        # The last step is shared as evenly as can be.
        rows = [b - a for a, b in of_ranks]
        assert max(rows) - min(rows) <= 1
    first, last = plan.dropped
    assert seen == list(range(plan.start, first))
    assert last == plan.records
    assert last - first < plan.global_batch if plan.remainder == "drop" else first == last
    assert plan.position_after(plan.steps) == first


@given(PLANS, st.data())
def test_spans_of_many_steps_equal_those_of_each(plan: EpochPlan, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, plan.steps))
    last = data.draw(st.integers(first, plan.steps))
    rank = data.draw(st.integers(0, plan.world_size - 1))
    starts, stops = plan.rank_spans(first, last, rank)
    assert starts.dtype == stops.dtype == np.int64
    expected = [plan.rank_span(step, rank) for step in range(first, last)]
    assert list(zip(starts.tolist(), stops.tolist(), strict=True)) == expected


@given(PLANS, st.data())
def test_resumed_run_continues_where_the_other_stopped(plan: EpochPlan, data: st.DataObject) -> None:
    made = data.draw(st.integers(0, plan.steps))
    later = EpochPlan(
        plan.records, plan.position_after(made), plan.world_size, plan.batch_size, plan.remainder
    )
    assert later.steps == plan.steps - made
    assert [later.span(s) for s in range(later.steps)] == [plan.span(s) for s in range(made, plan.steps)]


@pytest.mark.parametrize(
    ("arguments", "steps", "dropped"),
    [
        ((0, 0, 4, 8, "mask"), 0, (0, 0)),
        ((10, 10, 4, 8, "mask"), 0, (10, 10)),
        ((3, 0, 16, 8, "short"), 1, (3, 3)),
        ((3, 0, 16, 8, "drop"), 0, (0, 3)),
        ((64, 0, 4, 8, "drop"), 2, (64, 64)),
        ((70, 1, 4, 8, "drop"), 2, (65, 70)),
        ((10**10, 0, 16_384, 64, "mask"), 9537, (10**10, 10**10)),
    ],
)
def test_steps_and_dropped_positions_of_known_plans(arguments, steps, dropped) -> None:  # type: ignore[no-untyped-def]
    plan = EpochPlan(*arguments)
    assert (plan.steps, plan.dropped) == (steps, dropped)
    records, start, world, batch, remainder = arguments
    assert steps == steps_per_epoch(
        records, world_size=world, batch_size=batch, remainder=remainder, start=start
    )


def test_some_ranks_get_nothing_if_there_are_more_ranks_than_records() -> None:
    plan = EpochPlan(3, 0, 5, 2, "mask")
    assert [plan.rank_span(0, rank) for rank in range(5)] == [(0, 0), (0, 1), (1, 1), (1, 2), (2, 3)]


@given(st.integers(10**10, 2**60), st.integers(1, 2**12), st.integers(1, 2**31 - 1), st.data())
def test_the_ranks_share_each_step_of_a_very_long_epoch(
    records: int, world: int, batch: int, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, records))
    plan = EpochPlan(records, start, world, batch, "mask")
    assert plan.steps == -(-(records - start) // (world * batch))
    for step in {0, plan.steps // 2, plan.steps - 1} if plan.steps else ():
        first, last = start + step * world * batch, min(start + (step + 1) * world * batch, records)
        starts, stops = plan.step_spans(step)
        assert (starts[0], stops[-1]) == (first, last) == plan.span(step)
        assert np.array_equal(starts[1:], stops[:-1])
        assert np.ptp(stops - starts) <= 1
        rank = data.draw(st.integers(0, world - 1))
        expected = int(starts[rank]), int(stops[rank])
        assert expected == plan.rank_span(step, rank)
        assert expected == tuple(int(edge[-1]) for edge in plan.rank_spans(max(step - 1, 0), step + 1, rank))
        assert plan.positions_after(step, step + 1) == [last]


def test_the_largest_numbers_do_not_overflow() -> None:
    plan = EpochPlan(2**60, 1, 2**20, 2**31 - 1, "mask")
    starts, stops = plan.rank_spans(plan.steps - 2, plan.steps, 2**20 - 1)
    assert stops[-1] == 2**60
    assert (starts < stops).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((-1, 0, 1, 1, "mask"), "records"),
        ((10, 11, 1, 1, "mask"), "start"),
        ((10, 0, 0, 1, "mask"), "world_size"),
        ((10, 0, 2**20 + 1, 1, "mask"), "world_size"),
        ((10, 0, 1, 0, "mask"), "batch_size"),
        ((10, 0, 1, 1.5, "mask"), "batch_size"),
        ((10, 0, 1, 1, "pad"), "remainder"),
    ],
)
def test_bad_arguments_are_refused(arguments, words) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PlanError, match=words):
        EpochPlan(*arguments)


@pytest.mark.parametrize(
    "ask",
    [
        lambda plan: plan.span(2),
        lambda plan: plan.span(-1),
        lambda plan: plan.rank_span(0, 2),
        lambda plan: plan.rank_spans(1, 0, 0),
        lambda plan: plan.rank_spans(0, 3, 0),
        lambda plan: plan.rank_spans(0, 1, -1),
        lambda plan: plan.position_after(3),
    ],
)
def test_steps_and_ranks_outside_are_refused(ask) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PlanError):
        ask(EpochPlan(10, 0, 2, 3, "mask"))


def test_numpy_integers_become_ints() -> None:
    plan = EpochPlan(np.int64(10), np.int32(0), np.uint8(2), np.int64(3), "mask")  # type: ignore[arg-type]
    assert type(plan.records) is int
    assert plan == EpochPlan(10, 0, 2, 3, "mask")
    assert hash(plan) == hash(EpochPlan(10, 0, 2, 3, "mask"))


@given(PLANS, st.data())
def test_the_rank_of_each_position_is_that_which_delivered_it(plan: EpochPlan, data: st.DataObject) -> None:
    steps = np.array([data.draw(st.integers(0, plan.steps)) for _ in range(plan.world_size)])
    expected = np.full(plan.records, -1)
    for rank, made in enumerate(steps.tolist()):
        expected[plan.reads_between(0, made, rank)[0]] = rank
    assert plan.ranks_of(np.arange(plan.records), steps).tolist() == expected.tolist()
