"""The results: ``results.json`` with all rounds, and the tables of ``RESULTS.md`` that are made from it."""

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
from benchmarks.svg import bars

__all__ = ["keep", "line", "machine"]

JSON = ROOT / "benchmarks/results.json"
PAGE = ROOT / "benchmarks/RESULTS.md"
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


def keep(rows: list[Row]) -> None:
    """Replace the tables of these rows in both files."""
    found = json.loads(JSON.read_text(encoding="utf-8")) if JSON.exists() else {}
    for row in rows:
        table = {
            "title": row.table.title,
            "date": time.strftime("%Y-%m-%d"),
            "machine": machine(),
            "rows": [],
        }
        found[row.table.name] = table
    for row in rows:
        found[row.table.name]["rows"].append(to_dict(row))
    JSON.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(found), encoding="utf-8")
    for name, table in found.items():
        if values := _compared(table):
            path = PAGE.parent / _plot(name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(bars(table["title"], values), encoding="utf-8")


def to_dict(row: Row) -> dict[str, Any]:
    """Return a row as types that JSON supports."""
    result = {"peer": row.peer.label, "by": row.table.by, "reason": row.reason, "versions": row.versions}
    if not row.reason:
        sides = {"ours": vars(row.ours), "theirs": vars(row.theirs)}
        result |= {"wanted": row.peer.wanted, "size": row.size, "ratios": row.ratios, **sides}
    return result


def page(found: dict[str, Any]) -> str:
    """Return the page of all tables."""
    parts = [INTRODUCTION]
    for name in found:
        table = found[name]
        machine = ", ".join(f"{key} {value}" for key, value in table["machine"].items())
        versions = {key: value for row in table["rows"] for key, value in row["versions"].items()}
        told = ", ".join(f"{key} {value}" for key, value in versions.items())
        rows = "\n".join(map(line, table["rows"]))
        parts.append(f"## {table['title']}\n\n{table['date']}: {machine}; {told}\n\n{HEAD}{rows}\n\n")
        if _compared(table):
            parts.append(f"![How many times as good Shardkeep is]({_plot(name)})\n\n")
    return "".join(parts).rstrip() + "\n"


def _compared(table: dict[str, Any]) -> list[tuple[str, float]]:
    """Return the ratios of a table that is worth a picture."""
    rows = [row for row in table["rows"] if not row["reason"]]
    return [(row["peer"], statistics.median(row["ratios"])) for row in rows] if len(rows) > 3 else []


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
    told = f"{1 / seconds:,.0f}/s"
    return f"{told} ({size / seconds / 1e6:,.0f} MB/s)" if size else told


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:,.3g} {unit}"
    return f"{seconds * 1e9:,.3g} ns"
