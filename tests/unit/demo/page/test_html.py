from __future__ import annotations

import dataclasses
import io
import json
import re
import shlex

import pytest
from rich.console import Console

from shardkeep.demo.console import print_report
from shardkeep.demo.page.html import render
from shardkeep.demo.report import Check, Death, DemoReport, EpochUse
from tests.unit.demo.page.test_charts import UNUSUAL

DEATH = Death(
    rank=1, pid=4711, step=33, moment="computing", resumed_step=30, workers_before=4, workers_after=3,
    lost_steps=3, lost_rows=192, away_s=1.5,
)  # fmt: skip

REPORT = DemoReport(
    output="shardkeep-demo",
    seed=0,
    workers=4,
    epochs=3,
    batch_size=16,
    records=1438,
    held_out_records=359,
    size_bytes=2_600_000,
    shard_records=(159, 80, 240, 40, 319, 120, 280, 200),
    steps=81,
    lost_steps=3,
    images_per_second=5149.3,
    seconds=4.4,
    peak_open_files=12,
    open_files_limit=1024,
    accuracy=0.972,
    rows_merged=4314,
    deaths=(DEATH,),
    uses=tuple(EpochUse(epoch, 1438, 1438, 0, 0) for epoch in range(3)),
    audit={"ok": True, "epochs": [{"epoch": epoch, "ok": True} for epoch in range(3)]},
    checks=(Check("audit", True, "each once"), Check("learned", True, "97.2%")),
)


@pytest.mark.parametrize("name", UNUSUAL)
def test_page_refers_to_no_other_file_or_host(name: str) -> None:
    html = render(REPORT, UNUSUAL[name])
    assert not re.search(r"https?:|//[a-z]|@import|<script|<link|<img|\bsrc=|\bhref=|url\((?!#)", html)


def test_the_page_shows_the_kill_and_the_lost_steps() -> None:
    html = render(REPORT, UNUSUAL["as usual"])
    assert "SIGKILL to worker 1 at step 8; resumed from step 5, 4 → 3 ranks" in html
    assert html.count("lost-dot") >= 3
    assert "lost-band" in html
    assert html.count('class="rank-block-lost"') == 3 * 4
    assert "every check holds" in html
    assert "1,438 images in 8 shards" in html


def test_failed_check_is_in_the_title_of_the_page() -> None:
    failed = dataclasses.replace(
        REPORT,
        checks=(Check("counted", False, "epoch 1: 1 missing, 0 repeated <b>"),),
        audit={},
        uses=(EpochUse(1, 1438, 1437, 1, 0),),
    )
    assert not failed.ok
    html = render(failed, UNUSUAL["as usual"])
    assert "<title>shardkeep demo: a check FAILED</title>" in html
    assert "1 missing, 0 repeated &lt;b&gt;" in html
    assert "every check holds" not in html


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


def test_report_is_json_serialisable() -> None:
    back = json.loads(json.dumps(REPORT.to_dict()))
    assert back["ok"] is True
    assert back["deaths"][0]["resumed_step"] == 30
    assert back["shard_records"] == list(REPORT.shard_records)


def test_commands_are_quoted_for_a_shell() -> None:
    moved = dataclasses.replace(REPORT, output="/tmp/my runs/a'b")
    for command, _ in moved.commands():
        _, verb, path = shlex.split(command)
        assert verb in ("audit", "info", "cat")
        assert path.startswith("/tmp/my runs/a'b/")
    assert "&#x27;" in render(moved, UNUSUAL["as usual"])
