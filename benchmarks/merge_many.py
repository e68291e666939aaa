"""Measurement of merging and verifying the files of very many ranks.

Each rank commits a few rows of every dataset once. The commands that merge them into one file, as a copy and
as a virtual file, and verify the copy, run in processes of their own, whose peak of memory is reported.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from shardkeep.hdf5 import WorkerFile
from shardkeep.world import World

__all__ = ["measured"]

_PROCESSES = 2


def _write(run: Path, first: int, ranks: int, datasets: int) -> None:
    for rank in range(first, ranks, _PROCESSES):
        with WorkerFile(run, World(rank, ranks), durable=False) as out:
            for i in range(datasets):
                out.append(f"metric_{i:02d}", np.full((20, 8), rank + i, "f4"))
            out.commit(step=1)


def measured(ranks: int, datasets: int) -> dict[str, tuple[float, int]]:
    """Return the seconds and the bytes of memory of each command.

    Parameters
    ----------
    ranks, datasets : int
        Number of ranks, and of datasets of each.

    Returns
    -------
    dict
    """
    with tempfile.TemporaryDirectory() as folder:
        run, copy = Path(folder, "run"), Path(folder, "copy.h5")
        arguments = [(run, first, ranks, datasets) for first in range(_PROCESSES)]
        commands = {
            "copy": ("merge", run, copy),
            "virtual": ("merge", run, Path(folder, "virtual.h5"), "--mode", "virtual"),
            "verify": ("verify", copy),
        }
        spawn = multiprocessing.get_context("spawn")
        with spawn.Pool(_PROCESSES) as pool:
            pool.starmap(_write, arguments)
        # From a new process: the peak of a command counts that of the process that starts it.
        with spawn.Pool(1) as pool:
            return {name: pool.apply(_run, command) for name, command in commands.items()}


def _run(*arguments: str | Path) -> tuple[float, int]:
    clock = time.perf_counter()
    command = [sys.executable, "-m", "shardkeep", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} exited with {process.returncode}")
    return time.perf_counter() - clock, used.ru_maxrss * 1024
