from __future__ import annotations

import io

from rich.console import Console

from shardkeep.demo.console import Watch, WatchOnTerminal, watching
from shardkeep.demo.report import Death

DEATH = Death(
    rank=1, pid=4711, step=33, moment="computing", resumed_step=30, workers_before=4, workers_after=1,
    lost_steps=3, lost_rows=192,
)  # fmt: skip


def tell_everything(watch: Watch) -> None:
    watch.packing(1, 2)
    watch.packing(2, 2)
    watch.steps(0, 40)
    watch.step(33, 1, 0.25)
    watch.died(DEATH)
    watch.steps(30, 41)
    watch.finishing(0, 2, "merge")
    watch.finishing(1, 2, "check")


def shown(*, terminal: bool) -> str:
    out = io.StringIO()
    with watching(Console(file=out, width=80, force_terminal=terminal, color_system=None)) as watch:
        tell_everything(watch)
    return out.getvalue()


def test_a_terminal_gets_bars() -> None:
    text = shown(terminal=True)
    assert "pack images" in text
    assert "train, epoch 1, loss 0.25" in text
    assert "30/41" in text
    assert "1/2" in text
    assert "SIGKILL to worker 1 (pid 4711) at step 33: on from step 30 with 1 worker" in text


def test_a_file_gets_one_line_for_what_happened() -> None:
    assert shown(terminal=False).splitlines() == [
        "SIGKILL to worker 1 (pid 4711) at step 33: on from step 30 with 1 worker"
    ]


def test_nobody_gets_nothing() -> None:
    with watching(None) as watch:
        tell_everything(watch)
    assert not isinstance(watch, WatchOnTerminal)
