"""A training that is killed and resized at random, from beginning to end, at a small size."""

from __future__ import annotations

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


def test_each_cost_is_measured() -> None:
    costs = plan_scale.plans(SCALE) | plan_scale.audits(SCALE)
    assert all(0 < costs[name] < PATIENCE_S for name in costs if name.endswith(", s"))
    assert all(0 <= costs[name] < 1_000 for name in costs if name.endswith(", MiB"))
    assert 100 < costs["receipt, bytes"] < 1_000
    assert 10_000 < costs["description of the data, bytes"] < 20_000
