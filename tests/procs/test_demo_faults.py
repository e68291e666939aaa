"""The demo when more goes wrong than it asked for."""

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
from shardkeep.demo.console import Watch
from shardkeep.demo.phases import perform
from shardkeep.demo.proof import Results, read_results
from shardkeep.demo.settings import Kill, Layout, Settings
from shardkeep.errors import CorruptRecordError, ShardkeepError
from tests.waiting import PATIENCE_S, eventually

SMALL = {"images": 200, "workers": 2, "epochs": 2, "global_batch": 16, "checkpoint_every": 3, "hidden": 8}
STEPS = 20  # 160 records, 16 a step, two epochs, while no worker is lost


def perform_small(output: Path, *kills: Kill, watch: Watch | None = None, **changes: int) -> DemoReport:
    return perform(output, Settings(**{**SMALL, **changes}, kills=kills), watch or Watch())


def assert_proved(report: DemoReport) -> None:
    # Whether 160 images are enough to learn from is not the question here.
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
            # Not Python's own resource tracker, which an earlier test may have started.
            if b"shardkeep.demo.worker" in command and int(fields[1]) == os.getpid() and fields[0] != "Z":
                found.append(int(name))
    return found


# -- kills that it must survive -----------------------------------------------------------------------


def test_without_a_kill(tmp_path: Path) -> None:
    report = perform_small(tmp_path)
    assert_proved(report)
    assert (report.steps, report.lost_steps, report.deaths) == (STEPS, 0, ())


def test_before_the_first_checkpoint_everything_starts_anew(tmp_path: Path) -> None:
    report = perform_small(tmp_path, Kill(step=2, rank=0))
    assert_proved(report)
    assert [(death.resumed_step, death.lost_steps) for death in report.deaths] == [(0, 2)]
    assert report.deaths[0].workers_after == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_between_the_commits_and_the_checkpoint_the_commits_are_rolled_back(
    tmp_path: Path, rank: int
) -> None:
    report = perform_small(tmp_path, Kill(step=6, rank=rank, moment="publishing"))
    assert_proved(report)
    # The rows of step 4 to 6 were durable in every worker's file and count for nothing.
    assert [(death.resumed_step, death.lost_steps) for death in report.deaths] == [(3, 3)]


def test_three_times_down_to_one_worker_which_is_then_restarted(tmp_path: Path) -> None:
    kills = (
        Kill(2, 2),
        Kill(step=5, rank=0),
        Kill(step=5, rank=0),
        Kill(step=12, rank=0, moment="publishing"),
    )
    report = perform_small(tmp_path, *kills, workers=3)
    assert_proved(report)
    assert [(death.workers_before, death.workers_after) for death in report.deaths] == [
        (3, 2), (2, 1), (1, 1), (1, 1),
    ]  # fmt: skip
    assert [death.resumed_step for death in report.deaths] == [0, 3, 3, 9]


def test_in_the_very_last_step(tmp_path: Path) -> None:
    report = perform_small(tmp_path, Kill(step=STEPS, rank=1))
    assert_proved(report)
    assert report.deaths[0].resumed_step == 18


def test_equal_seeds_give_equal_rows_in_spite_of_a_kill(tmp_path: Path) -> None:
    tables: list[Any] = []
    for name in ("a", "b"):
        perform_small(tmp_path / name, Kill(step=14, rank=1))
        tables.append(read_results(Layout(tmp_path / name).results).predictions)
    assert np.array_equal(tables[0], tables[1])


def test_a_kill_that_never_came_is_a_failed_check(tmp_path: Path) -> None:
    report = perform_small(tmp_path, Kill(step=1000, rank=0))
    assert [check.name for check in report.checks if not check.ok and check.name != "learned"] == [
        "kill survived"
    ]
    assert not report.ok


# -- what it did not ask for --------------------------------------------------------------------------


class _At(Watch):
    """Does something at one step, from inside the parent."""

    def __init__(self, step: int, action: object) -> None:
        self._step, self._action = step, action

    def step(self, step: int, epoch: int, loss: float) -> None:
        if step == self._step:
            self._action()  # type: ignore[operator]


def test_a_worker_that_somebody_else_kills_is_told(tmp_path: Path) -> None:
    def murder() -> None:
        os.kill(children()[-1], signal.SIGKILL)

    with pytest.raises(
        ShardkeepError, match=r"was killed by SIGKILL at step [78], and not by the demo"
    ) as caught:
        perform_small(tmp_path, watch=_At(7, murder))
    assert "\n" not in str(caught.value)
    assert children() == []
    assert not Layout(tmp_path).results.exists()
    assert not Layout(tmp_path).report.exists()
    assert_proved(perform_small(tmp_path))  # in the same folder, over what was left


def test_a_shard_that_is_damaged_under_way_is_named(tmp_path: Path) -> None:
    class Damage(Watch):
        def steps(self, begin: int, end: int) -> None:
            for shard in Layout(tmp_path).data.glob("train-*.tfrecord"):
                with shard.open("r+b") as file:
                    file.seek(-200, os.SEEK_END)
                    byte = file.read(1)
                    file.seek(-1, os.SEEK_CUR)
                    file.write(bytes([byte[0] ^ 255]))

    with pytest.raises(CorruptRecordError) as caught:
        perform_small(tmp_path, watch=Damage())
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
def test_no_room_is_told_in_one_line(tmp_path: Path, limit_bytes: int, what: str) -> None:
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
