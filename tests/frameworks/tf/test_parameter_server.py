"""Batches by number for a coordinator: in any order, again, and from a checkpoint.

Covers `shardkeep.adapters.tensorflow.parameter_server`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")

import shardkeep as sk  # noqa: E402
from shardkeep.adapters.tensorflow import StepReader, distribute  # noqa: E402
from tests.frameworks.exactly_once import bare, judge, make_loader, rows  # noqa: E402


def read(steps: StepReader, number: object) -> list[int]:
    return rows({name: tensor.numpy() for name, tensor in steps.read(number).items()})


def test_steps_in_any_order_and_again_are_those_of_the_loader(paths: list[str]) -> None:
    first = make_loader(paths, epochs=2)
    list(zip(range(3), first, strict=False))
    loader = make_loader(paths, epochs=2)
    loader.load_state_dict(first.state_dict())
    steps = StepReader(loader)
    numbers = list(steps)
    read_first = {
        int(numbers[i]): read(steps, numbers[i]) for i in (2, 0, 1, 13, *range(3, 13), *range(14, 25))
    }
    again = {i: read(steps, numbers[i]) for i in (24, 0, 12)}
    steps.consume()
    assert not steps._places
    batches = [read_first[i] for i in range(25)]
    expected = bare(paths, 2)
    assert [batches[:11], batches[11:]] == [expected[0][3:], expected[1]]
    assert {i: batches[i] for i in again} == again
    assert sk.plan.audit([first.receipt(), loader.receipt()]).ok
    assert loader.epoch == 2


def test_a_checkpoint_has_the_steps_that_were_made(paths: list[str], tmp_path: Path) -> None:
    loader, later = make_loader(paths), make_loader(paths)
    steps, resumed = StepReader(loader), StepReader(later)
    seen = []
    for number in steps:
        seen.append(read(steps, number))
        if len(seen) == 6:
            break
    steps.consume()
    path = tf.train.Checkpoint(data=steps).save(str(tmp_path / "state"))
    tf.train.Checkpoint(data=resumed).restore(path).assert_consumed()
    seen += [read(resumed, number) for number in resumed]
    resumed.consume()
    assert seen == bare(paths, 1)[0]
    judge([[row for batch in seen for row in batch]], [loader.receipt(), later.receipt()])


def test_a_step_that_was_not_made_is_named(paths: list[str]) -> None:
    steps = StepReader(make_loader(paths))
    numbers = list(steps)
    read(steps, numbers[0])
    read(steps, numbers[2])
    with pytest.raises(sk.PlanError, match=r"step 1 was scheduled but not read.*join"):
        steps.consume()


def test_a_loader_of_a_rank_is_refused(paths: list[str]) -> None:
    with pytest.raises(sk.PlanError, match=r"rank 1 of 3.*pass world=World\(0, 1\)"):
        StepReader(make_loader(paths, 1, 3))


def test_distribute_names_the_reader_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    class Strategy(tf.distribute.experimental.ParameterServerStrategy):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

    with pytest.raises(sk.PlanError, match="StepReader"):
        distribute(Strategy(), lambda context: pytest.fail("it reads nothing"))
