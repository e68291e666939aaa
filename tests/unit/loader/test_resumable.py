"""The place of a loader: ends of epochs, unfinished iterations, states, `peek`, `reset`, `set_epoch`.

Covers `shardkeep.loader.schedule`.
"""

from __future__ import annotations

import functools
import json
import operator
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardkeep import plan
from shardkeep.errors import PlanError
from shardkeep.loader import Loader
from shardkeep.tfrecord import FixedLen
from shardkeep.world import World

X = {"x": FixedLen()}
BY_FILES = {"shard_by": "files", "cycle_length": 2}


def rows_of(batch: dict[str, Any]) -> list[int]:
    rows: list[int] = (batch["x"][batch["valid"]] if "valid" in batch else batch["x"]).tolist()
    return rows


def audit(*receipts: Any, epochs: int) -> plan.AuditReport:
    return plan.audit(json.loads(json.dumps(receipts)), epochs=range(epochs))


@pytest.mark.parametrize(
    "options", [{}, BY_FILES, {"remainder": "drop"}, {"shuffle": "global"}, {"epochs": 2}]
)
def test_a_pass_that_ends_by_count_is_followed_by_the_next_epoch(
    options: dict[str, Any], shards: Any
) -> None:
    paths = shards([13, 8])
    loader = Loader(paths, X, 4, World(), **options)
    passes = []
    for _ in range(4):
        steps = len(loader)
        passes.append([rows_of(batch) for _, batch in zip(range(steps), loader, strict=False)])
        assert len(passes[-1]) == steps > 0
    other = Loader(paths, X, 4, World(), **options)
    assert passes == [[rows_of(batch) for batch in other] for _ in range(4)]
    assert loader.state_dict() == other.state_dict()
    epochs = 4 * options.get("epochs", 1)
    assert (loader.epoch, loader.position) == (epochs, 0)
    assert audit(loader.receipt(), epochs=epochs).ok


@pytest.mark.parametrize("options", [{}, BY_FILES])
def test_state_at_the_end_of_an_epoch_is_that_of_the_next_beginning(
    options: dict[str, Any], shards: Any
) -> None:
    paths = shards([9, 4])
    loader = Loader(paths, X, 4, World(), **options)
    list(zip(range(len(loader)), loader, strict=False))
    state = loader.state_dict()
    assert (state["epoch"], state["position"], "history" in state) == (1, 0, False)
    later = Loader(paths, X, 2, World(), **options)
    later.load_state_dict(state)
    assert len(later) == later.steps_per_epoch == 7
    list(later)
    assert audit(loader.receipt(), later.receipt(), epochs=2).ok


def test_state_of_an_earlier_version_at_the_end_of_an_epoch_is_the_next_beginning(shards: Any) -> None:
    paths = shards([9, 4])
    first = Loader(paths, X, 4, World())
    list(first)
    later = Loader(paths, X, 4, World())
    later.load_state_dict({**first.state_dict(), "epoch": 0, "position": 13})
    assert later.state_dict() == first.state_dict()
    assert sorted(x for batch in later for x in rows_of(batch)) == list(range(13))
    assert audit(first.receipt(), later.receipt(), epochs=2).ok
    files = Loader(paths, X, 4, World(), **BY_FILES)
    ended = {**files.state_dict(), "position": 13, "history": [[1, 4, 2, 4]]}
    files.load_state_dict(ended)
    assert (files.epoch, files.position, len(files)) == (1, 0, 4)


def test_rest_that_a_larger_batch_drops_ends_the_epoch(shards: Any) -> None:
    paths = shards([10])
    first = Loader(paths, X, 3, World(), remainder="drop")
    list(zip(range(2), first, strict=False))
    later = Loader(paths, X, 8, World(), remainder="drop")
    later.load_state_dict(first.state_dict())
    assert (later.epoch, later.position, len(later)) == (1, 0, 1)
    report = audit(first.receipt(), later.receipt(), epochs=1)
    assert report.ok
    assert report.epochs[0].dropped.records == 4


def test_epoch_is_that_of_the_next_batch(shards: Any) -> None:
    loader = Loader(shards([5]), X, 2, World(), epochs=2)
    assert [(loader.epoch, loader.position) for _ in loader] == [
        (0, 2),
        (0, 4),
        (1, 0),
        (1, 2),
        (1, 4),
        (2, 0),
    ]


def test_loader_is_true_and_an_endless_one_has_no_length(shards: Any) -> None:
    paths = shards([5])
    endless = Loader(paths, X, 2, World(), epochs=None)
    assert bool(endless)
    assert endless.steps_per_epoch == 3
    with pytest.raises(TypeError, match="steps_per_epoch"):
        len(endless)
    assert operator.length_hint(endless, 77) == 77
    for loader in (Loader(paths, X, 2, World(), epochs=2), Loader(shards([0]), X, 2, World())):
        list(loader)
        assert loader


