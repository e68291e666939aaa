"""The measurement of merges of many ranks runs."""

from __future__ import annotations

from benchmarks.merge_many import measured
from tests.waiting import PATIENCE_S


def test_each_command_has_a_time_and_a_peak_of_memory() -> None:
    found = measured(6, 2)
    assert list(found) == ["copy", "virtual", "verify"]
    assert all(0 < seconds < PATIENCE_S and 1 << 20 < peak < 1 << 30 for seconds, peak in found.values())
