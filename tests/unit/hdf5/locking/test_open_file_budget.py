from __future__ import annotations

import pytest

from shardkeep.errors import PlanError
from shardkeep.hdf5.locking import open_file_budget as module
from shardkeep.hdf5.locking.open_file_budget import CACHE_VARIABLE, OpenFileBudget, max_cache_bytes


class File:
    """A file that notes when the budget closes it."""

    def __init__(self, budget: OpenFileBudget, name: str, *, used: bool = False, pins: int = 0) -> None:
        self.budget, self.name, self.used, self.pins, self.cache_bytes = budget, name, used, pins, 0
        self.is_open = True
        budget.add(self)

    def suspend(self) -> None:
        self.is_open = False
        self.budget.remove(self)
        self.cache_bytes = 0


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> OpenFileBudget:
    monkeypatch.setattr(module, "max_open_files", lambda: 3)
    return OpenFileBudget()


def test_unused_file_is_closed_before_used_ones(budget: OpenFileBudget) -> None:
    files = [File(budget, "a", used=True), File(budget, "b"), File(budget, "c", used=True)]
    budget.make_room()
    assert [one.name for one in files if one.is_open] == ["a", "c"]
    budget.make_room()
    assert len(budget) == 2


def test_oldest_file_is_closed_if_all_were_used(budget: OpenFileBudget) -> None:
    files = [File(budget, name, used=True) for name in "abc"]
    budget.make_room()
    assert [one.name for one in files if one.is_open] == ["b", "c"]


def test_pinned_files_stay_open(budget: OpenFileBudget) -> None:
    files = [File(budget, name, pins=1) for name in "abc"]
    budget.make_room()
    assert not budget.close_all()
    assert all(one.is_open for one in files)


def test_cache_of_a_new_dataset_closes_other_files(
    budget: OpenFileBudget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, "100")
    first, second = File(budget, "a"), File(budget, "b")
    budget.add_cache(first, 80)
    budget.add_cache(second, 80)
    assert (first.is_open, second.is_open, budget.cache_bytes) == (False, True, 80)
    budget.add_cache(second, 80)  # a single file may exceed the budget
    assert second.is_open


def test_files_that_were_dropped_are_forgotten(budget: OpenFileBudget) -> None:
    for name in "abc":
        File(budget, name)
    budget.make_room()
    assert len(budget) < 3


def test_cache_variable_must_be_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, "1 MiB")
    with pytest.raises(PlanError, match="'1 MiB' is not a whole number of bytes"):
        max_cache_bytes()


def test_empty_cache_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    default = max_cache_bytes()
    monkeypatch.setenv(CACHE_VARIABLE, "")
    assert max_cache_bytes() == default
