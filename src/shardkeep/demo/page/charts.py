"""Charts of `report.html` as inline SVG: the loss curve, and which rank read which record in which step.

Colours are CSS variables of the page (`--rank-0` …, `--ink`, `--quiet`, `--grid`, `--lost`), so both charts
follow the light or dark mode of the screen.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from shardkeep.demo.page.svg import LEFT, RIGHT, WIDTH, circle, document, path, polyline, rect, text
from shardkeep.demo.page.timeline import ReadPoints, Timeline, TimelineStep

__all__ = ["RANK_COLOURS", "loss_chart", "rank_colour", "reading_chart"]

# Based on the palette of Okabe and Ito, for every kind of colour vision; for (light, dark) screens.
RANK_COLOURS = (
    ("#0072b2", "#56a8e0"),
    ("#d55e00", "#ff8c42"),
    ("#009e73", "#2fc79b"),
    ("#aa3f86", "#e08cc4"),
    ("#b58900", "#f0c84b"),
    ("#3a3a8c", "#9d9df0"),
    ("#7a4b2a", "#c79a78"),
    ("#4d7c0f", "#a3d34a"),
)

_CAPTION_ROWS = 8  # more captions of kills share these rows
_MAX_POINTS = 40_000
_MAX_TOOLTIPS = 4_000

_Scale = Callable[[float], float]


def rank_colour(rank: int) -> str:
    """Return the CSS colour of a rank; ranks from 8 on have hues spread over the colour circle."""
    if rank < len(RANK_COLOURS):
        return f"var(--rank-{rank})"
    return f"hsl({rank * 137.508 % 360:.0f} 55% 52%)"


@dataclass(frozen=True)
class _StepAxis:
    """The horizontal axis of both charts: one slot of equal width for each executed step."""

    number: int

    @property
    def slot_width(self) -> float:
        return (RIGHT - LEFT) / self.number

    def middle(self, slot: int) -> float:
        return LEFT + (slot + 0.5) * self.slot_width

    def edge(self, slot: int) -> float:
        return LEFT + slot * self.slot_width


def loss_chart(timeline: Timeline) -> str:
    """Return the chart of the mean loss of every step, with lost steps dashed and kills and epochs marked."""
    top, height = _header_height(timeline), 220.0
    axis = _StepAxis(len(timeline.steps))
    levels = _levels(max((step.loss for step in timeline.steps if _has_loss(step)), default=1.0))

    def y(value: float) -> float:
        return top + height * (1 - value / levels[-1])

    parts = [
        *_lost_bands(timeline, axis, top, height),
        *_value_grid(levels, y),
        *_time_frame(timeline, axis, top, height),
        *(
            polyline(
                "line lost-line" if lost else "line", ((axis.middle(slot), y(loss)) for slot, loss in points)
            )
            for points, lost in _curve_pieces(timeline)
        ),
    ]
    for slot, step in enumerate(timeline.steps):
        if _has_loss(step):
            kind, after = ("dot lost-dot", ", lost with the kill") if step.lost else ("dot", "")
            tip = f"{_step_label(step)}: loss {step.loss:.3f}{after}"
            parts.append(circle(kind, axis.middle(slot), y(step.loss), 2.4, tip=tip))
    parts.extend(_axis_titles(top, height, "mean loss of the step (nats)"))
    return document(WIDTH, top + height + 52, "Loss of every training step", parts)


def reading_chart(timeline: Timeline) -> str:
    """Return the chart of reads: per step and rank the number of records above, every record below."""
    axis = _StepAxis(len(timeline.steps))
    rows_top, row_height = _header_height(timeline), (20.0 if timeline.ranks <= 8 else 8.0)
    top, height = rows_top + row_height * timeline.ranks + 18, 460.0
    records = sum(timeline.shard_records)

    def y(record: float) -> float:
        return top + height * record / records

    total = sum(len(reads.slots) for reads in timeline.reads)
    every_nth = max(1, -(-total // _MAX_POINTS))
    radius = max(0.9, min(2.0, axis.slot_width / 4))
    parts = [
        *_lost_bands(timeline, axis, rows_top, top + height - rows_top),
        *_rank_rows(timeline, axis, rows_top, row_height),
        *_shard_grid(timeline.shard_records, y),
        *_time_frame(timeline, axis, rows_top, top + height - rows_top),
        *(_read_points(reads, axis, y, radius, every_nth) for reads in timeline.reads),
        *_axis_titles(top, height, "record number, shard after shard"),
    ]
    if every_nth > 1:
        note = f"one record in {every_nth} is drawn"
        parts.append(text("label", RIGHT, top + height + 36, note, anchor="end"))
    return document(WIDTH, top + height + 52, "Which rank read which record at which step", parts)


# -- parts of both charts ------------------------------------------------------------------------


def _header_height(timeline: Timeline) -> float:
    """Return the height above a plot for the labels of epochs and the captions of kills."""
    return 22.0 + 16 * min(len(timeline.restarts), _CAPTION_ROWS)


def _lost_bands(timeline: Timeline, axis: _StepAxis, top: float, height: float) -> Iterator[str]:
    """Shade the slots of lost steps, one band for each uninterrupted sequence."""
    for lost, slots in itertools.groupby(range(axis.number), lambda slot: timeline.steps[slot].lost):
        if lost:
            first, *others = slots
            width = axis.slot_width * (1 + len(others))
            yield rect(axis.edge(first), top, width, height, kind="lost-band")


def _time_frame(timeline: Timeline, axis: _StepAxis, top: float, height: float) -> Iterator[str]:
    """Draw epochs and kills above the plot, step numbers below it."""
    bottom = top + height
    yield path("frame", f"M{LEFT} {top}V{bottom}H{RIGHT}")
    restarts = {restart.slot for restart in timeline.restarts}
    last_label = -math.inf
    for slot, step in enumerate(timeline.steps):
        if slot and step.epoch <= timeline.steps[slot - 1].epoch:
            continue
        x = axis.edge(slot)
        if slot and slot not in restarts:
            yield path("epoch", f"M{x:.1f} {top}V{bottom}")
        if x - last_label >= 60:
            yield text("label", x + 3, top - 10, f"epoch {step.epoch}")
            last_label = x
    for number, restart in enumerate(timeline.restarts):
        x, y = axis.edge(restart.slot), top - 27 - 16 * (number % _CAPTION_ROWS)
        yield path("kill", f"M{x:.1f} {y - 6}V{bottom}")
        death = restart.death
        caption = (
            f"SIGKILL to rank {death.rank} at step {death.step}; resumed from step {death.resumed_step}, "
            f"{death.workers_before} → {death.workers_after} ranks"
        )
        right = x > WIDTH * 0.62
        yield text("kill-label", x - 5 if right else x + 5, y, caption, anchor="end" if right else "start")
    every = _round_up(max(1.0, len(timeline.steps) / 14))
    for slot, step in enumerate(timeline.steps):
        if step.step % every == 0:
            yield text("tick", axis.middle(slot), bottom + 12, str(step.step), anchor="middle")


def _axis_titles(top: float, height: float, vertical: str) -> Iterator[str]:
    rotation = f"translate(18 {top + height / 2:.0f}) rotate(-90)"
    yield text("label", 0, 0, vertical, anchor="middle", transform=rotation)
    horizontal = "step number, in the order of execution"
    yield text("label", (LEFT + RIGHT) / 2, top + height + 36, horizontal, anchor="middle")


# -- parts of one chart ---------------------------------------------------------------------------


def _value_grid(levels: Sequence[float], y: _Scale) -> Iterator[str]:
    for level in levels:
        yield path("grid", f"M{LEFT} {y(level):.1f}H{RIGHT}")
        yield text("tick", LEFT - 8, y(level), f"{level:g}", anchor="end")


def _shard_grid(shard_records: Sequence[int], y: _Scale) -> Iterator[str]:
    start = 0
    last_number = last_label = -math.inf
    for shard, records in enumerate(shard_records):
        end = start + records
        yield path("grid", f"M{LEFT} {y(end):.1f}H{RIGHT}")
        if y(start) - last_number >= 12:
            last_number = y(start)
            yield text("tick", LEFT - 8, last_number, f"{start:,}", anchor="end")
        middle = (y(start) + y(end)) / 2
        if middle - last_label >= 12:
            last_label = middle
            yield text("tick", RIGHT + 8, middle, f"shard {shard}")
        start = end


def _rank_rows(timeline: Timeline, axis: _StepAxis, top: float, row_height: float) -> Iterator[str]:
    gap = 1.0 if axis.slot_width > 4 else 0.0
    with_tooltips = len(timeline.steps) * timeline.ranks <= _MAX_TOOLTIPS
    for rank in range(timeline.ranks):
        if row_height >= 12 or rank % 4 == 0:
            middle = top + (rank + 0.5) * row_height
            fill = f"fill:{rank_colour(rank)}"
            yield text("tick", LEFT - 8, middle, f"rank {rank}", anchor="end", style=fill)
    for slot, step in enumerate(timeline.steps):
        for rank, rows in step.rows.items():
            x, y = axis.edge(slot) + gap / 2, top + rank * row_height + 1.5
            suffix = ", lost" if step.lost else ""
            tip = f"{_step_label(step)}, rank {rank}: {rows} records{suffix}" if with_tooltips else ""
            kind = "rank-block-lost" if step.lost else "rank-block"
            style = f"fill:{rank_colour(rank)}"
            yield rect(x, y, axis.slot_width - gap, row_height - 3, kind=kind, style=style, tip=tip)
            if step.lost:
                yield rect(x, y, axis.slot_width - gap, row_height - 3, fill="url(#hatch)")
    for restart in timeline.restarts:
        # The slot before a restart is that of the kill.
        x, middle = axis.edge(restart.slot), top + (restart.death.rank + 0.5) * row_height
        yield text("kill-mark", x, middle, "×", anchor="middle")


def _read_points(reads: ReadPoints, axis: _StepAxis, y: _Scale, radius: float, every_nth: int) -> str:
    def point(slot: int, record: int) -> str:
        # The records are spread over the width of the slot, so that ranks do not cover each other's.
        x = axis.edge(slot) + axis.slot_width * (0.2 + 0.6 * (record * 0.618034 % 1))
        return f"M{x:.1f} {y(record + 0.5):.1f}h0"

    # A path of zero-length strokes with round caps has a tenth of the bytes of as many circles.
    slots, records = reads.slots[::every_nth].tolist(), reads.records[::every_nth].tolist()
    return path(
        "reads lost-reads" if reads.lost else "reads",
        "".join(map(point, slots, records)),
        style=f"stroke:{rank_colour(reads.rank)};stroke-width:{2 * radius:.1f}",
    )


def _curve_pieces(timeline: Timeline) -> list[tuple[list[tuple[int, float]], bool]]:
    """Cut the curve at each restart; the steps of a piece are all lost or all kept."""
    pieces: list[tuple[list[tuple[int, float]], bool]] = []
    before: TimelineStep | None = None
    for slot, step in enumerate(timeline.steps):
        if not _has_loss(step):
            before = None
            continue
        follows = before is not None and step.step == before.step + 1
        if before is None or not follows or step.lost != before.lost:
            # A lost piece begins at the kept step before it.
            pieces.append(([(slot - 1, before.loss)] if before and follows and step.lost else [], step.lost))
        pieces[-1][0].append((slot, step.loss))
        before = step
    return pieces


def _has_loss(step: TimelineStep) -> bool:
    return math.isfinite(step.loss)


def _step_label(step: TimelineStep) -> str:
    return f"step {step.step}, epoch {step.epoch}"


def _levels(high: float) -> list[float]:
    """Return four to eight round values from 0 to at least `high`."""
    step = _round_up(high / 6) if high > 0 else 1.0
    return [step * number for number in range(max(1, math.ceil(high / step)) + 1)]


def _round_up(value: float) -> float:
    """Return the smallest of 1, 2, 5, 10, … times a power of ten and at least `value`."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= value * (1 - 1e-9))
