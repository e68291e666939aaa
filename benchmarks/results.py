"""The results: ``results.json`` with all rounds, and ``RESULTS.md`` and the plots that are made from it."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.measure import Row, Side
from benchmarks.svg import bars, growth

__all__ = ["curve_line", "keep", "line", "table"]

JSON = ROOT / "benchmarks/results.json"
PAGE = ROOT / "benchmarks/RESULTS.md"
SUMMARY = "fastest peers"
INTRODUCTION = """\
# Results

Written by `make bench`. Shardkeep and a peer take turns, each in a separate process, on the same records in
the page cache. A ratio is the median of the turns and its range; more than 1 is better than the peer. Memory
is the peak of a process and its children, processor time is that of all of them. Every round is in
[results.json](results.json); [how they are run](README.md).

"""
HEAD = """\
| beside | Shardkeep | the peer | times as good | memory | processor time | wanted | reached |
|---|---|---|---|---|---|---|---|
"""


def line(row: dict[str, Any]) -> str:
    """Return a row of a table."""
    if row["reason"]:
        return f"| {row['peer']} | | | {row['reason'].replace('|', '/')} | | | | |"
    by = row["by"]
    ratios = row["ratios"]
    ratio = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f})"
    sides = [Side(**row[side]) for side in ("ours", "theirs")]
    speeds = [_speed(statistics.median(side.each(by)), row["size"], by) for side in sides]
    memory = " / ".join(f"{side.peak_bytes / 2**20:,.0f}" for side in sides)
    processor = " / ".join(_time(statistics.mean(side.each("processor"))) for side in sides)
    wanted = f"{row['wanted']:.3g}" if row["wanted"] else ""
    reached = ("yes" if statistics.median(ratios) >= row["wanted"] else "no") if wanted else ""
    cells = [row["peer"], *speeds, ratio, f"{memory} MiB", processor, wanted, reached]
    return f"| {' | '.join(cells)} |"


def table(rows: list[Row]) -> dict[str, Any]:
    """Return the section of a table."""
    return {"title": rows[0].table.title, "rows": [to_dict(row) for row in rows]}


def keep(name: str, section: dict[str, Any]) -> None:
    """Replace a section, a table or a curve, in both files, and draw the plots."""
    found = json.loads(JSON.read_text(encoding="utf-8")) if JSON.exists() else {}
    found[name] = {"date": time.strftime("%Y-%m-%d"), "machine": machine(), **section}
    JSON.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(found), encoding="utf-8")
    for name, picture in pictures(found).items():
        path = PAGE.parent / _plot(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(picture, encoding="utf-8")


def to_dict(row: Row) -> dict[str, Any]:
    """Return a row as types that JSON supports."""
    result = {"peer": row.peer.label, "by": row.table.by, "reason": row.reason, "versions": row.versions}
    if not row.reason:
        sides = {"ours": vars(row.ours), "theirs": vars(row.theirs)}
        result |= {"wanted": row.peer.wanted, "size": row.size, "ratios": row.ratios, **sides}
    return result


def curve_line(section: dict[str, Any], number: int) -> str:
    """Return a row of a curve: a value of its axis, and the median of each cost there."""
    costs = [statistics.median(rounds[number]) for rounds in section["costs"].values()]
    cells = [f"{cost:,.0f}" if cost >= 100 else f"{cost:.3g}" for cost in costs]
    return f"| {section['values'][number]:,} | {' | '.join(cells)} |"


def page(found: dict[str, Any]) -> str:
    """Return the page of all tables and curves."""
    drawn = pictures(found)
    parts = [INTRODUCTION, f"![Shardkeep and the fastest peer of each workload]({_plot(SUMMARY)})\n\n"]
    for name, section in found.items():
        origin = [section["date"] + ": " + _pairs(section["machine"])]
        if "costs" not in section:
            versions = {key: value for row in section["rows"] for key, value in row["versions"].items()}
            origin.append(_pairs(versions))
        parts.append(f"## {section['title']}\n\n{'; '.join(origin)}\n\n")
        parts.append(_curve(section) if "costs" in section else _table(section))
        if name in drawn:
            parts.append(f"![{section['title']}]({_plot(name)})\n\n")
    return "".join(parts).rstrip() + "\n"


def pictures(found: dict[str, Any]) -> dict[str, str]:
    """Return the plots: of each section that is worth one, and of the fastest peers."""
    drawn, fastest = {}, []
    for name, section in found.items():
        if "costs" in section:
            costs = {cost: list(map(statistics.median, some)) for cost, some in section["costs"].items()}
            drawn[name] = growth(section["title"], section["axis"], section["values"], costs)
            continue
        rows = [row for row in section["rows"] if not row["reason"]]
        ratios = {row["peer"]: statistics.median(row["ratios"]) for row in rows}
        if len(rows) > 3:
            drawn[name] = bars(section["title"], list(ratios.items()))
            workload = section["title"].partition(":")[0]
            peers = [row["peer"] for row in rows if row["wanted"] and not row["peer"].startswith("limit: ")]
            fastest += [(f"{workload}: {peer}", ratios[peer]) for peer in sorted(peers, key=ratios.get)[:1]]
    if fastest:
        drawn[SUMMARY] = bars("Times as good as the fastest peer of each workload", fastest)
    return drawn


def _pairs(some: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in some.items())


def _table(section: dict[str, Any]) -> str:
    return HEAD + "\n".join(map(line, section["rows"])) + "\n\n"


def _curve(section: dict[str, Any]) -> str:
    head = f"| {section['axis']} | {' | '.join(section['costs'])} |\n|{'---|' * (len(section['costs']) + 1)}"
    lines = [curve_line(section, number) for number in range(len(section["values"]))]
    return "\n".join([head, *lines]) + "\n\n"


def _plot(name: str) -> str:
    return f"plots/{name.replace(' ', '-')}.svg"


def machine() -> dict[str, Any]:
    """Return a description of the machine."""
    processor = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        processor = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "")
    return {
        "processor": processor or platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "platform": platform.platform(),
        "python": platform.python_version(),
    }


def _speed(seconds: float, size: float, by: str) -> str:
    if by == "latency":
        return f"{seconds * 1e3:,.1f} ms"
    told = f"{1 / seconds:,.0f}/s" if seconds < 0.01 else f"{1 / seconds:.3g}/s"
    return f"{told} ({size / seconds / 1e6:,.0f} MB/s)" if size else told


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:,.3g} {unit}"
    return f"{seconds * 1e9:,.3g} ns"
