"""Bar charts of the tables as SVG: how many times as good Shardkeep is as each peer, on a log scale."""

from __future__ import annotations

import math
from html import escape

__all__ = ["bars"]

_LEFT, _WIDTH, _ROW = 330, 760, 24


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
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif"'
        f' font-size="12">\n<rect width="100%" height="100%" fill="#fff"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _text(x: float, y: float, content: str, anchor: str, weight: str = "normal") -> str:
    place = f'x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-weight="{weight}" fill="#222"'
    return f"<text {place}>{escape(content)}</text>"
