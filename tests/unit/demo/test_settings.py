from __future__ import annotations

import pytest

from shardkeep.demo.settings import Kill, Settings


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7, 64])
@pytest.mark.parametrize("epochs", [1, 2, 3, 20])
def test_default_kill_is_in_the_second_epoch_and_loses_steps(workers: int, epochs: int) -> None:
    settings = Settings(workers=workers, epochs=epochs)
    (kill,) = settings.planned_kills(1438)
    per_epoch = -(-1438 // (settings.batch_size * workers))
    assert not settings.is_checkpoint(kill.step)
    assert not settings.is_checkpoint(kill.step - 1), "finished steps must be lost, too"
    assert kill.rank < workers
    first = 0 if epochs == 1 else per_epoch
    assert first < kill.step <= first + per_epoch


def test_default_kill_of_a_tiny_run_is_not_after_its_end() -> None:
    assert Settings(workers=64, epochs=1, global_batch=64).planned_kills(50)[0].step == 1


def test_given_kills_are_the_planned_kills() -> None:
    mine = (Kill(step=4, rank=0), Kill(step=9, rank=1, moment="publishing"))
    assert Settings(kills=mine).planned_kills(1438) == mine
    assert Settings(kills=()).planned_kills(1438) == ()


def test_batch_size_is_at_least_one() -> None:
    assert Settings(workers=200).batch_size == 1
    assert Settings(workers=3).batch_size == 21
