"""A training that is killed and resized at random, from beginning to end, at a small size."""

from __future__ import annotations

import re
from typing import Any

import pytest

from benchmarks import plan_scale
from shardkeep.plan import audit
from tests.waiting import PATIENCE_S

SCALE = plan_scale.Scale(shards=300, records=60_000, ranks=24, batch_size=16)


@pytest.mark.parametrize("by_files", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_its_audit_is_clean(by_files: bool, seed: int) -> None:
    receipts, runs = plan_scale.simulated(SCALE, by_files=by_files, seed=seed)
    assert runs > 5
    report = audit(receipts, epochs=[0, 1])
    assert report.ok, report
    assert [epoch.delivered for epoch in report.epochs] == [60_000, 60_000]


@pytest.mark.parametrize("by_files", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_its_audit_is_clean_for_more_records_than_32_bits_count(by_files: bool, seed: int) -> None:
    scale = plan_scale.Scale(shards=7, records=10**13, ranks=5, batch_size=10**9)
    receipts, _ = plan_scale.simulated(scale, by_files=by_files, epochs=1, seed=seed)
    report = audit(receipts, epochs=[0])
    assert report.ok, report
    assert report.epochs[0].delivered == 10**13


@pytest.mark.parametrize("by_files", [False, True])
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("no receipt", "have no receipt"),
        ("a step behind", "made fewer than"),
        ("an older checkpoint", "both delivered positions"),
    ],
)
def test_its_audit_names_a_fault(by_files: bool, fault: Any, said: str) -> None:
    receipts, _ = plan_scale.simulated(SCALE, by_files=by_files, fault=fault)
    report = audit(receipts, epochs=[0, 1])
    assert not report.ok
    (failed,) = (epoch for epoch in report.epochs if not epoch.ok)
    assert said in failed.problems[0]
    assert failed.lost_names or failed.repeated_names


def test_commits_with_a_receipt_are_measured() -> None:
    receipts, _ = plan_scale.simulated(SCALE, epochs=1)
    assert re.fullmatch(
        r"receipt \d{3} bytes, description 1\d,\d{3}; first commit [\d.]+ ms, median [\d.]+",
        plan_scale.committed(receipts[0]),
    )


@pytest.mark.parametrize("work", [plan_scale.plan_by_records, plan_scale.plan_by_files])
def test_a_plan_is_measured_in_a_process_of_its_own(work: Any) -> None:
    seconds, busy, peak = plan_scale.measured(work, SCALE)
    assert 0 < seconds < PATIENCE_S
    assert 0 <= busy < PATIENCE_S
    assert 1 << 20 < peak < 1 << 30
