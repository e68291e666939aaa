from __future__ import annotations

import dataclasses
import io
import json
import math
import re
import shlex
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from rich.console import Console

from shardkeep.demo.charts import loss_chart, reading_chart
from shardkeep.demo.console import print_report
from shardkeep.demo.page import render
from shardkeep.demo.report import Check, Death, DemoReport, EpochUse
from shardkeep.demo.story import Dots, Mark, Story, Turn

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


def story(
    steps: int = 12, ranks: int = 4, *, lost: tuple[int, ...] = (), turns: tuple[Turn, ...] = ()
) -> Story:
    marks = tuple(
        Mark(step + 1, step // 5, ranks, step in lost, 2.0 / (step + 1), dict.fromkeys(range(ranks), 16))
        for step in range(steps)
    )
    dots = tuple(Dots(rank, False, np.arange(steps), np.arange(steps) * 3) for rank in range(ranks))
    return Story(marks, turns, dots, (20, 10, 30))


TURN = Turn(tick=8, rank=1, step=8, resumed_step=5, workers_before=4, workers_after=3)

ODD = {
    "as usual": story(lost=(5, 6, 7), turns=(TURN,)),
    "no steps": story(0),
    "one step of one rank": story(1, 1),
    "a thousand steps": story(1000, 2),
    "64 ranks": story(6, 64),
    "four kills at once": story(lost=(5, 6, 7), turns=(TURN,) * 4),
    "lost from the very first step": story(lost=(0, 1), turns=(dataclasses.replace(TURN, tick=2),)),
    "no losses told": Story((Mark(1, 0, 1, False, math.nan, {}),) * 3, (), (), (4,)),
    "an infinite loss": Story((Mark(1, 0, 1, False, math.inf, {0: 1}),), (), (), (4,)),
    "a loss of zero": Story((Mark(1, 0, 1, False, 0.0, {0: 1}),), (), (), (4,)),
    "no records": Story((), (), (), ()),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("chart", [loss_chart, reading_chart])
def test_charts_are_well_formed_and_inside_their_frame(chart: object, name: str) -> None:
    text = chart(ODD[name])  # type: ignore[operator]
    root = ElementTree.fromstring(text)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    assert "nan" not in text
    assert "inf" not in re.sub("infinite", "", text)
    for element in root.iter():
        for attribute, limit in (("x", width), ("cx", width), ("y", height), ("cy", height)):
            if attribute in element.attrib:
                assert -1 <= float(element.attrib[attribute]) <= limit + 1, (element.tag, element.attrib)


@pytest.mark.parametrize("name", ODD)
def test_the_page_needs_nothing_from_anywhere(name: str) -> None:
    html = render(REPORT, ODD[name])
    assert not re.search(r"https?:|//[a-z]|@import|<script|<link|<img|\bsrc=|\bhref=|url\((?!#)", html)


def test_the_page_shows_the_kill_and_the_lost_steps() -> None:
    html = render(REPORT, ODD["as usual"])
    assert "SIGKILL to worker 1 at step 8; on from step 5, 4 → 3 ranks" in html
    assert html.count("lost-dot") >= 3
    assert "lost-band" in html
    assert html.count('class="lane-lost"') == 3 * 4
    assert "every check holds" in html
    assert "1,438 images in 8 shards" in html


def test_a_failed_check_is_told_at_the_top() -> None:
    failed = dataclasses.replace(
        REPORT,
        checks=(Check("counted", False, "epoch 1: 1 missing, 0 repeated <b>"),),
        audit={},
        uses=(EpochUse(1, 1438, 1437, 1, 0),),
    )
    assert not failed.ok
    html = render(failed, ODD["as usual"])
    assert "<title>shardkeep demo: a check FAILED</title>" in html
    assert "1 missing, 0 repeated &lt;b&gt;" in html
    assert "every check holds" not in html


def test_every_dot_of_a_reading_is_drawn_once() -> None:
    text = reading_chart(story(12, 4))
    assert text.count("h0") == 48


def test_too_many_dots_are_thinned_and_the_page_says_so() -> None:
    many = Dots(0, False, np.zeros(100_000, np.int64), np.arange(100_000))
    text = reading_chart(Story((Mark(1, 0, 1, False, 1.0, {0: 100_000}),), (), (many,), (100_000,)))
    assert text.count("h0") <= 40_000
    assert "one record in 3 is drawn" in text


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


def test_the_table_says_what_failed() -> None:
    out = io.StringIO()
    failed = dataclasses.replace(REPORT, checks=(Check("counted", False, "epoch 1: 1 missing"),), deaths=())
    print_report(Console(file=out, width=80), failed)
    assert "FAILED  epoch 1: 1 missing" in out.getvalue()
    assert "killed" not in out.getvalue()


def test_the_report_goes_through_json() -> None:
    back = json.loads(json.dumps(REPORT.to_dict()))
    assert back["ok"] is True
    assert back["deaths"][0]["resumed_step"] == 30
    assert back["shard_records"] == list(REPORT.shard_records)


def test_commands_can_be_pasted_into_a_shell() -> None:
    moved = dataclasses.replace(REPORT, output="/tmp/my runs/a'b")
    for command, _ in moved.commands():
        _, verb, path = shlex.split(command)
        assert verb in ("audit", "info", "cat")
        assert path.startswith("/tmp/my runs/a'b/")
    assert "&#x27;" in render(moved, ODD["as usual"])
