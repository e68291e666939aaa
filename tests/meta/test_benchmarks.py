"""Every benchmark runs, on tiny input."""

from __future__ import annotations

import pytest

from benchmarks.comparison import find as find_comparisons
from benchmarks.harness import Benchmark, find, machine, measure

ALL = dict(find())


@pytest.mark.parametrize("name", ALL)
def test_it_runs(name: str) -> None:
    benchmark: Benchmark = ALL[name]
    result = measure(name, benchmark, quick=True)
    assert result.items_per_s > 0
    assert result.payload_bytes_per_s > result.items_per_s


def test_they_are_found() -> None:
    assert {name.partition(".")[0] for name in ALL} == {"hdf5", "loader", "tfrecord"}
    assert list(dict(find("merge"))) == ["hdf5.merge"]


def test_the_machine_is_told() -> None:
    assert machine()["cores"] >= 1


def test_the_comparisons_are_found() -> None:
    found = list(find_comparisons())
    assert {"images", "loader", "tfrecord"} <= {subject for subject, _ in found}
    assert len({comparison.name for _, comparison in found}) == len(found)
    assert all(comparison.wanted > 0 for _, comparison in found)
    assert {subject for subject, _ in find_comparisons("tfrecord")} == {"tfrecord"}
