from __future__ import annotations

import dataclasses
import re
import shlex

import pytest

from shardkeep.demo.page.html import render
from shardkeep.demo.report import Check, EpochUse
from tests.unit.demo.page.test_charts import UNUSUAL
from tests.unit.demo.test_report import REPORT


@pytest.mark.parametrize("name", UNUSUAL)
def test_page_refers_to_no_other_file_or_host(name: str) -> None:
    html = render(REPORT, UNUSUAL[name])
    assert not re.search(r"https?:|//[a-z]|@import|<script|<link|<img|\bsrc=|\bhref=|url\((?!#)", html)


def test_the_page_shows_the_kill_and_the_lost_steps() -> None:
    html = render(REPORT, UNUSUAL["as usual"])
    assert "SIGKILL to rank 1 at step 8; resumed from step 5, 4 → 3 ranks" in html
    assert html.count("lost-dot") >= 3
    assert "lost-band" in html
    assert html.count('class="rank-block-lost"') == 3 * 4
    assert "every check holds" in html
    assert "1,438 images in 8 shards" in html


def test_charts_and_tables_scroll_where_the_screen_is_narrow() -> None:
    html = render(REPORT, UNUSUAL["as usual"])
    boxes = re.findall(r'<div class="scroll" tabindex="0">\n<(svg|table)', html)
    assert boxes.count("svg") == html.count("<svg") == 3
    assert boxes.count("table") == html.count("<table")
    assert re.search(r"\.scroll \{[^}]*overflow-x:auto", html)
    assert re.search(r"svg \{[^}]*min-width:900px", html)


def test_ranks_have_one_name_everywhere() -> None:
    html = render(REPORT, UNUSUAL["as usual"])
    assert not re.search(r"worker \d", html)
    assert "At step 33 rank 1 was killed with SIGKILL." in html
    assert "by 3 new processes: ranks 0 to 2." in html


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


def test_commands_are_quoted_for_a_shell() -> None:
    moved = dataclasses.replace(REPORT, output="/tmp/my runs/a'b")
    for command, _ in moved.commands():
        _, verb, path = shlex.split(command)
        assert verb in ("audit", "info", "cat")
        assert path.startswith("/tmp/my runs/a'b/")
    assert "&#x27;" in render(moved, UNUSUAL["as usual"])
