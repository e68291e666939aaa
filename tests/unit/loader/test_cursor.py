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
from shardkeep.loader.cursor import Progress
from shardkeep.plan import Segment
from shardkeep.plan.file_assignment import HistoryEntry
from shardkeep.tfrecord import FixedLen
from shardkeep.world import World

X = {"x": FixedLen()}


def audit(*loaders: Loader, epochs: list[int]) -> plan.AuditReport:
    return plan.audit([plan.Receipt.from_dict(one.receipt()) for one in loaders], epochs=epochs)


def test_steps_extend_the_current_segment() -> None:
    progress = Progress(0, 6)
    assert progress.segment == Segment(0, 6, 0)
    progress = progress.after_step(progress.segment, 10).after_step(progress.segment, 14)
    assert (progress.epoch, progress.position, progress.segment) == (0, 14, Segment(0, 6, 2))
    assert progress.segments == (Segment(0, 6, 2),)
    progress = progress.after_step(Segment(1, 0, 0), 4)
    assert progress.segments == (Segment(0, 6, 2), Segment(1, 0, 1))
    assert progress.with_new_receipt(()) == Progress(1, 4)


def test_history_belongs_to_one_epoch() -> None:
    progress = Progress(0, 6, (HistoryEntry(1, 3, 16, 2),))
    assert progress.segment == Segment(0, 6, 0, progress.history)
    progress = progress.after_step(progress.segment, 9)
    assert progress.segment == Segment(0, 6, 1, (HistoryEntry(1, 3, 16, 2),))
    assert progress.after_epochs(1).segment == Segment(1, 0, 0)
    passed = Progress(0, 6, (HistoryEntry(1, 3, 16, 2),)).after_step(Segment(1, 0, 0), 3)
    assert passed.segments == (Segment(0, 6, 0, (HistoryEntry(1, 3, 16, 2),)), Segment(1, 0, 1))


def test_epochs_without_a_step_have_segments() -> None:
    later = Segment(2, 0, 0)
    assert Progress(0, 6).after_step(later, 4).segments == (
        Segment(0, 6, 0),
        Segment(1, 0, 0),
        Segment(2, 0, 1),
    )
    done = Progress().after_step(Segment(0, 0, 0), 4).after_epochs(2)
    assert (done.epoch, done.position, done.segments) == (2, 0, (Segment(0, 0, 1), Segment(1, 0, 0)))


def test_rank_that_restarts_its_iteration_agrees_with_the_others(shards: Any) -> None:
    paths = shards([40])
    loaders = [Loader(paths, X, 4, World(rank, 2)) for rank in range(2)]
    rows = next(iter(loaders[0]))["x"].tolist()
    assert len(loaders[0]) == 4
    for loader in loaders:
        rows += [x for batch in loader for x in batch["x"].tolist()]
    assert sorted(rows) == list(range(40))
    assert audit(*loaders, epochs=[0]).ok


@pytest.mark.parametrize("duplicate", [copy.copy, lambda one: pickle.loads(pickle.dumps(one))])
def test_audit_notices_copies_that_deliver_the_same_records(duplicate: Any, shards: Any) -> None:
    original = Loader(shards([40]), X, 4, World())
    twins = [duplicate(original), duplicate(original)]
    for twin in twins:
        list(twin)
    assert not audit(*twins, epochs=[0]).ok
    assert audit(twins[0], epochs=[0]).ok


def test_copy_in_mid_epoch_continues_the_receipt_of_its_original(shards: Any) -> None:
    original = Loader(shards([40]), X, 4, World())
    batches = iter(original)
    next(batches), next(batches)
    rest = pickle.loads(pickle.dumps(original))
    list(rest)
    assert audit(original, rest, epochs=[0]).ok
    list(batches)
    assert not audit(original, rest, epochs=[0]).ok


def test_dropped_end_of_an_epoch_is_in_the_receipt(shards: Any) -> None:
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


def test_endless_loader_without_a_step_is_refused(shards: Any) -> None:
    for counts, remainder in (([0], "mask"), ([3], "drop")):
        with pytest.raises(PlanError, match="never end"):
            iter(Loader(shards(counts), X, 4, World(), remainder=remainder, epochs=None))


class _Interruption:
    """A trace function that raises at the n-th line of the iterator, as a signal handler may."""

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
def test_interrupt_at_any_line_loses_at_most_one_batch(at: int, shards: Any) -> None:
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
        # An interrupt after the assignment of the cursor loses the current batch; the position shows it.
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
