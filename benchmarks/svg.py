"""Plots of the results as SVG, on log scales: ratios to peers as bars, and growth of costs as lines."""

from __future__ import annotations

import math
from html import escape

__all__ = ["bars", "growth"]

_LEFT, _WIDTH, _ROW = 330, 760, 24
_COLORS = ("#2a7", "#36c", "#c55", "#a3a", "#c80", "#088", "#742", "#789", "#b06", "#560", "#44a", "#000")


def bars(title: str, values: list[tuple[str, float]]) -> str:
    """Return a chart of a bar for each label; the line at 1 is Shardkeep itself.

    Parameters
    ----------
    title : str
    values : list of (str, float)
        Labels and positive ratios.
    """
    low = math.floor(min(0.0, *(math.log10(value) for _, value in values)))
    high = math.ceil(max(1.0, *(math.log10(value) for _, value in values)))
    height = _ROW * (len(values) + 2) + 10

    def x_of(value: float) -> float:
        return _LEFT + (math.log10(value) - low) / (high - low) * (_WIDTH - _LEFT - 60)

    parts = [_text(4, 16, title, "start", "bold")]
    for power in range(low, high + 1):
        x = x_of(10**power)
        color = "#666" if power == 0 else "#ccc"
        parts.append(f'<path d="M{x:.0f} {_ROW + 4}V{height - _ROW}" stroke="{color}"/>')
        parts.append(_text(x, height - 8, f"{10.0**power:g}×", "middle"))
    for row, (label, value) in enumerate(values):
        y = _ROW * (row + 1) + 6
        left, right = sorted((x_of(1), x_of(value)))
        color = "#2a7" if value >= 1 else "#c55"
        parts.append(_text(_LEFT - 8, y + 13, label, "end"))
        shape = f'x="{left:.1f}" y="{y + 3}" width="{right - left:.1f}" height="{_ROW - 8}"'
        parts.append(f'<rect {shape} fill="{color}"/>')
        parts.append(_text(right + 5, y + 13, f"{value:,.3g}", "start"))
    return _svg(parts, height)


def growth(title: str, axis: str, values: list[int], costs: dict[str, list[float]]) -> str:
    """Return a chart of a line for each cost, as multiples of the cost at the first value.

    Parameters
    ----------
    title, axis : str
    values : list of int
        Places on the axis, in increasing order.
    costs : dict
        Positive numbers for the values, by name. A dashed line is a cost in proportion to the axis.
    """
    lines = {name: [cost / some[0] for cost in some] for name, some in costs.items() if min(some) > 0}
    dashed = [value / values[0] for value in values]
    every = [ratio for ratios in (dashed, *lines.values()) for ratio in ratios]
    low, high = math.floor(math.log10(min(every))), math.ceil(math.log10(max(every)))
    left, right, top, bottom = 60, _WIDTH - 240, 36, 340

    def point(value: float, ratio: float) -> str:
        x = left + math.log(value / values[0]) / math.log(values[-1] / values[0]) * (right - left)
        y = bottom - (math.log10(ratio) - low) / (high - low) * (bottom - top)
        return f"{x:.1f} {y:.1f}"

    parts = [_text(4, 16, title, "start", "bold")]
    for power in range(low, high + 1):
        y = float(point(values[0], 10.0**power).split()[1])
        parts.append(f'<path d="M{left} {y:.1f}H{right}" stroke="#ccc"/>')
        parts.append(_text(left - 6, y + 4, f"{10.0**power:g}×", "end"))
    for value in values:
        x = float(point(value, 1).split()[0])
        parts.append(f'<path d="M{x:.1f} {top}V{bottom}" stroke="#eee"/>')
        parts.append(_text(x, bottom + 16, f"{value:,}", "middle"))
    parts.append(_text((left + right) / 2, bottom + 32, axis, "middle"))
    named = [("in proportion", dashed, "#888", ' stroke-dasharray="4 4"')]
    named += [(name, ratios, _COLORS[i % len(_COLORS)], "") for i, (name, ratios) in enumerate(lines.items())]
    for row, (name, ratios, color, dash) in enumerate(named):
        places = "L".join(map(point, values, ratios))
        parts.append(f'<path d="M{places}" fill="none" stroke="{color}" stroke-width="2"{dash}/>')
        y = top + 18 * row
        parts.append(f'<path d="M{right + 12} {y}h20" stroke="{color}" stroke-width="2"{dash}/>')
        parts.append(_text(right + 38, y + 4, name, "start"))
    return _svg(parts, bottom + 44)


def _svg(parts: list[str], height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif"'
        f' font-size="12">\n<rect width="100%" height="100%" fill="#fff"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _text(x: float, y: float, content: str, anchor: str, weight: str = "normal") -> str:
    place = f'x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-weight="{weight}" fill="#222"'
    return f"<text {place}>{escape(content)}</text>"