def test_peek_does_not_consume(shards: Any) -> None:
    loader = Loader(shards([40]), X, 4, World(), "global", with_ids=True)
    batches = iter(loader)
    for _ in range(loader.steps_per_epoch + 3):
        before = (loader.state_dict(), loader.receipt())
        peeked = loader.peek()
        assert (loader.state_dict(), loader.receipt()) == before
        batch = next(batches, None)
        if batch is None:
            batches = iter(loader)
            batch = next(batches)
        assert {name: one.tolist() for name, one in batch.items()} == {
            name: one.tolist() for name, one in peeked.items()
        }
    with pytest.raises(PlanError, match="no step"):
        Loader(shards([3]), X, 4, World(), remainder="drop").peek()


def test_next_of_iter_consumes_a_batch(shards: Any) -> None:
    loader = Loader(shards([8]), X, 4, World())
    assert rows_of(next(iter(loader))) == [0, 1, 2, 3]
    assert rows_of(next(iter(loader))) == [4, 5, 6, 7]


def test_reset_begins_the_epoch_again(shards: Any) -> None:
    loader = Loader(shards([8]), X, 2, World(), "global")
    batches = iter(loader)
    first = rows_of(next(batches))
    loader.reset()
    with pytest.raises(PlanError, match="reset"):
        next(batches)
    assert rows_of(next(iter(loader))) == first
    list(loader)
    loader.reset()  # does nothing between epochs
    assert (loader.epoch, loader.position) == (1, 0)
    assert audit(loader.receipt(), epochs=1).ok


def test_set_epoch_does_nothing_in_that_epoch(shards: Any) -> None:
    paths = shards([8])
    loader = Loader(paths, X, 2, World(), "global")
    seen = []
    for epoch in range(3):
        loader.set_epoch(epoch)
        seen += [rows_of(batch) for batch in loader]
    assert audit(loader.receipt(), epochs=3).ok
    expected = [rows_of(batch) for batch in Loader(paths, X, 2, World(), "global", epochs=3)]
    assert seen == expected
    resumed = Loader(paths, X, 2, World(), "global")
    resumed.load_state_dict({**loader.state_dict(), "epoch": 1, "position": 4})
    resumed.set_epoch(1)
    assert [rows_of(batch) for batch in resumed] == expected[6:8]


def test_records_that_set_epoch_passes_over_are_lost_in_the_audit(shards: Any) -> None:
    loader = Loader(shards([8]), X, 2, World())
    for _ in zip(range(3), loader, strict=False):
        pass
    loader.set_epoch(1)
    list(loader)
    report = audit(loader.receipt(), epochs=2)
    assert [(one.ok, one.delivered, one.lost.records) for one in report.epochs] == [
        (False, 6, 2),
        (True, 8, 0),
    ]
    for epoch in (-1, 1.5, True, "1"):
        with pytest.raises(PlanError, match="epoch"):
            loader.set_epoch(epoch)  # type: ignore[arg-type]


ACTIONS = st.one_of(
    st.tuples(st.just("next"), st.integers(1, 9)),
    st.tuples(st.just("iterate to the end"), st.just(0)),
    st.tuples(st.just("break"), st.just(0)),
    st.tuples(st.just("save"), st.just(0)),
    st.tuples(st.just("load"), st.just(0)),
    st.tuples(st.just("reset"), st.booleans()),
    st.tuples(st.just("set_epoch"), st.integers(0, 4)),
    st.tuples(st.just("peek"), st.just(0)),
)

Expected = Callable[[int, int], list[list[int]]]


