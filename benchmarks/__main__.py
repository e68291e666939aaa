"""The command ``python -m benchmarks [table]``: Shardkeep compared with its peers.

The rows of a whole table go to ``results.json`` and ``RESULTS.md``, with machine, versions and date.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.measure import measure
from benchmarks.results import keep, line, to_dict
from benchmarks.tables import find


def main() -> None:
    """Run the tables, print each row, and write the tables that were run completely."""
    parser = argparse.ArgumentParser(prog="benchmarks", description="Measure speed beside the peers.")
    parser.add_argument("table", nargs="*", default=[""], help="how the names of tables begin")
    parser.add_argument("--peer", default="", help="only rows whose peer contains this")
    parser.add_argument("--quick", action="store_true", help="small files, one round, and no results kept")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "shardkeep-benchmarks")
    options = parser.parse_args()
    rounds, scale = (1, 0.02) if options.quick else (options.rounds, 1.0)
    for table in dict.fromkeys(table for name in options.table for table in find(name)):
        print(f"\n{table.title} ({table.name})", flush=True)
        rows = []
        for row in measure(table, options.folder, rounds=rounds, scale=scale, only=options.peer):
            rows.append(row)
            print(line(to_dict(row)), flush=True)
        if not options.quick and not options.peer:
            keep(rows)


if __name__ == "__main__":
    main()
