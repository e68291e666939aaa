"""The command ``python -m benchmarks.compare [subject | part of a name]``: Shardkeep compared with its peers.

Each row has a target ratio, the medians of both sides, which run alternately, and the measured ratio. The
rows of a whole subject go to its section of ``benchmarks/RESULTS.md``, with machine, versions and date.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.comparison import Peers, Row, find, measure
from benchmarks.harness import HERE, machine

RESULTS = HERE / "RESULTS.md"
INTRODUCTION = """\
# Results

Written by `python -m benchmarks.compare`, a section at a time. Both sides take turns on the same files in
the page cache; a ratio is the median over the pairs of turns (and its range): more is better.
"""
HEAD = """\
| what | this library | the peer | times as good | wanted | reached |
|---|---|---|---|---|---|"""


def main() -> None:
    """Run the comparisons, and write the sections of subjects that were run completely."""
    parser = argparse.ArgumentParser(prog="benchmarks.compare", description="Measure beside the peers.")
    parser.add_argument("name", nargs="?", default="", help="a subject, or a part of a comparison's name")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="a part of the records")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "shardkeep-benchmarks")
    arguments = parser.parse_args()
    found: dict[str, list[Row]] = {}
    peers = Peers()
    for subject, comparison in find(arguments.name):
        row = measure(comparison, peers, arguments.folder, rounds=arguments.rounds, scale=arguments.scale)
        found.setdefault(subject, []).append(row)
        print(row, flush=True)
    versions = {**machine(), **peers.versions()}
    peers.close()
    for subject, rows in found.items():
        whole = len(rows) == sum(1 for other, _ in find() if other == subject)
        if whole and arguments.scale == 1.0:
            _keep(subject, rows, versions)


def _keep(subject: str, rows: list[Row], versions: dict[str, str]) -> None:
    """Replace the section of a subject in the results."""
    old = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
    sections = dict(part.split("\n", 1) for part in old.split("\n## ")[1:])
    told = ", ".join(f"{name} {version}" for name, version in versions.items() if name != "core")
    table = "\n".join(map(str, rows))
    sections[subject] = f"\n{time.strftime('%Y-%m-%d')}: {told}\n\n{HEAD}\n{table}\n"
    page = "".join(f"\n## {name}\n{text.rstrip()}\n" for name, text in sorted(sections.items()))
    RESULTS.write_text(INTRODUCTION + page, encoding="utf-8")


if __name__ == "__main__":
    main()
