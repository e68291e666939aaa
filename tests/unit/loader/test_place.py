from __future__ import annotations

import copy
import pickle
import sys
from types import FrameType
from typing import Any

import pytest

from shardkeep import plan
from shardkeep.errors import PlanError
from shardkeep.loader import Loader, iterator
from shardkeep.loader.place import Place
from shardkeep.plan import Segment
from shardkeep.plan.division import Leg
from shardkeep.tfrecord import FixedLen
from shardkeep.world import World

X = {"x": FixedLen()}


def audit(*loaders: Loader, epochs: list[int]) -> plan.AuditReport:
    return plan.audit([plan.Receipt.from_dict(one.receipt()) for one in loaders], epochs=epochs)


def test_a_place_is_taken_up_where_its_stretch_began() -> None:
    place = Place(0, 6)
    assert place.stretch == Segment(0, 6, 0)
    place = place.after_step(place.stretch, 10).after_step(place.stretch, 14)
    assert (place.epoch, place.position, place.stretch) == (0, 14, Segment(0, 6, 2))
    assert place.segments == (Segment(0, 6, 2),)
    place = place.after_step(Segment(1, 0, 0), 4)
    assert place.segments == (Segment(0, 6, 2), Segment(1, 0, 1))
    assert place.afresh(()) == Place(1, 4)


def test_a_history_belongs_to_the_epoch_it_was_given_for() -> None:
    place = Place(0, 6, (Leg(1, 3, 16, 2),))
    assert place.stretch == Segment(0, 6, 0, place.history)
    place = place.after_step(place.stretch, 9)
    assert place.stretch == Segment(0, 6, 1, (Leg(1, 3, 16, 2),))
    assert place.after_epochs(1).stretch == Segment(1, 0, 0)
    passed = Place(0, 6, (Leg(1, 3, 16, 2),)).after_step(Segment(1, 0, 0), 3)
    assert passed.segments == (Segment(0, 6, 0, (Leg(1, 3, 16, 2),)), Segment(1, 0, 1))


def test_epochs_without_a_step_are_noted() -> None:
    later = Segment(2, 0, 0)
    assert Place(0, 6).after_step(later, 4).segments == (Segment(0, 6, 0), Segment(1, 0, 0), Segment(2, 0, 1))
    done = Place().after_step(Segment(0, 0, 0), 4).after_epochs(2)
    assert (done.epoch, done.position, done.segments) == (2, 0, (Segment(0, 0, 1), Segment(1, 0, 0)))


def test_a_rank_that_peeked_agrees_with_the_others(shards: Any) -> None:
    paths = shards([40])
    loaders = [Loader(paths, X, 4, World(rank, 2)) for rank in range(2)]
    rows = next(iter(loaders[0]))["x"].tolist()
    assert len(loaders[0]) == 4
    for loader in loaders:
        rows += [x for batch in loader for x in batch["x"].tolist()]
    assert sorted(rows) == list(range(40))
    assert audit(*loaders, epochs=[0]).ok


@pytest.mark.parametrize("duplicate", [copy.copy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_that_deliver_the_same_are_found_out(duplicate: Any, shards: Any) -> None:
    original = Loader(shards([40]), X, 4, World())
    twins = [duplicate(original), duplicate(original)]
    for twin in twins:
        list(twin)
    assert not audit(*twins, epochs=[0]).ok
    assert audit(twins[0], epochs=[0]).ok


def test_a_copy_in_mid_epoch_and_its_original_are_one_history(shards: Any) -> None:
    original = Loader(shards([40]), X, 4, World())
    batches = iter(original)
    next(batches), next(batches)
    rest = pickle.loads(pickle.dumps(original))
    list(rest)
    assert audit(original, rest, epochs=[0]).ok
    list(batches)
    assert not audit(original, rest, epochs=[0]).ok


def test_what_is_dropped_before_another_epoch_is_accounted_for(shards: Any) -> None:
    paths = shards([10])
    first = Loader(paths, X, 3, World(0, 2), remainder="drop", epochs=2)
    other = Loader(paths, X, 3, World(1, 2), remainder="drop", epochs=2)
    for loader in (first, other):
        next(iter(loader))
    later = Loader(paths, X, 8, World(), remainder="drop", epochs=2)
    later.load_state_dict(first.state_dict())
    for _ in later:
        break
    report = audit(first, other, later, epochs=[0])
    assert report.ok, report


def test_no_step_at_all_does_not_go_on_for_ever(shards: Any) -> None:
    for counts, remainder in (([0], "mask"), ([3], "drop")):
        with pytest.raises(PlanError, match="never end"):
            iter(Loader(shards(counts), X, 4, World(), remainder=remainder, epochs=None))


class _Interruption:
    """Raises at the n-th line that runs in the iterator, as a signal handler may."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != iterator.__file__:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


@pytest.mark.parametrize("at", range(1, 80, 3))
def test_interrupted_at_any_line_nothing_is_lost_or_mixed_up(at: int, shards: Any) -> None:
    loader = Loader(shards([20, 20]), X, 4, World(), "global", with_ids=True)
    batches = iter(loader)
    rows = next(batches)["x"].tolist()
    interruption = _Interruption(at)
    before = loader.position
    sys.settrace(interruption)
    try:
        for batch in batches:
            before = loader.position
            rows += batch["x"].tolist()
    except KeyboardInterrupt:
        sys.settrace(None)
        # Raised behind the one assignment, it takes the batch in hand with it; the loader says so.
        lost = loader.position - before
        assert lost in (0, 4)
        for batch in batches:
            assert (batch["shard"] * 20 + batch["index"]).tolist() == batch["x"].tolist()
            rows += batch["x"].tolist()
        assert len(rows) == len(set(rows)) == 40 - lost
    else:
        pytest.fail("not interrupted")
    finally:
        sys.settrace(None)
