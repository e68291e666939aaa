"""The audit: ok for correct histories only, and fast for the largest.

Covers `shardkeep.plan.proof.damage`, `shardkeep.plan.proof.evidence`, `shardkeep.plan.proof.report` and
`shardkeep.plan.proof.runs`.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.errors import CorruptDataError, PlanError
from shardkeep.plan import Damage, Dataset, EpochPlan, Receipt, Segment, ShardTable, audit, epoch_order
from shardkeep.plan.proof.sealed_json import seal

DATA = Dataset("c0ffee", 100, ("a", "b"), (60, 40))
_ids = iter(range(10**9))


def receipt(rank: int, size: int, *segments: tuple[int, int, int], batch: int = 5, **changes) -> Receipt:  # type: ignore[no-untyped-def]
    made = Receipt(
        id=f"{next(_ids):032x}",
        rank=rank,
        world_size=size,
        batch_size=batch,
        remainder="mask",
        dataset=DATA,
        shuffle=False,
        seed=0,
        segments=tuple(Segment(*s) for s in segments),
    )
    return replace(made, **changes)


def run(size: int, *segments: tuple[int, int, int], batch: int = 5, **changes) -> list[Receipt]:  # type: ignore[no-untyped-def]
    return [receipt(rank, size, *segments, batch=batch, **changes) for rank in range(size)]


# -- honest histories -------------------------------------------------------------------------------


def test_complete_epochs_are_proved() -> None:
    report = audit(run(4, (0, 0, 5), (1, 0, 5)))
    assert report.ok
    assert [e.delivered for e in report.epochs] == [100, 100]
    assert str(report).splitlines() == [
        "epoch 0: ok, 100 of 100 records delivered",
        "epoch 1: ok, 100 of 100 records delivered",
    ]


def test_epoch_resumed_by_another_world_is_proved() -> None:
    assert audit([*run(4, (0, 0, 3)), *run(3, (0, 60, 2), (1, 0, 3), batch=9), *run(1, (1, 81, 4))]).ok


def test_receipts_from_json_are_accepted() -> None:
    assert audit(json.loads(json.dumps([r.to_dict() for r in run(2, (0, 0, 10))]))).ok


def test_longest_receipt_of_a_loader_counts() -> None:
    final = run(2, (0, 0, 10), (1, 0, 10))
    early = [replace(r, segments=(Segment(0, 0, 3),)) for r in final]
    first = [replace(r, segments=()) for r in final]
    for order in ([*early, *final, *first], [*final, *first, *early]):
        report = audit(order)
        assert report.ok
        assert report.receipts == 2
    only = run(2, (0, 0, 10))
    early = [replace(r, segments=(Segment(0, 0, 3),)) for r in only]
    assert audit([*early, *only]).ok
    assert audit([*only, *early]).ok


def test_dropped_positions_are_named_and_not_a_fault() -> None:
    report = audit(run(3, (0, 0, 4), batch=8, remainder="drop"))
    (epoch,) = report.epochs
    assert report.ok
    assert (epoch.delivered, epoch.dropped.first, epoch.lost.records) == (96, ((96, 100),), 0)
    assert "4 dropped" in str(report)


def test_everything_may_be_dropped() -> None:
    report = audit(run(3, (0, 0, 0), batch=50, remainder="drop"))
    assert report.ok
    assert report.epochs[0].dropped.records == 100


def test_positions_are_dropped_only_after_all_steps() -> None:
    report = audit(run(3, (0, 0, 3), batch=8, remainder="drop"))
    assert not report.ok
    assert report.epochs[0].lost.first == ((72, 100),)


def test_more_ranks_than_records() -> None:
    assert audit(run(250, (0, 0, 1))).ok


def test_a_data_set_without_records() -> None:
    assert audit(run(2, (0, 0, 0), dataset=Dataset("nothing", 0))).ok


def test_epoch_without_a_delivered_batch_is_not_a_fault() -> None:
    report = audit(run(2, (0, 0, 10), (1, 0, 0)))
    assert report.ok
    assert [e.epoch for e in report.epochs] == [0]


def test_unfinished_epoch_is_incomplete_unless_other_epochs_are_passed() -> None:
    receipts = run(2, (0, 0, 10), (1, 0, 4))
    report = audit(receipts)
    assert not report.ok
    assert report.epochs[1].under_way
    assert report.epochs[1].lost.first == ((40, 100),)
    assert "epoch 1: incomplete, 40 of 100 records delivered, 60 lost (first: a record 40)" in str(report)
    assert audit(receipts, epochs=[0]).ok


# -- others -----------------------------------------------------------------------------------------


def test_no_receipts_prove_nothing() -> None:
    assert not audit([]).ok
    assert not audit(run(2)).ok
    assert not audit([], epochs=[]).ok
    assert not audit(run(2, (0, 0, 10)), epochs=[]).ok


def test_a_missing_rank_is_named_with_its_records() -> None:
    receipts = run(4, (0, 0, 5))
    del receipts[2]
    report = audit(receipts)
    (epoch,) = report.epochs
    assert not report.ok
    assert epoch.lost.first == ((10, 15), (30, 35), (50, 55), (70, 75), (90, 95))
    assert [str(name) for name in epoch.lost_names] == [f"a record {k}" for k in range(10, 15)]
    assert "rank 2 of 4 have no receipt" in epoch.problems[0]
    assert not epoch.under_way


def test_ranks_with_fewer_steps_are_named() -> None:
    receipts = run(4, (0, 0, 5))
    receipts[1] = replace(receipts[1], segments=(Segment(0, 0, 3),))
    (epoch,) = audit(receipts).epochs
    assert epoch.lost.first == ((65, 70), (85, 90))
    assert "rank 1 made fewer than the 5 steps" in epoch.problems[0]


def test_run_resumed_from_an_older_checkpoint_is_noticed() -> None:
    report = audit([*run(2, (0, 0, 6)), *run(3, (0, 40, 4))])
    (epoch,) = report.epochs
    assert epoch.repeated.first == ((40, 60),)
    assert epoch.lost.records == 0
    assert [str(name) for name in epoch.repeated_names[:2]] == ["a record 40", "a record 41"]
    (problem,) = epoch.problems
    assert "both delivered positions 40 to 59" in problem
    assert "older than the receipts" in problem


def test_two_equal_runs_are_noticed() -> None:
    (epoch,) = audit([*run(2, (0, 0, 10)), *run(2, (0, 0, 2))]).epochs
    assert epoch.repeated.first == ((0, 20),)
    assert "two runs from position 0" in epoch.problems[0]


def test_repeated_step_without_rows_is_noticed() -> None:
    first, second = run(2, (0, 0, 1), dataset=Dataset("one", 1))
    assert audit([first, second]).ok
    assert not audit([first, second, replace(first, id="f" * 32)]).ok


def test_missing_run_is_noticed() -> None:
    report = audit(run(2, (0, 60, 4)))
    assert report.epochs[0].lost.first == ((0, 60),)
    assert not report.epochs[0].under_way


def test_epoch_without_receipts_is_noticed() -> None:
    report = audit(run(2, (2, 0, 10), (5, 0, 10)))
    assert not report.ok
    assert "epoch 0-1, 3-4" in report.problems[0]
    assert audit(run(2, (2, 0, 10)), epochs=[2]).ok
    assert not audit(run(2, (2, 0, 10)), epochs=[1, 2]).ok


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": 1}, "different seeds"),
        ({"shuffle": "global"}, "different shuffles"),
        ({"dataset": replace(DATA, fingerprint="tea")}, "different data sets"),
        ({"order_version": 2}, "different order versions"),
        ({"remainder": "short"}, "remainder='mask' and 'short'"),
        ({"batch_size": 10}, "batch size 10"),
        ({"world_size": 3}, "world size 3"),
    ],
)
def test_receipts_with_different_settings_are_named(changes, words) -> None:  # type: ignore[no-untyped-def]
    receipts = run(2, (0, 0, 10))
    receipts[1] = replace(receipts[1], **changes)
    report = audit(receipts)
    assert not report.ok
    assert words in "\n".join([*report.problems, *report.epochs[0].problems])


def test_block_sizes_matter_only_for_blocks() -> None:
    receipts = run(2, (0, 0, 10))
    assert audit([receipts[0], replace(receipts[1], block_records=7)]).ok
    receipts = run(2, (0, 0, 10), shuffle="blocks")
    assert not audit([receipts[0], replace(receipts[1], block_records=7)]).ok


def test_contradicting_receipts_with_one_id_are_named() -> None:
    receipts = run(2, (0, 0, 10))
    report = audit([*receipts, replace(receipts[0], segments=(Segment(0, 50, 1),))])
    assert "contradict" in report.problems[0]
    report = audit([receipts[0], replace(receipts[1], id=receipts[0].id)])
    assert "rank 0 and rank 1" in report.problems[0]


def test_more_steps_than_possible_are_named() -> None:
    report = audit(run(2, (0, 0, 11)))
    assert "claim more than the 10 possible steps" in report.epochs[0].problems[0]


def test_lost_records_are_named_through_the_shuffle() -> None:
    receipts = run(4, (3, 0, 5), shuffle="global", seed=8)
    (epoch,) = audit(receipts[1:], epochs=[3]).epochs
    records = epoch_order(100, shuffle="global", seed=8, epoch=3).records_at(range(5))
    shard, index = ShardTable(DATA.counts).locate(records)
    assert [(n.record, n.shard, n.index) for n in epoch.lost_names] == [
        (r, DATA.shards[s], i) for r, s, i in zip(records, shard, index, strict=True)
    ]


def test_without_a_shard_table_records_are_global_numbers() -> None:
    receipts = run(4, (0, 0, 5), dataset=Dataset("c0ffee", 100))
    assert str(audit(receipts[1:]).epochs[0].lost_names[0]) == "record 0"
    # One receipt with a table is enough.
    receipts[3] = replace(receipts[3], dataset=DATA)
    assert str(audit(receipts[1:]).epochs[0].lost_names[0]) == "a record 0"


def test_unknown_order_version_is_counted_without_names() -> None:
    report = audit(run(4, (0, 0, 5), order_version=2))
    assert report.ok
    (epoch,) = audit(run(4, (0, 0, 5), order_version=2)[1:]).epochs
    assert epoch.lost.records == 25
    assert epoch.lost_names == ()


def test_number_of_reported_problems_is_limited() -> None:
    receipts = [r for start in range(0, 100, 2) for r in run(2, (0, start, 1))]
    (epoch,) = audit(receipts).epochs
    assert len(epoch.problems) == 8
    assert "more problems" in epoch.problems[-1]


def test_a_malformed_receipt_is_named() -> None:
    with pytest.raises(PlanError, match="receipt 1: receipt has no id"):
        audit([run(1)[0], seal({k: v for k, v in run(1)[0].to_dict().items() if k not in ("id", "crc32c")})])
    with pytest.raises(CorruptDataError, match="receipt 1: the receipt is damaged"):
        audit([run(1)[0], run(1)[0].to_dict() | {"rank": 1}])
    with pytest.raises(PlanError, match=r"epoch must be at least 0, not -1"):
        audit([], epochs=[-1])


def test_report_is_json_serialisable() -> None:
    report = audit(run(4, (0, 0, 5))[1:])
    data = json.loads(json.dumps(report.to_dict()))
    assert data["ok"] is data["epochs"][0]["ok"] is False
    assert data["epochs"][0]["lost"]["records"] == 25
    assert data["epochs"][0]["lost_names"][0] == {"record": 0, "shard": "a", "index": 0}


# -- size -------------------------------------------------------------------------------------------

BIG = Dataset("big", 10**10)


def big(*steps: int) -> list[Receipt]:
    return [
        receipt(rank, 16_384, (0, 0, n), batch=64, dataset=BIG, shuffle="global")
        for rank, n in enumerate(steps)
    ]


@pytest.mark.parametrize("lacking", [(), (5000,), tuple(range(0, 16_384, 512))])
def test_16_384_ranks_and_ten_billion_records(lacking: tuple[int, ...]) -> None:
    steps = EpochPlan(10**10, 0, 16_384, 64, "mask").steps
    receipts = [r for r in big(*[steps] * 16_384) if r.rank not in set(lacking)]
    begin = time.process_time()
    report = audit(receipts)
    assert report.ok is not bool(lacking)
    assert report.epochs[0].lost.records == pytest.approx(10**10 * len(lacking) / 16_384, rel=1e-3)
    assert time.process_time() - begin < 100


@given(st.data())
def test_kills_and_resumes_of_very_long_epochs_are_proved(data: st.DataObject) -> None:
    records = data.draw(st.integers(10**10, 10**12))
    numbers = {"dataset": Dataset("big", records), "shuffle": "global", "seed": 2**64 - 1}
    position, receipts, plans = 0, [], []
    while position < records:
        size = data.draw(st.integers(2, 64))
        batch = data.draw(st.integers(records // (500 * size) + 1, 2**31 - 1))
        plan = EpochPlan(records, position, size, batch, "mask")
        steps = data.draw(st.integers(1, plan.steps)) if len(plans) < 3 else plan.steps
        receipts += run(size, (0, position, steps), batch=batch, **numbers)
        plans += [(plan, steps)] * size
        position = plan.position_after(steps)
    (epoch,) = audit(json.loads(json.dumps([r.to_dict() for r in receipts]))).epochs
    assert epoch.ok
    assert epoch.delivered == records
    chosen = data.draw(st.integers(0, len(receipts) - 1))
    (plan, steps), one = plans[chosen], receipts.pop(chosen)
    report = audit(receipts, epochs=[0])
    starts, stops = plan.rank_spans(0, steps, one.rank)
    assert report.ok is False
    assert report.epochs[0].lost.records == sum((stops - starts).tolist())
    assert report.epochs[0].delivered == records - sum((stops - starts).tolist())


def test_all_ranks_at_different_steps() -> None:
    made = np.random.default_rng(0).integers(90, 110, 16_384).tolist()
    (epoch,) = audit(big(*made)).epochs
    assert epoch.delivered == sum(made) * 64


def test_hostile_numbers_take_little_time_and_memory() -> None:
    segments = [(2**60, 0, 2**60), (0, 2**59, 1)]
    report = audit([receipt(0, 2**20, *segments, batch=2**31 - 1, dataset=Dataset("x", 2**60))])
    assert not report.ok
    many = [(k, 0, 1) for k in range(100)]
    with pytest.raises(PlanError, match="104857600 ranks"):
        audit([receipt(0, 2**20, *many, dataset=Dataset("x", 2**60))])


# -- any history ------------------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> tuple[range, list[Receipt]]:
    """Return epochs, and the receipts of runs that were killed at any step and resumed at any size."""
    counts = draw(st.lists(st.integers(0, 25), min_size=1, max_size=6))
    records = sum(counts)
    shuffle = draw(st.sampled_from([False, "global", "blocks"]))
    data = Dataset("any", records, tuple(f"s{k}" for k in range(len(counts))), tuple(counts))
    fixed = {
        "dataset": data,
        "shuffle": shuffle,
        "seed": draw(st.integers(0, 2**64 - 1)),
        "block_records": draw(st.integers(1, 9)),
        "window_blocks": draw(st.integers(1, 3)),
        "remainder": draw(st.sampled_from(["mask", "short", "drop"])),
    }
    last_epoch = draw(st.integers(0, 1))
    epoch = position = 0
    receipts: list[Receipt] = []
    while epoch <= last_epoch:
        size, batch = draw(st.integers(1, 7)), draw(st.integers(1, 9))
        life = draw(st.integers(1, 8)) if len(receipts) < 20 else 10**6
        segments: list[tuple[int, int, int]] = []
        while epoch <= last_epoch and life > 0:
            plan = EpochPlan(records, position, size, batch, fixed["remainder"])
            steps = min(life, plan.steps)
            segments.append((epoch, position, steps))
            life -= steps
            if steps < plan.steps:
                position = plan.position_after(steps)
            else:
                epoch, position = epoch + 1, 0
        receipts += run(size, *segments, batch=batch, **fixed)
    return range(last_epoch + 1), receipts


def delivered(receipts: list[Receipt]) -> dict[int, list[int]]:
    """Replay the receipts one record at a time."""
    seen: dict[int, list[int]] = {}
    for r in receipts:
        for s in r.segments:
            plan = EpochPlan(r.dataset.records, s.start, r.world_size, r.batch_size, r.remainder)
            order = epoch_order(
                r.dataset.records,
                shuffle=r.shuffle,
                seed=r.seed,
                epoch=s.epoch,
                block_records=r.block_records,
                window_blocks=r.window_blocks,
            )
            starts, stops = plan.rank_spans(0, s.steps, r.rank)
            for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
                seen.setdefault(s.epoch, []).extend(order.records_at(np.arange(start, stop)).tolist())
    return seen


@given(histories())
def test_kills_and_resumes_at_any_point_are_proved(
    history: tuple[range, list[Receipt]],
) -> None:
    epochs, receipts = history
    total = receipts[0].dataset.records
    assert audit(receipts, epochs=epochs).ok
    report = audit(receipts)
    assert report.ok, str(report)
    assert [epoch.epoch for epoch in report.epochs] == list(epochs)
    for epoch in report.epochs:
        records = sorted(delivered(receipts).get(epoch.epoch, []))
        assert len(records) == len(set(records)) == epoch.delivered
        if receipts[0].remainder == "drop":
            assert epoch.delivered + epoch.dropped.records == total
        else:
            assert records == list(range(total))


@given(histories(), st.data())
def test_edited_history_is_never_ok(history: tuple[range, list[Receipt]], data: st.DataObject) -> None:
    epochs, receipts = history
    working = [(i, k) for i, r in enumerate(receipts) for k, s in enumerate(r.segments) if s.steps > 0]
    if not working:
        return
    i, k = data.draw(st.sampled_from(working))
    one = receipts[i]
    segments = list(one.segments)
    ways = ["shorten", "duplicate", "remove segment", "remove rank"]
    if one.remainder != "drop":
        # Under "drop" a longer segment may be just what another history would have left.
        ways.append("lengthen")
    match data.draw(st.sampled_from(ways)):
        case "shorten":
            segments[k] = replace(segments[k], steps=data.draw(st.integers(0, segments[k].steps - 1)))
        case "lengthen":
            segments[k] = replace(segments[k], steps=segments[k].steps + data.draw(st.integers(1, 3)))
        case "duplicate":
            segments.insert(k, segments[k])
        case "remove segment":
            del segments[k]
        case "remove rank":
            assert not audit([*receipts[:i], *receipts[i + 1 :]], epochs=epochs).ok
            return
    changed = replace(one, segments=tuple(segments))
    assert not audit([*receipts[:i], changed, *receipts[i + 1 :]], epochs=epochs).ok


# -- damaged records ----------------------------------------------------------------------------------


def test_skipped_records_are_reported() -> None:
    receipts = run(4, (0, 0, 5), (1, 0, 5))
    receipts[1] = replace(
        receipts[1],
        damage=(Damage(0, 61, 200, 300, False), Damage(0, 7, 100, 200, False), Damage(1, 7, 100, 200, True)),
    )
    report = audit(receipts)
    assert not report.ok
    first, second = report.epochs
    assert (first.ok, first.delivered, first.lost.records, first.problems) == (False, 98, 0, ())
    assert [str(one) for one in first.skipped] == ["a record 7 (bytes 100-200)", "b record 1 (bytes 200-300)"]
    assert (second.ok, second.delivered, len(second.repaired)) == (True, 100, 1)
    assert str(report).splitlines() == [
        "epoch 0: FAILED, 98 of 100 records delivered, 2 skipped as damaged (first: a record 7"
        " (bytes 100-200))",
        "epoch 1: ok, 100 of 100 records delivered, 1 repaired (first: a record 7 (bytes 100-200))",
    ]
    data = json.loads(json.dumps(report.to_dict()))["epochs"][0]
    assert data["skipped"][1] == {
        "name": {"record": 61, "shard": "b", "index": 1},
        "start_bytes": 200,
        "stop_bytes": 300,
    }
    assert audit(receipts, epochs=[1]).ok


def test_skipped_records_without_a_table_of_shards_are_global_numbers() -> None:
    one = receipt(0, 1, (0, 0, 20), dataset=Dataset("x", 100), damage=(Damage(0, 7, 100, 200, False),))
    assert str(audit([one]).epochs[0].skipped[0]) == "record 7 (bytes 100-200)"


def test_later_receipt_has_the_damage_of_the_earlier_one() -> None:
    early = receipt(0, 1, (0, 0, 10), damage=(Damage(0, 7, 100, 200, True),))
    late = replace(early, segments=(Segment(0, 0, 20),), damage=(*early.damage, Damage(0, 70, 1, 2, True)))
    assert audit([late, early]).ok
    assert len(audit([early, late]).epochs[0].repaired) == 2
    forgetful = replace(late, damage=())
    assert "contradict" in audit([early, forgetful]).problems[0]


# -- asynchronous ranks -----------------------------------------------------------------------------


def test_ranks_that_resumed_at_their_own_steps_are_proved() -> None:
    # Rank 1 was killed after 4 of 10 steps and after 7, rank 0 after 5.
    lives = [(0, 0, 5), (1, 0, 4), (1, 40, 3), (0, 50, 5), (1, 70, 3)]
    receipts = [receipt(rank, 2, (0, start, steps)) for rank, start, steps in lives]
    report = audit(receipts)
    assert report.ok, report
    assert report.epochs[0].delivered == 100
    for lacking in range(len(receipts)):
        assert not audit([*receipts[:lacking], *receipts[lacking + 1 :]]).ok
    assert not audit([*receipts, receipt(1, 2, (0, 70, 1))]).ok
    late = [receipt(1, 2, (0, 60, 4)) if r.segments[0].start == 70 else r for r in receipts]
    assert not audit(late).ok


def test_a_rank_that_resumed_alone_drops_the_remainder_once() -> None:
    changes = {"remainder": "drop", "batch": 15}
    lives = [(0, 0, 3), (1, 0, 1), (1, 30, 2)]
    report = audit([receipt(rank, 2, (0, start, steps), **changes) for rank, start, steps in lives])
    assert report.ok, report
    assert report.epochs[0].dropped.records == 10


def test_steps_without_rows_of_a_rank_that_resumed_alone_count() -> None:
    one = {"dataset": Dataset("eleven", 11)}  # of three steps, rank 1 has no rows in the last one
    lives = [(0, 0, 2), (1, 0, 1), (1, 10, 1)]
    receipts = [receipt(rank, 2, (0, start, steps), **one) for rank, start, steps in lives]
    assert audit(receipts).ok
    assert not audit(receipts[:2]).ok


def test_asynchronous_ranks_in_mid_epoch_are_not_proved() -> None:
    receipts = [receipt(0, 2, (0, 0, 10), (1, 0, 6)), receipt(1, 2, (0, 0, 10), (1, 0, 2))]
    report = audit(receipts)
    assert not report.ok
    assert "when all have finished the epoch" in report.epochs[1].problems[0]
    assert audit(receipts, epochs=[0]).ok


@st.composite
def asynchronous_histories(draw: st.DrawFn) -> list[Receipt]:
    """Return the receipts of ranks that each were killed and resumed at any of their own steps."""
    records, size, batch = draw(st.integers(1, 90)), draw(st.integers(2, 4)), draw(st.integers(1, 4))
    remainder = draw(st.sampled_from(["mask", "short", "drop"]))
    data = Dataset("any", records, ("a",), (records,))
    receipts = []
    for rank in range(size):
        position = 0
        while position < records:
            plan = EpochPlan(records, position, size, batch, remainder)
            steps = min(draw(st.integers(1, 6)), plan.steps)
            receipts.append(
                receipt(rank, size, (0, position, steps), batch=batch, dataset=data, remainder=remainder)
            )
            position = plan.position_after(steps) if steps < plan.steps else records
    return receipts


@given(asynchronous_histories(), st.data())
def test_ranks_that_resume_alone_at_any_step_are_proved(receipts: list[Receipt], data: st.DataObject) -> None:
    assert audit(receipts).ok, audit(receipts)
    seen = sorted(delivered(receipts).get(0, []))
    assert len(seen) == len(set(seen)) == audit(receipts).epochs[0].delivered
    i = data.draw(st.integers(0, len(receipts) - 1))
    (segment,) = receipts[i].segments
    if segment.steps:
        steps = data.draw(st.integers(0, segment.steps - 1))
        changed = replace(receipts[i], segments=(replace(segment, steps=steps),))
        assert not audit([*receipts[:i], changed, *receipts[i + 1 :]], epochs=[0]).ok
