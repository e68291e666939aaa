"""Chart of the number of uses of each record: a strip for each epoch, shard after shard."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from shardkeep.demo.page.svg import LEFT, RIGHT, WIDTH, document, path, rect, text
from shardkeep.demo.page.timeline import EpochCounts, Timeline

__all__ = ["uses_chart"]

_TOP, _ROW = 26.0, 62.0
_USE = 14.0  # height of one use
_MOST_USES = 2  # more are drawn as high as this, and counted in the tooltip
_MOST_EPOCHS = 20
_THINNEST = 2.0  # of a record that was not used once

Ints = npt.NDArray[np.int64]


def uses_chart(timeline: Timeline) -> str:
    """Return the chart of uses: the number of rows in the merged file for each record in each epoch.

    Up to 20 epochs are drawn, those with a missing or repeated record first.
    """
    wrong = [epoch for epoch, counts in enumerate(timeline.epochs) if _wrong(counts.kept)]
    rest = [epoch for epoch in range(len(timeline.epochs)) if epoch not in set(wrong)]
    drawn = sorted((wrong + rest)[:_MOST_EPOCHS])
    starts = np.concatenate([[0], np.cumsum(timeline.shard_records)]).astype(np.int64)
    parts = list(_shard_names(starts))
    for row, epoch in enumerate(drawn):
        parts += _epoch_row(timeline.epochs[epoch], epoch, starts, _TOP + row * _ROW)
    height = _TOP + len(drawn) * _ROW
    if len(drawn) < len(timeline.epochs):
        note = f"{len(timeline.epochs) - len(drawn)} more epochs are not drawn"
        parts.append(text("label", RIGHT, height, note, anchor="end"))
    return document(WIDTH, height + 10, "Number of uses of every record in every epoch", parts)


def _epoch_row(counts: EpochCounts, epoch: int, starts: Ints, top: float) -> Iterator[str]:
    zero = top + _USE * (_MOST_USES + 0.5)
    yield text("tick", 2, zero - _USE, f"epoch {epoch}")
    for uses in range(_MOST_USES + 1):
        y = zero - uses * _USE
        yield path("grid", f"M{LEFT} {y:.1f}H{RIGHT}")
        yield text("tick", LEFT - 8, y, str(uses), anchor="end")
    for first, stop in _runs(counts.kept):
        uses = int(counts.kept[first])
        if uses == 1:
            yield rect(
                _x(first, starts), zero - _USE, _x(stop, starts) - _x(first, starts), _USE, kind="once"
            )
    lost = np.flatnonzero(counts.lost).tolist()
    if lost:
        y, width = zero - _USE, max(0.7, (RIGHT - LEFT) / int(starts[-1]))
        lines = "".join(f"M{_x(record + 0.5, starts):.1f} {y:.1f}v{-_USE:g}" for record in lost)
        yield path("lost-use", lines, style=f"stroke-width:{width:.2f}")
    for first, stop in _runs(counts.kept):
        uses = int(counts.kept[first])
        if uses != 1:
            width = max(_THINNEST, _x(stop, starts) - _x(first, starts))
            height = _USE * max(1, min(uses, _MOST_USES))
            kind = "repeated" if uses else "missing"
            yield rect(_x(first, starts), zero - height, width, height, kind=kind)
    for shard in range(len(starts) - 1):
        yield from _shard_cell(counts, epoch, shard, starts, zero)
    wrong = _wrong(counts.kept)
    if wrong:
        yield text("kill-label", WIDTH - 2, zero + 11, f"{wrong:,} wrong", anchor="end")
    else:
        yield text("tick", RIGHT + 8, zero - _USE / 2, f"{len(counts.kept):,} × 1")


def _shard_cell(counts: EpochCounts, epoch: int, shard: int, starts: Ints, zero: float) -> Iterator[str]:
    """Write the number of records below a shard, and its counts as a tooltip."""
    kept = counts.kept[starts[shard] : starts[shard + 1]]
    left, right = _x(starts[shard], starts), _x(starts[shard + 1], starts)
    wrong, lost = _wrong(kept), int(counts.lost[starts[shard] : starts[shard + 1]].sum())
    yield path("shard-edge", f"M{right:.1f} {zero - _USE * _MOST_USES:.1f}V{zero + 4:.1f}")
    label = f"{wrong} wrong" if wrong else f"{len(kept):,}"
    if wrong or right - left > 7 * len(label):
        yield text("kill-label" if wrong else "tick", (left + right) / 2, zero + 11, label, anchor="middle")
    tip = (
        f"epoch {epoch}, shard {shard}: {int((kept == 1).sum()):,} of {len(kept):,} records once,"
        f" {int((kept == 0).sum())} missing, {int((kept > 1).sum())} repeated"
        + (f"; {lost} were also read in a step that was lost" if lost else "")
    )
    y, height = zero - _USE * _MOST_USES, _USE * _MOST_USES
    yield rect(left, y, right - left, height, tip=tip, fill="transparent")


def _shard_names(starts: Ints) -> Iterator[str]:
    for shard in range(len(starts) - 1):
        left, right = _x(starts[shard], starts), _x(starts[shard + 1], starts)
        long, short = f"shard {shard}", str(shard)
        name = next((name for name in (long, short) if right - left > 7 * len(name)), "")
        yield text("label", (left + right) / 2, 12, name, anchor="middle") if name else ""


def _runs(values: Ints) -> list[tuple[int, int]]:
    """Return the half-open ranges of equal values."""
    edges = np.flatnonzero(np.diff(values)) + 1
    return list(pairwise([0, *edges.tolist(), len(values)]))


def _wrong(kept: Ints) -> int:
    return int((kept != 1).sum())


def _x(record: float, starts: Ints) -> float:
    return LEFT + (RIGHT - LEFT) * float(record) / int(starts[-1])
