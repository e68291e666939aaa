"""Passes over a loader, without a framework."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import shardkeep as sk
from shardkeep.adapters.passes import Passes, checked_loader


def make_passes(folder: Path, epochs: int | None = 1) -> Passes:
    with sk.tfrecord.Writer(folder / "x.tfrecord") as w:
        for number in range(6):
            w.write_example({"x": number})
    return Passes(sk.Loader(w.path, {"x": sk.FixedLen()}, 2, sk.World(0, 1), epochs=epochs))


def use(passes: Passes, batches: int) -> int:
    """Use so many batches of a new pass, and return its number."""
    number = passes.begin()
    for _, (_, place) in zip(range(batches), passes.loader.read_ahead(), strict=False):
        passes.consume(number, place)
    return number


@pytest.mark.parametrize(
    ("epochs", "batches", "begins_at"),
    [(1, 2, (0, 0)), (1, 3, (1, 0)), (2, 4, (0, 0)), (2, 6, (2, 0)), (None, 4, (1, 0)), (None, 6, (2, 0))],
)
def test_a_pass_that_was_left_begins_again_within_its_run(
    tmp_path: Path, epochs: int | None, batches: int, begins_at: tuple[int, int]
) -> None:
    passes = make_passes(tmp_path, epochs)
    use(passes, batches)
    passes.begin()
    assert (passes.loader.epoch, passes.loader.position) == begins_at


def test_a_loader_that_was_moved_stays_where_it_is(tmp_path: Path) -> None:
    passes = make_passes(tmp_path)
    use(passes, 2)
    passes.loader.set_epoch(3)
    passes.begin()
    assert passes.loader.epoch == 3


def test_a_state_counts_as_the_beginning_of_the_pass(tmp_path: Path) -> None:
    passes = make_passes(tmp_path)
    use(passes, 1)
    passes.load_state_dict(passes.loader.state_dict())
    use(passes, 1)
    passes.begin()
    assert passes.loader.position == 2


def test_an_earlier_pass_is_over(tmp_path: Path) -> None:
    passes = make_passes(tmp_path)
    number = use(passes, 1)
    passes = pickle.loads(pickle.dumps(passes))
    passes.begin()
    with pytest.raises(sk.PlanError, match="this iterator is over"):
        passes.consume(number, next(passes.loader.read_ahead())[1])


def test_another_object_than_a_loader_is_refused() -> None:
    with pytest.raises(sk.PlanError, match=r"must be a shardkeep\.Loader, not list"):
        checked_loader([])
