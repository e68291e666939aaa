"""Inline SVG, made by hand: the loss curve, and which rank read which record when.

Colours are CSS variables of the page (`--rank-0` …, `--ink`, `--quiet`, `--grid`, `--lost`), so
that both pictures follow a dark or a light screen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from shardkeep.demo.story import Dots, Mark, Story
from shardkeep.demo.svg import circle, document, path, polyline, rect, text

__all__ = ["RANK_COLOURS", "loss_chart", "rank_colour", "reading_chart"]

# Okabe and Ito's colours, told apart with any kind of colour vision; (light, dark) screens.
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

_WIDTH = 960
_LEFT, _RIGHT = 74, 890  # edges of the plots; the names of ranks, records and shards stand outside
_KILL_ROWS = 8  # the captions of more kills than these share rows
_MOST_DOTS = 40_000
_MOST_TIPS = 4_000

_Scale = Callable[[float], float]


def rank_colour(rank: int) -> str:
    """Return the CSS colour of a rank; from the ninth rank on they are spread over the circle."""
    if rank < len(RANK_COLOURS):
        return f"var(--rank-{rank})"
    return f"hsl({rank * 137.508 % 360:.0f} 55% 52%)"


@dataclass(frozen=True)
class _Ticks:
    """The horizontal axis that both pictures share: each tick has a slot of equal width."""

    number: int

    @property
    def slot(self) -> float:
        return (_RIGHT - _LEFT) / max(1, self.number)

    def middle(self, tick: int) -> float:
        return _LEFT + (tick + 0.5) * self.slot

    def edge(self, tick: int) -> float:
        return _LEFT + tick * self.slot


def loss_chart(story: Story) -> str:
    """Mean loss of every step; lost steps dashed, each kill and each epoch marked."""
    top, height = _head(story), 220.0
    axis = _Ticks(len(story.marks))
    rungs = _rungs(max((mark.loss for mark in story.marks if _has_loss(mark)), default=1.0))

    def y(value: float) -> float:
        return top + height * (1 - value / rungs[-1])

    parts = [
        *_lost_bands(story, axis, top, height),
        *_value_grid(rungs, y),
        *_frame_of_time(story, axis, top, height),
        *(
            polyline(
                "line lost-line" if lost else "line", ((axis.middle(tick), y(loss)) for tick, loss in points)
            )
            for points, lost in _runs(story)
        ),
    ]
    for tick, mark in enumerate(story.marks):
        if _has_loss(mark):
            kind, after = ("dot lost-dot", ", lost with the kill") if mark.lost else ("dot", "")
            tip = f"{_name(mark)}: loss {mark.loss:.3f}{after}"
            parts.append(circle(kind, axis.middle(tick), y(mark.loss), 2.4, tip=tip))
    parts.extend(_axis_names(top, height, "mean loss of the step (nats)"))
    return document(_WIDTH, top + height + 52, "Loss of every training step", parts)


def reading_chart(story: Story) -> str:
    """Above: how many records each rank read at every tick. Below: which ones."""
    axis = _Ticks(len(story.marks))
    lanes_top, lane = _head(story), (20.0 if story.ranks <= 8 else 8.0)
    top, height = lanes_top + lane * story.ranks + 18, 460.0
    records = sum(story.shard_records)

    def y(record: float) -> float:
        return top + height * record / max(1, records)

    total = sum(len(dots.ticks) for dots in story.dots)
    keep_every = max(1, -(-total // _MOST_DOTS))
    radius = max(0.9, min(2.0, axis.slot / 4))
    parts = [
        *_lost_bands(story, axis, lanes_top, top + height - lanes_top),
        *_lanes(story, axis, lanes_top, lane),
        *_shard_grid(story.shard_records, y),
        *_frame_of_time(story, axis, lanes_top, top + height - lanes_top),
        *(_dots(dots, axis, y, radius, keep_every) for dots in story.dots),
        *_axis_names(top, height, "record number, shard after shard"),
    ]
    if keep_every > 1:
        note = f"one record in {keep_every} is drawn"
        parts.append(text("label", _RIGHT, top + height + 36, note, anchor="end"))
    return document(_WIDTH, top + height + 52, "Which rank read which record at which step", parts)


# -- what both pictures have ------------------------------------------------------------------------


def _head(story: Story) -> float:
    """Room above a plot for the names of the epochs and a row for each kill."""
    return 22.0 + 16 * min(len(story.turns), _KILL_ROWS)


def _lost_bands(story: Story, axis: _Ticks, top: float, height: float) -> Iterator[str]:
    """Shade the ticks whose work was lost, one band for each unbroken run of them."""
    start: int | None = None
    for tick in range(len(story.marks) + 1):
        lost = tick < len(story.marks) and story.marks[tick].lost
        if lost and start is None:
            start = tick
        elif not lost and start is not None:
            yield rect(axis.edge(start), top, axis.slot * (tick - start), height, kind="lost-band")
            start = None


def _frame_of_time(story: Story, axis: _Ticks, top: float, height: float) -> Iterator[str]:
    """Draw epochs and kills above the plot, step numbers below it."""
    bottom = top + height
    yield path("frame", f"M{_LEFT} {top}V{bottom}H{_RIGHT}")
    turns = {turn.tick for turn in story.turns}
    last_name = -math.inf
    for tick, mark in enumerate(story.marks):
        if tick and mark.epoch <= story.marks[tick - 1].epoch:
            continue
        x = axis.edge(tick)
        if tick and tick not in turns:
            yield path("epoch", f"M{x:.1f} {top}V{bottom}")
        if x - last_name >= 60:
            yield text("label", x + 3, top - 10, f"epoch {mark.epoch}")
            last_name = x
    for number, turn in enumerate(story.turns):
        x, y = axis.edge(turn.tick), top - 27 - 16 * (number % _KILL_ROWS)
        yield path("kill", f"M{x:.1f} {y - 6}V{bottom}")
        caption = (
            f"SIGKILL to worker {turn.rank} at step {turn.step}; on from step {turn.resumed_step}, "
            f"{turn.workers_before} → {turn.workers_after} ranks"
        )
        right = x > _WIDTH * 0.62
        yield text("kill-label", x - 5 if right else x + 5, y, caption, anchor="end" if right else "start")
    every = _nice(max(1.0, len(story.marks) / 14))
    for tick, mark in enumerate(story.marks):
        if mark.step % every == 0:
            yield text("tick", axis.middle(tick), bottom + 12, str(mark.step), anchor="middle")


def _axis_names(top: float, height: float, vertical: str) -> Iterator[str]:
    turned = f"translate(18 {top + height / 2:.0f}) rotate(-90)"
    yield text("label", 0, 0, vertical, anchor="middle", transform=turned)
    horizontal = "step number, in the order the steps happened"
    yield text("label", (_LEFT + _RIGHT) / 2, top + height + 36, horizontal, anchor="middle")


# -- what one of them has ---------------------------------------------------------------------------


def _value_grid(rungs: Sequence[float], y: _Scale) -> Iterator[str]:
    for rung in rungs:
        yield path("grid", f"M{_LEFT} {y(rung):.1f}H{_RIGHT}")
        yield text("tick", _LEFT - 8, y(rung), f"{rung:g}", anchor="end")


def _shard_grid(shard_records: Sequence[int], y: _Scale) -> Iterator[str]:
    start = 0
    last_number = last_name = -math.inf
    for shard, records in enumerate(shard_records):
        end = start + records
        yield path("grid", f"M{_LEFT} {y(end):.1f}H{_RIGHT}")
        if y(start) - last_number >= 12:
            last_number = y(start)
            yield text("tick", _LEFT - 8, last_number, f"{start:,}", anchor="end")
        middle = (y(start) + y(end)) / 2
        if middle - last_name >= 12:
            last_name = middle
            yield text("tick", _RIGHT + 8, middle, f"shard {shard}")
        start = end


def _lanes(story: Story, axis: _Ticks, top: float, lane: float) -> Iterator[str]:
    gap = 1.0 if axis.slot > 4 else 0.0
    tips = len(story.marks) * story.ranks <= _MOST_TIPS
    for rank in range(story.ranks):
        if lane >= 12 or rank % 4 == 0:
            middle = top + (rank + 0.5) * lane
            fill = f"fill:{rank_colour(rank)}"
            yield text("tick", _LEFT - 8, middle, f"rank {rank}", anchor="end", style=fill)
    for tick, mark in enumerate(story.marks):
        for rank, rows in mark.rows.items():
            x, y = axis.edge(tick) + gap / 2, top + rank * lane + 1.5
            tip = f"{_name(mark)}, rank {rank}: {rows} records{', lost' if mark.lost else ''}" if tips else ""
            kind = "lane-lost" if mark.lost else "lane"
            style = f"fill:{rank_colour(rank)}"
            yield rect(x, y, axis.slot - gap, lane - 3, kind=kind, style=style, tip=tip)
            if mark.lost:
                yield rect(x, y, axis.slot - gap, lane - 3, fill="url(#hatch)")


def _dots(dots: Dots, axis: _Ticks, y: _Scale, radius: float, keep_every: int) -> str:
    def place(tick: int, record: int) -> str:
        # The records of one tick are spread over its slot, or ranks would cover each other's.
        x = axis.edge(tick) + axis.slot * (0.2 + 0.6 * (record * 0.618034 % 1))
        return f"M{x:.1f} {y(record + 0.5):.1f}h0"

    # One path of zero-length strokes with round caps: a tenth of the bytes of as many circles.
    ticks, records = dots.ticks[::keep_every].tolist(), dots.records[::keep_every].tolist()
    return path(
        "reads lost-reads" if dots.lost else "reads",
        "".join(map(place, ticks, records)),
        style=f"stroke:{rank_colour(dots.rank)};stroke-width:{2 * radius:.1f}",
    )


def _runs(story: Story) -> list[tuple[list[tuple[int, float]], bool]]:
    """Cut the curve where the run went back: each piece is all lost or all standing."""
    runs: list[tuple[list[tuple[int, float]], bool]] = []
    before: Mark | None = None
    for tick, mark in enumerate(story.marks):
        if not _has_loss(mark):
            before = None
            continue
        follows = before is not None and mark.step == before.step + 1
        if before is None or not follows or mark.lost != before.lost:
            # Lost work grew out of the step before it, which stands.
            runs.append(([(tick - 1, before.loss)] if before and follows and mark.lost else [], mark.lost))
        runs[-1][0].append((tick, mark.loss))
        before = mark
    return runs


def _has_loss(mark: Mark) -> bool:
    return math.isfinite(mark.loss)


def _name(mark: Mark) -> str:
    return f"step {mark.step}, epoch {mark.epoch}"


def _rungs(high: float) -> list[float]:
    """Round values from 0 to at least `high`, four to eight of them."""
    step = _nice(high / 6) if high > 0 else 1.0
    return [step * number for number in range(max(1, math.ceil(high / step)) + 1)]


def _nice(value: float) -> float:
    """Return the smallest of 1, 2, 5, 10, … times a power of ten that is not below `value`."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= value * (1 - 1e-9))
