"""The charts of the report.

Covers `shardkeep.demo.page.svg`.
"""

from __future__ import annotations

import dataclasses
import math
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from shardkeep.demo.page.charts import loss_chart, reading_chart
from shardkeep.demo.page.timeline import EpochCounts, ReadPoints, Restart, Timeline, TimelineStep
from shardkeep.demo.page.uses import uses_chart
from shardkeep.demo.report import Death


def timeline(
    steps: int = 12, ranks: int = 4, *, lost: tuple[int, ...] = (), restarts: tuple[Restart, ...] = ()
) -> Timeline:
    timeline_steps = tuple(
        TimelineStep(
            step + 1, step // 5, ranks, step in lost, 2.0 / (step + 1), dict.fromkeys(range(ranks), 16)
        )
        for step in range(steps)
    )
    reads = tuple(ReadPoints(rank, False, np.arange(steps), np.arange(steps) * 3) for rank in range(ranks))
    once = np.ones(60, np.int64)
    epochs = tuple(EpochCounts(once, once * len(lost)) for _ in range(-(-steps // 5)))
    return Timeline(timeline_steps, restarts, reads, (20, 10, 30), epochs)


DEATH = Death(
    rank=1, pid=9, step=8, moment="computing", resumed_step=5, workers_before=4, workers_after=3,
    lost_steps=3, lost_rows=192,
)  # fmt: skip
RESTART = Restart(slot=8, death=DEATH)

UNUSUAL = {
    "as usual": timeline(lost=(5, 6, 7), restarts=(RESTART,)),
    "one step of one rank": timeline(1, 1),
    "a thousand steps": timeline(1000, 2),
    "64 ranks": timeline(6, 64),
    "four kills at once": timeline(lost=(5, 6, 7), restarts=(RESTART,) * 4),
    "lost from the very first step": timeline(lost=(0, 1), restarts=(dataclasses.replace(RESTART, slot=2),)),
    "no losses reported": Timeline((TimelineStep(1, 0, 1, False, math.nan, {}),) * 3, (), (), (4,)),
    "an infinite loss": Timeline((TimelineStep(1, 0, 1, False, math.inf, {0: 1}),), (), (), (4,)),
    "a loss of zero": Timeline((TimelineStep(1, 0, 1, False, 0.0, {0: 1}),), (), (), (4,)),
}


@pytest.mark.parametrize("name", UNUSUAL)
@pytest.mark.parametrize("chart", [loss_chart, reading_chart, uses_chart])
def test_charts_are_well_formed_and_inside_their_frame(chart: object, name: str) -> None:
    text = chart(UNUSUAL[name])  # type: ignore[operator]
    root = ElementTree.fromstring(text)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    assert "nan" not in text
    assert "inf" not in re.sub("infinite", "", text)
    for element in root.iter():
        for attribute, limit in (("x", width), ("cx", width), ("y", height), ("cy", height)):
            if attribute in element.attrib:
                assert -1 <= float(element.attrib[attribute]) <= limit + 1, (element.tag, element.attrib)


def test_killed_rank_is_marked_in_its_row() -> None:
    text = reading_chart(UNUSUAL["as usual"])
    mark = re.search(r'<text class="kill-mark" x="([\d.]+)" y="([\d.]+)"', text)
    row = re.search(r'y="([\d.]+)"[^>]*>rank 1<', text)
    line = re.search(r'<path class="kill" d="M([\d.]+) ', text)
    assert mark
    assert row
    assert line
    assert (mark[1], mark[2]) == (line[1], row[1])


def test_every_read_is_drawn_as_one_point() -> None:
    text = reading_chart(timeline(12, 4))
    assert text.count("h0") == 48


def test_only_every_nth_of_too_many_points_is_drawn_and_the_chart_notes_it() -> None:
    many = ReadPoints(0, False, np.zeros(100_000, np.int64), np.arange(100_000))
    text = reading_chart(
        Timeline((TimelineStep(1, 0, 1, False, 1.0, {0: 100_000}),), (), (many,), (100_000,))
    )
    assert text.count("h0") <= 40_000
    assert "one record in 3 is drawn" in text
