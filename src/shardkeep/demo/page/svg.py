"""Elements of the charts as SVG, and the measures that all charts share.

Their classes are those of the style sheet of the page.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

__all__ = ["LEFT", "RIGHT", "WIDTH", "circle", "document", "path", "polyline", "rect", "text"]

WIDTH = 960
LEFT, RIGHT = 74, 890  # edges of the plots; labels are outside

_HATCH = (
    '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse"'
    ' patternTransform="rotate(45)"><rect class="hatch" width="2" height="6"/></pattern></defs>'
)


def document(width: float, height: float, title: str, parts: Iterable[str]) -> str:
    """Return an SVG document that defines ``url(#hatch)``; screen readers read `title`."""
    body = "\n".join(part for part in parts if part)
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(title)}">\n'
        f"{_HATCH}\n{body}\n</svg>"
    )


def text(kind: str, x: float, y: float, content: str, *, anchor: str = "start", **attributes: str) -> str:
    """Return a text element of class `kind`; `y` is the middle of its height.

    Examples
    --------
    >>> text("tick", 1, 2.25, "a < b")
    '<text class="tick" x="1.0" y="2.2" dy="0.35em" text-anchor="start">a &lt; b</text>'
    """
    position = f'x="{x:.1f}" y="{y:.1f}" dy="0.35em" text-anchor="{anchor}"'
    return f'<text class="{kind}" {position}{_attributes(attributes)}>{escape(content)}</text>'


def path(kind: str, d: str, **attributes: str) -> str:
    """Return a path element of class `kind`."""
    return f'<path class="{kind}"{_attributes(attributes)} d="{d}"/>'


def polyline(kind: str, points: Iterable[tuple[float, float]]) -> str:
    """Return straight lines that connect the points."""
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="{kind}" points="{joined}"/>'


def circle(kind: str, x: float, y: float, radius: float, *, tip: str) -> str:
    """Return a disc with the tooltip `tip`."""
    position = f'cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"'
    return f'<circle class="{kind}" {position}><title>{escape(tip)}</title></circle>'


def rect(x: float, y: float, width: float, height: float, *, tip: str = "", **attributes: str) -> str:
    """Return a rectangle; the attribute `kind` is its class."""
    inside = f"<title>{escape(tip)}</title>" if tip else ""
    position = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f"<rect {position}{_attributes(attributes)}>{inside}</rect>"


def _attributes(attributes: dict[str, str]) -> str:
    return "".join(
        f' {"class" if name == "kind" else name}="{escape(value)}"' for name, value in attributes.items()
    )
