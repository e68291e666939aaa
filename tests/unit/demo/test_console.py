from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from shardkeep.demo.console import DemoProgress, print_report
from shardkeep.demo.report import Check, Death
from tests.unit.demo.test_report import REPORT

DEATH = Death(
    rank=1, pid=4711, step=33, moment="computing", resumed_step=30, workers_before=4, workers_after=1,
    lost_steps=3, lost_rows=192,
)  # fmt: skip


def report_all_progress(progress: DemoProgress) -> None:
    progress.update_packing(1, 2)
    progress.update_packing(2, 2)
    progress.begin_steps(0, 40)
    progress.finish_step(33, 1, 0.25)
    progress.report_death(DEATH)
    progress.begin_steps(30, 41)
    progress.update_finishing(0, 2, "merge")
    progress.update_finishing(1, 2, "check")


def shown(*, terminal: bool) -> str:
    out = io.StringIO()
    with DemoProgress(Console(file=out, width=80, force_terminal=terminal, color_system=None)) as progress:
        report_all_progress(progress)
    return out.getvalue()


def test_terminal_shows_progress_bars() -> None:
    text = shown(terminal=True)
    assert "pack images" in text
    assert "train, epoch 1, loss 0.25" in text
    assert "30/41" in text
    assert "1/2" in text
    assert "SIGKILL to rank 1 (pid 4711) at step 33: resumed from step 30 with 1 rank" in text


def test_file_gets_one_line_for_each_death() -> None:
    assert shown(terminal=False).splitlines() == [
        "SIGKILL to rank 1 (pid 4711) at step 33: resumed from step 30 with 1 rank"
    ]


def test_without_a_console_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with DemoProgress() as progress:
        report_all_progress(progress)
    assert capsys.readouterr() == ("", "")


def test_the_table_fits_80_columns() -> None:
    out = io.StringIO()
    print_report(Console(file=out, width=80), REPORT)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    text = out.getvalue()
    for part in (
        "1,438 to train on",
        "5,149",
        "12 of 1,024",
        "97.2%",
        "4,314 predictions",
        "from step 30 with 3",
    ):
        assert part in text
    assert "FAILED" not in text


def test_table_shows_the_finding_of_a_failed_check() -> None:
    out = io.StringIO()
    failed = dataclasses.replace(REPORT, checks=(Check("counted", False, "epoch 1: 1 missing"),), deaths=())
    print_report(Console(file=out, width=80), failed)
    assert "FAILED  epoch 1: 1 missing" in out.getvalue()
    assert "killed" not in out.getvalue()
