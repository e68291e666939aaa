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


def test_commands_are_quoted_for_a_shell() -> None:
    moved = dataclasses.replace(REPORT, output="/tmp/my runs/a'b")
    for command, _ in moved.commands():
        _, verb, path = shlex.split(command)
        assert verb in ("audit", "info", "cat")
        assert path.startswith("/tmp/my runs/a'b/")
    assert "&#x27;" in render(moved, UNUSUAL["as usual"])
