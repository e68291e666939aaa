"""The command ``python -m benchmarks [--quick] [part of a name]``."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from benchmarks.harness import HERE, Result, find, machine, measure


def main() -> None:
    """Run the selected benchmarks, print a line for each, and store the numbers."""
    parser = argparse.ArgumentParser(prog="benchmarks", description="Measure speed here.")
    parser.add_argument("name", nargs="?", default="", help="only benchmarks whose name contains this")
    parser.add_argument("--quick", action="store_true", help="tiny input: does everything run?")
    arguments = parser.parse_args()
    results: list[Result] = []
    for name, benchmark in find(arguments.name):
        result = measure(name, benchmark, quick=arguments.quick)
        speed = f"{result.items_per_s:14,.0f} {result.unit}/s"
        print(f"{name:38} {speed:28} {result.payload_bytes_per_s / 1e6:9,.0f} MB/s", flush=True)
        results.append(result)
    if results and not arguments.quick:
        print(f"kept in {_keep(results).relative_to(HERE.parent)}")


def _keep(results: list[Result]) -> Path:
    folder = HERE / "results"
    folder.mkdir(exist_ok=True)
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    content = {"machine": machine(), "results": [result.to_dict() for result in results]}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    main()
