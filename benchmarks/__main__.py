"""The command ``python -m benchmarks [name]``: Shardkeep compared with its peers, and how its costs grow.

The rows of a whole table or curve go to ``results.json`` and ``RESULTS.md``, with machine, versions and date.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks import curves, tables
from benchmarks.measure import measure
from benchmarks.results import curve_line, keep, line, table, to_dict


def main() -> None:
    """Run the tables and curves, print each row, and keep what was run completely."""
    parser = argparse.ArgumentParser(prog="benchmarks", description="Measure speed beside the peers.")
    parser.add_argument("name", nargs="*", default=[""], help="how the names of tables or curves begin")
    parser.add_argument("--peer", default="", help="only rows whose peer contains this")
    parser.add_argument("--quick", action="store_true", help="small files, one round, and no results kept")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "shardkeep-benchmarks")
    options = parser.parse_intermixed_args()
    rounds, scale = (1, 0.02) if options.quick else (options.rounds, 1.0)
    for one in dict.fromkeys(one for name in options.name for one in tables.find(name)):
        print(f"\n{one.title} ({one.name})", flush=True)
        rows = []
        for row in measure(one, options.folder, rounds=rounds, scale=scale, only=options.peer):
            rows.append(row)
            print(line(to_dict(row)), flush=True)
        if not options.quick and not options.peer:
            keep(one.name, table(rows))
    most = 2 if options.quick else None
    for curve in dict.fromkeys(one for name in options.name for one in curves.find(name)):
        print(f"\n{curve.title} ({curve.name})", flush=True)
        section = curves.measure(
            curve,
            options.folder,
            rounds=rounds,
            scale=scale,
            most=most,
            tell=lambda section: print(curve_line(section, -1), flush=True),
        )
        if not options.quick:
            keep(curve.name, section)


if __name__ == "__main__":
    main()
