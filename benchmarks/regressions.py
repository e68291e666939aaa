"""The command ``python -m benchmarks.regressions BASE``: this tree beside another revision of it.

The revision is built in a separate worktree and venv. Both do the same jobs of Shardkeep's side,
alternately. The exit status is 1 if a row is slower.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import ROOT, workloads
from benchmarks.environments import NotInstalledError
from benchmarks.measure import Program
from benchmarks.tables import find

__all__ = ["interval", "main", "verdict"]

_MOST = 0.03  # a smaller difference is none


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the 99 % interval of the median, by bootstrap.

    Parameters
    ----------
    ratios : sequence of float
        Seconds of the base to seconds of this tree, for each turn.

    Returns
    -------
    tuple of float
    """
    picks = np.random.default_rng(0).integers(0, len(ratios), (4_000, len(ratios)))
    low, high = np.quantile(np.median(np.asarray(ratios)[picks], axis=1), [0.005, 0.995])
    return float(low), float(high)


def verdict(ratios: Sequence[float]) -> str:
    """Return "slower", "faster", or "same" where the difference is small or may be noise.

    Examples
    --------
    >>> verdict([0.8, 0.81, 0.79, 0.82, 0.8, 0.78, 0.8, 0.83])
    'slower'
    >>> verdict([0.8, 1.2, 0.9, 1.1, 1.0, 1.0, 0.7, 1.3])
    'same'
    """
    low, high = interval(ratios)
    if high < 1 - _MOST:
        return "slower"
    return "faster" if low > 1 + _MOST else "same"


def _built(revision: str) -> tuple[str, Path]:
    """Return the interpreter and the sources of a revision; build them if they are not there."""
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.check_output([*git, "rev-parse", f"{revision}^{{commit}}"], text=True).strip()
    venv = ROOT / f".venv-base-{commit[:12]}"
    tree = venv / "tree"
    if not (venv / "complete").exists():
        shutil.rmtree(venv, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([*git, "worktree", "prune"], check=True)
        subprocess.run([*git, "worktree", "add", "--quiet", "--detach", tree, commit], check=True)
        # Its crates share the compiled dependencies of this tree.
        environment = {**os.environ, "CARGO_TARGET_DIR": str(ROOT / "target/base")}
        pip = [venv / "bin/python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([*pip, "--editable", f"{tree}[collector,demo]"], check=True, env=environment)
        (venv / "complete").touch()
    return str(venv / "bin/python"), tree / "src"


def main() -> None:
    """Print a line for each table and end with 1 if one is slower."""
    parser = argparse.ArgumentParser(prog="benchmarks.regressions", description="Find regressions.")
    parser.add_argument("base", help="a revision")
    parser.add_argument("table", nargs="*", default=[""], help="how the names of tables begin")
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, half of the turns")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "shardkeep-benchmarks")
    options = parser.parse_intermixed_args()
    # Of fewer than 8 turns, all are on one side of the median by chance more often than in 1 % of cases.
    turns = max(options.turns // 2 if options.quick else options.turns, 8)
    scale = 0.1 if options.quick else 1.0
    python, source = _built(options.base)
    found = set()
    tables = {table.ours: table for name in options.table for table in find(name)}
    for ours, table in tables.items():
        if ours.startswith("adapters."):
            continue
        if callable(table.files):
            files = table.files(options.folder, scale)
        else:
            files = workloads.make(options.folder, table.files, scale=scale)
        try:
            ratios = _turns(ours, files, int(table.batch * scale) or 1, turns, python, source)
        except NotInstalledError as error:
            print(f"{'none':8} {'':24} {table.title}: {error}", flush=True)
            continue
        (low, high), word = interval(ratios), verdict(ratios)
        found.add(word)
        print(
            f"{word:8} {statistics.median(ratios):5.2f} ({low:5.2f}–{high:5.2f})      {table.title}",
            flush=True,
        )
    sys.exit("slower" in found)


def _turns(ours: str, files: list[str], batch: int, turns: int, python: str, source: Path) -> list[float]:
    """Return the speed of this tree, with that of the base as 1, in each turn."""
    module, job = ours.split(" ", 1)
    sides = [Program(module), Program(module, python=python, source=source)]
    try:
        for side in sides:
            side.ask(job, files, batch)
        ratios = []
        for turn in range(turns):
            seconds = [0.0, 0.0]
            for number in (turn % 2, 1 - turn % 2):
                seconds[number] = sides[number].ask(job, files, batch)["seconds"]
            ratios.append(seconds[1] / seconds[0])
        return ratios
    finally:
        for side in sides:
            side.close()


if __name__ == "__main__":
    main()
