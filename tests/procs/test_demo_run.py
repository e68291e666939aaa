"""One run of the demo from end to end, and the files that it leaves.

Covers `shardkeep.cli.demo`, `shardkeep.demo.train` and `shardkeep.demo.worker`.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import struct
from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import pytest
from rich.console import Console

from shardkeep.demo import DemoReport, run
from shardkeep.demo.console import print_report
from shardkeep.demo.data import Packed
from shardkeep.demo.proof import Proof, prove, read_results
from shardkeep.demo.settings import Layout
from shardkeep.jobs import audit

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[DemoReport, Layout]:
    layout = Layout(tmp_path_factory.mktemp("demo") / "out")
    return run(layout.root, workers=4, epochs=3), layout


def records_in(shard: Path) -> int:
    """Count the frames without a reader of Shardkeep."""
    data = shard.read_bytes()
    position = count = 0
    while position < len(data):
        position += 8 + 4 + struct.unpack_from("<Q", data, position)[0] + 4
        count += 1
    assert position == len(data)
    return count


def test_every_check_holds(finished: tuple[DemoReport, Layout]) -> None:
    report, _ = finished
    assert report.ok, [check for check in report.checks if not check.ok]
    assert [check.name for check in report.checks] == [
        "audit",
        "counted",
        "labels",
        "kill survived",
        "learned",
    ]
    assert report.accuracy >= 0.9
    assert report.seconds > 0


def test_the_kill_cost_work_and_a_worker(finished: tuple[DemoReport, Layout]) -> None:
    report, _ = finished
    (death,) = report.deaths
    assert (death.rank, death.step, death.resumed_step) == (1, 33, 30)
    assert (death.workers_before, death.workers_after) == (4, 3)
    assert (death.lost_steps, death.lost_rows) == (3, 3 * 64)
    assert death.away_s > 0


def test_every_record_is_used_once_in_every_epoch(finished: tuple[DemoReport, Layout]) -> None:
    _, layout = finished
    expected = {
        (epoch, shard, index)
        for epoch in range(3)
        for shard in range(8)
        for index in range(records_in(layout.data / f"train-{shard:05d}-of-00008.tfrecord"))
    }
    assert len(expected) == 3 * 1438
    with h5py.File(layout.results) as file:
        rows = file["predictions"][()]
    used = Counter(zip(rows["epoch"].tolist(), rows["shard"].tolist(), rows["index"].tolist(), strict=True))
    assert set(used) == expected
    assert set(used.values()) == {1}


def test_world_shrinks_at_the_checkpoint(finished: tuple[DemoReport, Layout]) -> None:
    report, layout = finished
    with h5py.File(layout.results) as file:
        losses = file["losses"][()]
    at_step = Counter(losses["step"].tolist())
    assert at_step == {step: (4 if step <= 30 else 3) for step in range(1, report.steps + 1)}
    assert losses["step"][losses["rank"] == 3].max() == 30
    assert losses["rows"].sum() == 3 * 1438
    early, late = (losses["loss"][losses["step"] <= 10], losses["loss"][losses["step"] > report.steps - 10])
    assert late.mean() < early.mean() / 2


def test_worker_files_prove_the_same_as_the_merged_file(finished: tuple[DemoReport, Layout]) -> None:
    _, layout = finished
    for path in (layout.run, layout.results):
        assert audit(path, epochs=[0, 1, 2]).ok


def test_folder_has_only_the_documented_files(finished: tuple[DemoReport, Layout]) -> None:
    _, layout = finished
    names = {name for name in os.listdir(layout.root) if not name.endswith(".lock")}
    assert names == {
        ".shardkeep-demo",
        "checkpoint.npz",
        "data",
        "report.html",
        "report.json",
        "results.h5",
        "run",
    }
    shards = [name for name in os.listdir(layout.data) if not name.endswith((".lock", ".skidx"))]
    assert len(shards) == 8 + 2
    assert len({(layout.data / name).stat().st_size for name in shards if name.startswith("train")}) == 8


def test_report_json_and_html_agree_with_the_returned_report(finished: tuple[DemoReport, Layout]) -> None:
    report, layout = finished
    assert json.loads(layout.summary.read_text()) == json.loads(json.dumps(report.to_dict()))
    html = layout.report.read_text()
    assert "SIGKILL to rank 1 at step 33; resumed from step 30, 4 → 3 ranks" in html
    # One point for every record of every epoch, and one for every record of the lost steps.
    assert html.count("h0M") + html.count('h0"') == 3 * 1438 + 3 * 64


def test_its_page_shows_a_report_of_this_form(finished: tuple[DemoReport, Layout]) -> None:
    """The same rows in the same words; numbers of time, speed and pids differ between runs."""
    report, _ = finished
    printed = io.StringIO()
    print_report(Console(file=printed, width=80), report)

    def rows(text: str) -> list[str]:
        return [
            re.sub(r"[\d,.]+", "0", " ".join(line.split())) for line in text.splitlines() if line[:1] == "│"
        ]

    assert rows(printed.getvalue()) == rows((ROOT / "docs/demo.md").read_text())


# -- changed results: the proof must fail -----------------------------------------------------------------


@pytest.fixture
def copy(finished: tuple[DemoReport, Layout], tmp_path: Path) -> Layout:
    shutil.copytree(finished[1].root, tmp_path / "copy")
    return Layout(tmp_path / "copy")


def prove_again(layout: Layout, rows: np.ndarray | None = None) -> Proof:
    results = read_results(layout.results)
    labels: list[dict[int, int]] = [{} for _ in range(8)]
    for shard, index, label in results.predictions[["shard", "index", "label"]].tolist():
        labels[shard][index] = label
    packed = Packed(
        train=(),
        held_out=(),
        labels=tuple(np.array([found[index] for index in sorted(found)]) for found in labels),
        held_out_records=0,
        size_bytes=0,
    )
    if rows is not None:
        results = type(results)(rows, results.losses)
    return prove(layout, packed, 3, results)


def failed(proof: Proof) -> list[str]:
    return [check.name for check in proof.checks if not check.ok]


def test_unchanged_copy_passes_every_check(copy: Layout) -> None:
    assert failed(prove_again(copy)) == []


def test_a_deleted_row_is_noticed(copy: Layout) -> None:
    rows = read_results(copy.results).predictions
    assert failed(prove_again(copy, np.delete(rows, 1000))) == ["counted"]


def test_a_row_in_place_of_another_is_noticed(copy: Layout) -> None:
    rows = read_results(copy.results).predictions
    rows[1000] = rows[2000]
    assert failed(prove_again(copy, rows)) == ["counted"]


def test_row_of_an_unknown_epoch_is_noticed(copy: Layout) -> None:
    rows = read_results(copy.results).predictions
    extra = rows[:1].copy()
    extra["epoch"] = 3
    assert failed(prove_again(copy, np.append(rows, extra))) == ["counted"]


def test_a_swapped_label_is_noticed(copy: Layout) -> None:
    rows = read_results(copy.results).predictions
    proof = prove_again(copy)
    rows["label"][7] = (rows["label"][7] + 1) % 10
    assert failed(proof) == []
    packed_rows = read_results(copy.results).predictions
    assert (packed_rows["label"] != rows["label"]).sum() == 1
    assert failed(prove_again(copy, rows)) == ["labels"]
