"""Appending to one HDF5 file from several processes: losses without a collector, and none with one writer.

HDF5 keeps its structures in memory and writes them back on close. With its locks switched off, a common
advice for "unable to lock file", each process writes back its own version. Four processes each write datasets
into one file, in three ways:

* ``h5py.File(path, "a", locking=False)`` in each of them: datasets are lost, or the file cannot be read;
* the same handle, opened before `fork`;
* a `shardkeep.hdf5.Collector`, to which each process sends its rows.

    python examples/collector.py
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.synchronize
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np

import shardkeep as sk

PROCESSES = 4
DATASETS = 25  # per process
ROWS = 200
FORK = multiprocessing.get_context("fork")


def rows_of(rank: int, number: int) -> np.ndarray[Any, Any]:
    return np.arange(ROWS, dtype="int64") * 1000 + rank * DATASETS + number


def quietly(work: Callable[[int], None], rank: int, together: multiprocessing.synchronize.Barrier) -> None:
    # A process that found a broken structure may print errors or crash at its end; only the file is checked.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    together.wait()
    try:
        work(rank)
    finally:
        os._exit(0)


def in_processes(work: Callable[[int], None]) -> None:
    together = FORK.Barrier(PROCESSES)
    children = [FORK.Process(target=quietly, args=(work, rank, together)) for rank in range(PROCESSES)]
    for child in children:
        child.start()
    for child in children:
        child.join()


def write_all(file: h5py.File, rank: int) -> None:
    for number in range(DATASETS):
        file[f"rank{rank}/{number}"] = rows_of(rank, number)


def whole_datasets(path: str) -> int:
    """Return how many datasets exist with all their rows."""
    found = 0
    try:
        with sk.hdf5.open(path) as file:
            for rank in range(PROCESSES):
                for number in range(DATASETS):
                    try:
                        rows = file[f"rank{rank}/{number}"][:]
                    except (KeyError, OSError, RuntimeError, sk.ShardkeepError):
                        continue
                    found += np.array_equal(rows, rows_of(rank, number))
    except (OSError, RuntimeError, ValueError):
        pass
    return found


def show(title: str, path: str) -> bool:
    """Print one row; return True if every dataset is complete."""
    wanted = PROCESSES * DATASETS
    # Read in a separate process, because a broken file can crash HDF5.
    count = FORK.Value("i", 0)
    reader = FORK.Process(target=lambda: setattr(count, "value", whole_datasets(path)))
    reader.start()
    reader.join()
    right = count.value == wanted
    print(f"{title:<46} {wanted:>8} {count.value:>8}   {'right' if right else 'WRONG'}")
    return right


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'':<46} {'written':>8} {'whole':>8}")

        path = os.path.join(folder, "unlocked.h5")
        h5py.File(path, "w").close()

        def unlocked(rank: int) -> None:
            with h5py.File(path, "a", locking=False) as file:
                write_all(file, rank)

        in_processes(unlocked)
        own_handles = show("four processes, locking switched off", path)

        inherited_path = os.path.join(folder, "inherited.h5")
        with h5py.File(inherited_path, "w") as inherited:

            def forked(rank: int) -> None:
                write_all(inherited, rank)
                inherited.close()

            in_processes(forked)
        one_handle = show("four processes, a handle opened before fork", inherited_path)

        collected = os.path.join(folder, "collected.h5")
        with sk.hdf5.Collector(collected) as collector:

            def sent(rank: int) -> None:
                with collector.connect(sk.World(rank=rank, size=PROCESSES)) as client:
                    for number in range(DATASETS):
                        client.append(f"rank{rank}/{number}", rows_of(rank, number))

            in_processes(sent)
        right = show("four processes and a collector", collected)

    as_documented = not own_handles and not one_handle and right
    print("\nas documented" if as_documented else "\nNOT as documented: see docs/collector.md")
    return 0 if as_documented else 1


if __name__ == "__main__":
    sys.exit(main())