class Ranks:
    """All ranks of a run, with their deliveries, counted independently of the receipts."""

    def __init__(self, loaders: list[Loader], expected: Expected, steps: int) -> None:
        self.loaders, self.expected, self.steps = loaders, expected, steps
        self.batches: list[Any] = [None] * len(loaders)
        self.epoch = self.step = 0
        self.first_state = loaders[0].state_dict()
        # Receipts that were stored, with what they report, and what the present receipts must report.
        self.stored: list[Any] = []
        self.stored_rows: Counter[tuple[int, int]] = Counter()
        self.rows: Counter[tuple[int, int]] = Counter()
        self.saved = self._snapshot()

    def next(self) -> bool:
        """Take a batch on each rank; return False if the iteration is over."""
        running = set()
        for rank, loader in enumerate(self.loaders):
            if self.batches[rank] is None:
                self.batches[rank] = iter(loader)
            batch = next(self.batches[rank], None)
            running.add(batch is not None)
            if batch is not None:
                rows = rows_of(batch)
                assert rows == self.expected(rank, self.epoch)[self.step]
                self.rows.update((self.epoch, row) for row in rows)
        (more,) = running
        if more:
            self.step += 1
            if self.step == self.steps:
                self.epoch, self.step = self.epoch + 1, 0
        return more

    def break_off(self) -> None:
        self.batches = [None] * len(self.loaders)

    def begin_receipt(self, *, store: bool) -> None:
        """Note that a new receipt begins, before it does; `store` keeps the old one."""
        if store:
            self.stored += [loader.receipt() for loader in self.loaders]
            self.stored_rows += self.rows
        self.rows = Counter()

    def do(self, action: str, value: int) -> None:
        """Make one action on every rank."""
        if action == "next":
            for _ in range(value):
                if not self.next():
                    self.break_off()
                    break
        elif action == "iterate to the end":
            while self.loaders[0].epochs is not None and self.next():
                pass
            self.break_off()
        elif action == "break":
            self.break_off()
        elif action == "save":
            self.saved = self._snapshot()
        elif action == "load":
            self.break_off()
            state, self.stored, self.stored_rows, (self.epoch, self.step) = self.saved
            self.stored, self.stored_rows, self.rows = list(self.stored), Counter(self.stored_rows), Counter()
            for loader in self.loaders:
                loader.load_state_dict(state)
        elif action == "reset":
            if self.step:
                self.break_off()
                self.begin_receipt(store=bool(value))
                self.step = 0
            for loader in self.loaders:
                loader.reset()
        elif action == "set_epoch":
            if value != self.epoch:
                self.break_off()
                if value < self.epoch:
                    self.begin_receipt(store=True)
                self.epoch, self.step = value, 0
            for loader in self.loaders:
                loader.set_epoch(value)
        else:
            for rank, loader in enumerate(self.loaders):
                assert rows_of(loader.peek()) == self.expected(rank, self.epoch)[self.step]

    def check(self, records: int) -> None:
        """Check place, length and audit."""
        for loader in self.loaders:
            assert loader.state_dict() == self.loaders[0].state_dict()
            assert loader.epoch == self.epoch
            assert bool(loader.position) == bool(self.step)
            if loader.epochs is not None:
                left = (self.epoch // loader.epochs + 1) * loader.epochs - self.epoch
                assert len(loader) == left * self.steps - self.step > 0
        epochs = self.epoch + 1
        receipts = [*self.stored, *(loader.receipt() for loader in self.loaders)]
        times = self.stored_rows + self.rows
        for found in audit(*receipts, epochs=epochs).epochs:
            mine = [n for (epoch, _), n in times.items() if epoch == found.epoch]
            assert found.delivered == len(mine)
            assert found.repeated.records == sum(n > 1 for n in mine)
            assert found.lost.records + found.dropped.records == records - len(mine)

    def _snapshot(self) -> Any:
        receipts = [*self.stored, *(loader.receipt() for loader in self.loaders)]
        place = (self.epoch, self.step)
        return self.loaders[0].state_dict(), receipts, self.stored_rows + self.rows, place


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(sum),
    world=st.integers(1, 3),
    batch_size=st.integers(1, 6),
    options=st.sampled_from([{}, {"shuffle": "global"}, BY_FILES, {**BY_FILES, "shuffle": "blocks"}]),
    remainder=st.sampled_from(["mask", "short", "drop"]),
    epochs=st.sampled_from([1, 2, None]),
    actions=st.lists(ACTIONS, max_size=12),
)
def test_any_sequence_of_calls_keeps_the_plan_and_the_receipts_exact(
    shards: Any,
    counts: list[int],
    world: int,
    batch_size: int,
    options: dict[str, Any],
    remainder: str,
    epochs: int | None,
    actions: list[tuple[str, int]],
) -> None:
    paths = shards(counts)

    def loaders(epochs: int | None) -> list[Loader]:
        return [
            Loader(
                paths,
                X,
                batch_size,
                World(rank, world),
                remainder=remainder,
                epochs=epochs,
                threads=1,
                **options,
            )
            for rank in range(world)
        ]

    steps = loaders(1)[0].steps_per_epoch
    if not steps:
        return
    others = loaders(1)

    @functools.cache
    def expected(rank: int, epoch: int) -> list[list[int]]:
        others[rank].load_state_dict({**ranks.first_state, "epoch": epoch})
        return [rows_of(batch) for batch in others[rank]]

    ranks = Ranks(loaders(epochs), expected, steps)
    for action, value in actions:
        ranks.do(action, value)
        ranks.check(sum(counts))


@pytest.mark.parametrize("options", [{}, BY_FILES])
def test_batches_before_a_rewind_are_not_in_the_receipt(options: dict[str, Any], shards: Any) -> None:
    loader = Loader(shards([13, 8]), X, 4, World(), **options)
    for _ in range(3):
        start, state = loader.bookmark(), loader.state_dict()
        for _, place in zip(range(2), loader.read_ahead(), strict=False):
            loader.consume(place[1])
        loader.rewind(start)
        assert loader.state_dict() == state
        list(loader)
    assert audit(loader.receipt(), epochs=3).ok


@pytest.mark.parametrize("options", [{}, BY_FILES])
def test_an_audit_finds_batches_of_a_receipt_from_before_a_rewind(
    options: dict[str, Any], shards: Any
) -> None:
    loader = Loader(shards([13, 8]), X, 4, World(), **options)
    list(loader)
    start = loader.bookmark()
    next(iter(loader))
    stored = loader.receipt()
    loader.rewind(start)
    list(loader)
    assert loader.receipt()["id"] != stored["id"]
    found = audit(stored, loader.receipt(), epochs=2)
    assert not found.ok
    assert "4" in str(found)
    loader.rewind(start)  # of the stored receipt
    list(loader)
    assert not audit(stored, loader.receipt(), epochs=2).ok
