from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from shardkeep.demo.data import Packed
from shardkeep.demo.messages import Contribution
from shardkeep.demo.page.timeline import build_timeline
from shardkeep.demo.proof import Results
from shardkeep.demo.report import Death, DemoReport
from shardkeep.demo.train import StepExecution, Training
from shardkeep.demo.worker import LOSS_ROW, PREDICTION_ROW

PACKED = Packed(
    train=(Path("a"), Path("b")),
    held_out=(),
    labels=(np.zeros(3, np.int64), np.zeros(5, np.int64)),
    held_out_records=0,
    size_bytes=0,
)


def part(step: int, shard: list[int], index: list[int]) -> Contribution:
    return Contribution(step, 0, 2.0 * len(shard), np.empty(0), np.array(shard), np.array(index), 0)


def report(*deaths: Death) -> DemoReport:
    return DemoReport(
        output="out",
        seed=0,
        workers=2,
        epochs=1,
        batch_size=1,
        records=8,
        held_out_records=2,
        size_bytes=1,
        shard_records=PACKED.counts,
        steps=2,
        lost_steps=1,
        images_per_second=1.0,
        seconds=1.0,
        peak_open_files=5,
        open_files_limit=1024,
        accuracy=0.9,
        rows_merged=3,
        deaths=deaths,
        uses=(),
        audit={},
        checks=(),
    )


def test_repeated_step_has_two_slots_and_its_kept_rows_are_in_the_second() -> None:
    death = Death(
        rank=1, pid=9, step=2, moment="computing", resumed_step=1, workers_before=2, workers_after=1,
        lost_steps=1, lost_rows=2,
    )  # fmt: skip
    training = Training(
        executions=[
            StepExecution(1, 0, 2, {0: part(1, [0], [1]), 1: part(1, [1], [0])}),
            StepExecution(2, 0, 2, {0: part(2, [1], [2]), 1: part(2, [1], [4])}, lost=True),
            StepExecution(2, 0, 1, {0: part(2, [1], [2])}),
        ],
        deaths=[death],
    )
    predictions = np.zeros(3, PREDICTION_ROW)
    predictions["step"] = [1, 1, 2]
    predictions["rank"] = [0, 1, 0]
    predictions["shard"] = [0, 1, 1]
    predictions["index"] = [1, 0, 2]
    losses = np.zeros(3, LOSS_ROW)
    losses["step"], losses["rows"], losses["loss"] = [1, 1, 2], [1, 3, 1], [1.0, 2.0, 0.5]

    timeline = build_timeline(training, Results(predictions, losses), PACKED, report(death))
    assert [(step.step, step.lost, step.world_size) for step in timeline.steps] == [
        (1, False, 2), (2, True, 2), (2, False, 1),
    ]  # fmt: skip
    assert [step.loss for step in timeline.steps] == [1.75, 2.0, 0.5]
    assert timeline.ranks == 2
    (counts,) = timeline.epochs
    assert counts.kept.tolist() == [0, 1, 0, 1, 0, 1, 0, 0]
    assert counts.lost.tolist() == [0, 0, 0, 0, 0, 1, 0, 1]
    assert [(restart.slot, restart.death) for restart in timeline.restarts] == [(2, death)]
    drawn = {
        (reads.rank, reads.lost): list(zip(reads.slots.tolist(), reads.records.tolist(), strict=True))
        for reads in timeline.reads
    }
    assert drawn == {
        (0, True): [(1, 5)],
        (1, True): [(1, 7)],
        (0, False): [(0, 1), (2, 5)],
        (1, False): [(0, 3)],
    }


def test_two_kills_in_the_same_step_are_two_restarts() -> None:
    def death(before: int) -> Death:
        return Death(0, 9, 1, "computing", 0, before, before - 1, 1, 1)

    training = Training(
        executions=[
            StepExecution(1, 0, 3, {0: part(1, [0], [0])}, lost=True),
            StepExecution(1, 0, 2, {0: part(1, [0], [0])}, lost=True),
            StepExecution(1, 0, 1, {0: part(1, [0], [0])}),
        ]
    )
    empty = Results(np.zeros(0, PREDICTION_ROW), np.zeros(0, LOSS_ROW))
    timeline = build_timeline(training, empty, PACKED, report(death(3), death(2)))
    assert [restart.slot for restart in timeline.restarts] == [1, 2]
    assert math.isnan(timeline.steps[2].loss), "no row of the step is in the results"


def test_rows_that_cannot_be_drawn_are_left_out() -> None:
    predictions = np.zeros(3, PREDICTION_ROW)
    predictions["step"] = [1, 99, 1]
    predictions["shard"] = [0, 0, 7]
    timeline = build_timeline(
        Training(executions=[StepExecution(1, 0, 1, {})]),
        Results(predictions, np.zeros(0, LOSS_ROW)),
        PACKED,
        report(),
    )
    assert [len(reads.slots) for reads in timeline.reads] == [1]


def test_row_of_a_lost_step_is_not_drawn_as_kept() -> None:
    predictions = np.zeros(1, PREDICTION_ROW)
    predictions["step"] = 1
    results = Results(predictions, np.zeros(0, LOSS_ROW))
    assert (
        build_timeline(
            Training(executions=[StepExecution(1, 0, 1, {}, lost=True)]), results, PACKED, report()
        ).reads
        == ()
    )
