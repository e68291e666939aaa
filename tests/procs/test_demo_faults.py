"""Kills at every moment of the demo, and faults that the demo did not cause."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardkeep.demo import DemoReport
from shardkeep.demo.console import DemoProgress
from shardkeep.demo.phases import run_with_settings
from shardkeep.demo.proof import Results, read_results
from shardkeep.demo.settings import Kill, Layout, Settings
from shardkeep.errors import CorruptRecordError, ShardkeepError
from tests.waiting import PATIENCE_S, eventually

SMALL = {"images": 200, "workers": 2, "epochs": 2, "global_batch": 16, "checkpoint_every": 3, "hidden": 8}
STEPS = 20  # 160 records, 16 a step, two epochs, while no worker is lost


def run_small(output: Path, *kills: Kill, progress: DemoProgress | None = None, **changes: int) -> DemoReport:
    return run_with_settings(
        output, Settings(**{**SMALL, **changes}, kills=kills), progress or DemoProgress()
    )


def assert_proved(report: DemoReport) -> None:
    # 160 images may be too few to learn from.
    wrong = [check for check in report.checks if not check.ok and check.name != "learned"]
    assert wrong == []
    assert report.rows_merged == 2 * 160


def children() -> list[int]:
    """Pids of the workers that this process has started."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                command = Path(f"/proc/{name}/cmdline").read_bytes()
            except OSError:
                continue
            # Python's resource tracker, which an earlier test may have started, is not a worker.
            if b"shardkeep.demo.worker" in command and int(fields[1]) == os.getpid() and fields[0] != "Z":
                found.append(int(name))
    return found


# -- kills by the demo -----------------------------------------------------------------------


def test_run_without_a_kill(tmp_path: Path) -> None:
    report = run_small(tmp_path)
    assert_proved(report)
    assert (report.steps, report.lost_steps, report.deaths) == (STEPS, 0, ())


def test_kill_before_the_first_checkpoint_restarts_from_step_0(tmp_path: Path) -> None:
    report = run_small(tmp_path, Kill(step=2, rank=0))
    assert_proved(report)
    assert [(death.resumed_step, death.lost_steps) for death in report.deaths] == [(0, 2)]
    assert report.deaths[0].workers_after == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_kill_between_commits_and_checkpoint_rolls_the_commits_back(tmp_path: Path, rank: int) -> None:
    report = run_small(tmp_path, Kill(step=6, rank=rank, moment="publishing"))
    assert_proved(report)
    # The rows of step 4 to 6 were durable in the file of every worker, and are rolled back.
    assert [(death.resumed_step, death.lost_steps) for death in report.deaths] == [(3, 3)]


def test_four_kills_leave_one_worker_which_is_restarted(tmp_path: Path) -> None:
    kills = (
        Kill(2, 2),
        Kill(step=5, rank=0),
        Kill(step=5, rank=0),
        Kill(step=12, rank=0, moment="publishing"),
    )
    report = run_small(tmp_path, *kills, workers=3)
    assert_proved(report)
    assert [(death.workers_before, death.workers_after) for death in report.deaths] == [
        (3, 2), (2, 1), (1, 1), (1, 1),
    ]  # fmt: skip
    assert [death.resumed_step for death in report.deaths] == [0, 3, 3, 9]


def test_kill_in_the_last_step(tmp_path: Path) -> None:
    report = run_small(tmp_path, Kill(step=STEPS, rank=1))
    assert_proved(report)
    assert report.deaths[0].resumed_step == 18


def test_equal_seeds_give_equal_rows_after_a_kill(tmp_path: Path) -> None:
    tables: list[Any] = []
    for name in ("a", "b"):
        run_small(tmp_path / name, Kill(step=14, rank=1))
        tables.append(read_results(Layout(tmp_path / name).results).predictions)
    assert np.array_equal(tables[0], tables[1])


