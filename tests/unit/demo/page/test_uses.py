from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np

from shardkeep.demo.page.timeline import EpochCounts, Timeline
from shardkeep.demo.page.uses import uses_chart

COUNTS = (20, 10, 30)


def chart(*epochs: list[int], lost: list[int] | None = None) -> str:
    again = np.zeros(60, np.int64) if lost is None else np.array(lost)
    return uses_chart(
        Timeline((), (), (), COUNTS, tuple(EpochCounts(np.array(kept), again) for kept in epochs))
    )


def rects(text: str, kind: str) -> list[tuple[float, float]]:
    """Return left edge and width of the rectangles of a class."""
    root = ElementTree.fromstring(text)
    found = [one for one in root.iter() if one.attrib.get("class") == kind]
    return [(float(one.attrib["x"]), float(one.attrib["width"])) for one in found]


def tips(text: str) -> list[str]:
    return re.findall(r"<title>(.*?)</title>", text)


def test_epoch_in_which_each_record_is_used_once_is_one_full_strip() -> None:
    text = chart([1] * 60, [1] * 60)
    assert rects(text, "once") == [(74.0, 816.0)] * 2
    assert rects(text, "missing") == rects(text, "repeated") == []
    assert text.count("60 × 1") == 2
    assert tips(text)[:2] == [
        "epoch 0, shard 0: 20 of 20 records once, 0 missing, 0 repeated",
        "epoch 0, shard 1: 10 of 10 records once, 0 missing, 0 repeated",
    ]


def test_lost_and_repeated_records_are_visible_at_their_place() -> None:
    kept = [1] * 60
    kept[3], kept[25], kept[59] = 0, 2, 7
    text = chart(kept)
    step = 816 / 60
    assert rects(text, "missing") == [(round(74 + 3 * step, 1), 13.6)]
    assert [left for left, _ in rects(text, "repeated")] == [round(74 + i * step, 1) for i in (25, 59)]
    assert "3 wrong" in text
    assert "epoch 0, shard 0: 19 of 20 records once, 1 missing, 0 repeated" in tips(text)
    assert text.count(">1 wrong<") == 3


def test_a_single_wrong_record_of_many_is_wide_enough_to_be_seen() -> None:
    kept = np.ones(100_000, np.int64)
    kept[5] = 0
    text = uses_chart(Timeline((), (), (), (100_000,), (EpochCounts(kept, kept * 0),)))
    assert rects(text, "missing")[0][1] == 2.0


def test_reads_of_lost_steps_are_lines_above_the_strip() -> None:
    lost = [0] * 60
    lost[10] = lost[11] = 1
    text = chart([1] * 60, lost=lost)
    assert text.count("v-14") == 2
    assert (
        "20 of 20 records once, 0 missing, 0 repeated; 2 were also read in a step that was lost"
        in tips(text)[0]
    )


def test_of_many_epochs_those_with_faults_are_drawn() -> None:
    wrong = [1] * 59 + [0]
    text = chart(*[[1] * 60] * 50, wrong)
    assert text.count('class="missing"') == 1
    assert "epoch 50" in text
    assert "31 more epochs are not drawn" in text
