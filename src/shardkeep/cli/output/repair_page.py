"""Page of HTML of ``shardkeep repair``: a map and the damaged parts of each file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from shardkeep.cli.output.repair import OUTCOMES, damage_rows, lost_text, parts_with, verdict
from shardkeep.errors import one_line
from shardkeep.files.publish import publish
from shardkeep.html_page import page, scrolling, text_table
from shardkeep.quantities import counted, human_bytes

if TYPE_CHECKING:
    from shardkeep.jobs.salvage.report import RepairedFile, RepairedPart, RepairReport

__all__ = ["repair_page", "write_page"]

_COLUMNS = 900
_SHOWN_MAPS = 100
_SHOWN_FILES = 2000
_SHOWN_PARTS = 200
_MOST_PARTS = 5000
_RULES = """:root { --kept:#b9d8c2; --repaired:#0072b2; --unchecked:#c99700; }
@media (prefers-color-scheme: dark) { :root { --kept:#2f5d3e; --repaired:#56a8e0; --unchecked:#f0c84b; } }
h3 { font-size:16px; margin:26px 0 6px; overflow-wrap:anywhere; }
.files td { white-space:nowrap; }
.files tbody th { white-space:normal; overflow-wrap:anywhere; min-width:11em; }
.parts { margin-top:8px; }
.parts td { overflow-wrap:anywhere; }
.parts thead th { white-space:nowrap; }
svg.map { min-width:0; height:30px; background:var(--grid); border-radius:4px; }
.kept { fill:var(--kept); }
.repaired { fill:var(--repaired); }
.unchecked { fill:var(--unchecked); }
.lost { fill:var(--bad); }
.legend { display:flex; flex-wrap:wrap; gap:4px 18px; margin:0 0 6px; font-size:14px; }
.legend svg { width:12px; min-width:12px; height:12px; display:inline-block; margin-right:6px; }
"""
_MEANINGS = {
    "kept": "whole by its checksums",
    "repaired": "corrected, and whole by its checksums",
    "unchecked": "copied as it is stored; the file has no checksum of it",
    "lost": "not in the new file, or filled there",
}


def write_page(path: str, report: RepairReport) -> None:
    """Write the page of a report, and replace an old one."""
    with publish(path, exists="replace") as file:
        file.write(repair_page(report).encode("utf-8", "backslashreplace"))


def repair_page(report: RepairReport) -> str:
    """Return the report of `repair` as a page of HTML."""
    body = [f'<p class="lead">{escape(_lead(report))}</p>', _summary(report)]
    if report.files:
        body += ["<h2>Files</h2>", _files(report), "<h2>Damage</h2>", _legend()]
    left = _MOST_PARTS
    for one in report.files[:_SHOWN_MAPS]:
        shown = min(left, _SHOWN_PARTS)
        body += _file(one, shown)
        left -= min(shown, len(one.parts))
    body.append(_more(len(report.files) - _SHOWN_MAPS, "more file"))
    return page("Shardkeep repair", verdict(report), "\n".join(body), good=report.ok, rules=_RULES)


def _lead(report: RepairReport) -> str:
    what = f"Of {one_line(report.path)}, "
    if report.dry_run:
        return f"{what}a dry run: no new file was written."
    if report.output is None:
        return f"{what}no new file was written."
    return f"{what}what could be kept is in {one_line(report.output)}. The original is unchanged."


def _summary(report: RepairReport) -> str:
    rows = []
    for name in OUTCOMES:
        parts = parts_with(report.files, name)
        items, size_bytes = sum(part.items for part in parts), sum(part.bytes or 0 for part in parts)
        rows.append((name, f"{len(parts):,}", f"{items:,}", human_bytes(size_bytes)))
    head = ("Outcome", "Parts", "Records or rows", "Bytes")
    files = f"{counted(len(report.files), 'damaged file')}, {report.intact:,} without damage."
    return f'{text_table(head, rows, "numbers")}\n<p class="caption">{files}</p>'


def _files(report: RepairReport) -> str:
    rows = [
        (
            one_line(one.path),
            one.kind,
            human_bytes(one.file_bytes),
            *(f"{one.items(name):,}" for name in OUTCOMES[:3]),
            "" if one.ok else lost_text([one]),
        )
        for one in report.files[:_SHOWN_FILES]
    ]
    head = ("File", "Kind", "Size", "Kept", "Repaired", "Unchecked", "Lost")
    return scrolling(text_table(head, rows, "numbers files")) + _more(
        len(report.files) - len(rows), "more file"
    )


def _more(hidden: int, noun: str) -> str:
    return f'<p class="caption">… and {counted(hidden, noun)}: --json has all.</p>' if hidden > 0 else ""


def _legend() -> str:
    marks = (
        f'<span><svg viewBox="0 0 1 1"><rect class="{name}" width="1" height="1"/></svg>'
        f"{name}: {_MEANINGS[name]}</span>"
        for name in OUTCOMES
    )
    return f'<p class="legend">{"".join(marks)}</p>'


def _file(one: RepairedFile, most: int) -> Iterator[str]:
    """Yield the map of a file and the table of its damaged parts."""
    yield f"<h3>{escape(one_line(one.path))}</h3>"
    spans = list(_spans(one))
    if spans:
        yield _map(spans, one)
    damaged = list(damage_rows(one))
    rows = [(outcome, one_line(place), one_line(reason)) for outcome, place, reason in damaged[:most]]
    yield text_table(("Outcome", "Place", "Reason"), rows, "parts")
    yield _more(len(damaged) - len(rows), "more part")
    for text in one.notes[:_SHOWN_PARTS]:
        yield f'<p class="caption">Note: {escape(one_line(text))}</p>'


def _spans(one: RepairedFile) -> Iterator[tuple[int, int, RepairedPart]]:
    """Yield start, end and part in bytes of the file; in records or rows if no part has a place in it."""
    placed = [part for part in one.parts if part.offset_bytes is not None and part.bytes]
    if placed:
        yield from ((part.offset_bytes or 0, part.bytes or 0, part) for part in placed)
        return
    start = 0
    for part in one.parts:
        if part.items:
            yield start, part.items, part
            start += part.items


def _map(spans: Sequence[tuple[int, int, RepairedPart]], one: RepairedFile) -> str:
    """Return a strip in which each column has the colour of the worst part in it."""
    in_bytes = spans[0][2].offset_bytes is not None
    total = max(one.file_bytes if in_bytes else 0, *(start + size for start, size, _ in spans))
    columns = [-1] * min(_COLUMNS, total)
    for start, size, part in spans:
        first = start * len(columns) // total
        last = max(first + 1, -(-(start + size) * len(columns) // total))
        rank = OUTCOMES.index(part.outcome)
        for column in range(first, min(last, len(columns))):
            columns[column] = max(columns[column], rank)
    rects, at = [], 0
    for rank, group in itertools.groupby(columns):
        width = len(list(group))
        if rank >= 0:
            rects.append(f'<rect class="{OUTCOMES[rank]}" x="{at}" width="{width}" height="30"/>')
        at += width
    unit = human_bytes(total) if in_bytes else counted(total, "record" if one.kind == "tfrecord" else "row")
    title = f"the outcome of each part of {unit}, from the first to the last"
    caption = f"{unit}, from left to right; where several parts share a column, the worst is shown"
    return (
        f'<svg class="map" viewBox="0 0 {len(columns)} 30" preserveAspectRatio="none" role="img"'
        f' aria-label="{escape(title)}">{"".join(rects)}</svg>\n<p class="caption">{caption}.</p>'
    )