def test_planned_kill_that_did_not_happen_is_a_failed_check(tmp_path: Path) -> None:
    report = run_small(tmp_path, Kill(step=1000, rank=0))
    assert [check.name for check in report.checks if not check.ok and check.name != "learned"] == [
        "kill survived"
    ]
    assert not report.ok


# -- faults that the demo did not cause -------------------------------------------------------------------


class _RunAtStep(DemoProgress):
    """A progress that calls a function at one step, in the parent."""

    def __init__(self, step: int, action: object) -> None:
        super().__init__()
        self._step, self._action = step, action

    def finish_step(self, step: int, epoch: int, loss: float) -> None:
        if step == self._step:
            self._action()  # type: ignore[operator]


def test_worker_killed_by_another_process_is_an_error(tmp_path: Path) -> None:
    def kill_last_worker() -> None:
        os.kill(children()[-1], signal.SIGKILL)

    with pytest.raises(
        ShardkeepError, match=r"was killed by SIGKILL at step [78], and not by the demo"
    ) as caught:
        run_small(tmp_path, progress=_RunAtStep(7, kill_last_worker))
    assert "\n" not in str(caught.value)
    assert children() == []
    assert not Layout(tmp_path).results.exists()
    assert not Layout(tmp_path).report.exists()
    assert_proved(run_small(tmp_path))  # in the same folder, which still has the files of the failed run


def test_shard_damaged_during_the_run_is_named(tmp_path: Path) -> None:
    class Damage(DemoProgress):
        def begin_steps(self, begin: int, end: int) -> None:
            super().begin_steps(begin, end)
            for shard in Layout(tmp_path).data.glob("train-*.tfrecord"):
                with shard.open("r+b") as file:
                    file.seek(-200, os.SEEK_END)
                    byte = file.read(1)
                    file.seek(-1, os.SEEK_CUR)
                    file.write(bytes([byte[0] ^ 255]))

    with pytest.raises(CorruptRecordError) as caught:
        run_small(tmp_path, progress=Damage())
    assert "train-0000" in str(caught.value.path)
    assert children() == []


def command(output: Path, *, limit: str = "") -> subprocess.Popen[str]:
    program = f"import sys, resource\n{limit}\nfrom shardkeep.cli import main\nmain()"
    return subprocess.Popen(
        [sys.executable, "-c", program, "demo", "--output", str(output)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_ctrl_c_leaves_no_process_and_no_half_file(tmp_path: Path) -> None:
    demo = command(tmp_path / "out")
    layout = Layout(tmp_path / "out")
    eventually(lambda: list(layout.run.glob("*/*")) or demo.poll() is not None)
    workers = _children_of(demo.pid)
    assert len(workers) >= 3
    os.killpg(demo.pid, signal.SIGINT)  # as a terminal does
    out, err = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == 130, (out, err)
    assert "Traceback" not in err
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    assert not layout.results.exists()
    assert not layout.report.exists()


def _children_of(parent: int) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(name))
    return found


@pytest.mark.parametrize(
    ("limit_bytes", "what"), [(100_000, "train-"), (700_000, "checkpoint"), (4, ".shardkeep-demo")]
)
def test_full_disk_is_an_error_of_one_line(tmp_path: Path, limit_bytes: int, what: str) -> None:
    limit = f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit_bytes}, {limit_bytes}))"
    demo = command(tmp_path / "out", limit=limit)
    _, err = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode not in (0, 1), err
    assert len(err.strip().splitlines()) == 1, err
    assert what in err
    left = (
        [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
        if (tmp_path / "out").exists()
        else []
    )
    for path in left:
        assert path.stat().st_size != limit_bytes, "cut at the limit"


def test_a_failed_check_is_exit_code_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from shardkeep.cli.app import run

    def read_less(path: Path) -> Results:
        results = read_results(path)
        return Results(results.predictions[:-1], results.losses)

    monkeypatch.setattr("shardkeep.demo.phases.read_results", read_less)
    assert run(["demo", "--output", str(tmp_path / "out"), "--epochs", "1", "--workers", "2"]) == 3
