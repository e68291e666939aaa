"""HDF5 results of many workers: one file for all of them, and one for each.

Four workers compute the scores of 400 rows, with PyTorch or with TensorFlow. With HDF5's locks the first one
keeps the others out; without them, as many answers advise, each overwrites the metadata of the others.

    python examples/recipes/results.py torch
    python examples/recipes/results.py tensorflow
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import h5py
from recipe import Processes, finish, heading, show, together

import shardkeep as sk

WORKERS, STEPS, BATCH = 4, 5, 20


def outputs(framework: str, rank: int) -> Iterator[tuple[Any, Any]]:
    """Yield numbers and scores of rows, as a loop of evaluation has them."""
    for step in range(STEPS):
        first = (rank * STEPS + step) * BATCH
        if framework == "torch":
            import torch

            rows = torch.arange(first, first + BATCH)
            yield rows, torch.sqrt(rows.float())
        else:
            import tensorflow as tf

            rows = tf.range(first, first + BATCH)
            yield rows, tf.sqrt(tf.cast(rows, tf.float32))


def one_file(rank: int, framework: str, path: str, locking: bool) -> None:
    """WRONG: every worker opens the same file, and writes a group that no other one writes."""
    try:
        file = h5py.File(path, "r+", locking=locking)
    finally:
        together()
    with file:
        group = file.create_group(f"worker-{rank}")
        for name in ("row", "score"):
            group.create_dataset(name, (0,), "f4", maxshape=(None,))
        for step, (rows, scores) in enumerate(outputs(framework, rank), 1):
            for name, values in (("row", rows), ("score", scores)):
                group[name].resize(step * BATCH, axis=0)
                group[name][-BATCH:] = values


def one_file_each(rank: int, framework: str, run: str) -> None:
    """RIGHT: every worker writes its own files, and commits; `merge` makes one of them."""
    with sk.hdf5.WorkerFile(run, sk.World(rank, WORKERS)) as out:
        for rows, scores in outputs(framework, rank):
            out.append("row", rows)
            out.append("score", scores)
        out.commit(step=STEPS)


def in_the_file(_: int, path: str) -> list[int]:
    """Return the numbers of the rows that have their score."""
    found: list[int] = []
    with h5py.File(path, locking=False) as file:
        groups = [file] if "row" in file else [file[name] for name in file]
        for group in groups:
            rows, scores = group["row"][:], group["score"][:]
            found += [int(row) for row, score in zip(rows, scores, strict=True) if abs(score**2 - row) < 0.1]
    return found


def main(framework: str) -> int:
    with tempfile.TemporaryDirectory() as folder, Processes(WORKERS) as workers:
        expected = range(WORKERS * STEPS * BATCH)
        heading(f"{WORKERS} workers of {framework} write results")
        outcomes = []
        for title, locking in (("one file, HDF5's locks", True), ("one file, without locks", False)):
            path = os.path.join(folder, f"{locking}.h5")
            h5py.File(path, "w").close()
            errors = [one for one in workers.run(one_file, framework, path, locking) if one is not None]
            outcomes.append(show(title, expected, [*errors, workers.run(in_the_file, path)[0]]))
        workers.run(one_file_each, framework, os.path.join(folder, "run"))
        merged = os.path.join(folder, "merged.h5")
        sk.hdf5.merge(os.path.join(folder, "run"), merged)
        outcomes.append(show("one file each, and a merge", expected, [in_the_file(0, merged)]))
    return finish(outcomes, [False, False, True])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
