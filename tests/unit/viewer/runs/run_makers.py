"""Runs with receipts, for the tests of this folder and the browser tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shardkeep import Loader, World
from shardkeep.hdf5 import WorkerFile
from shardkeep.tfrecord import Writer

BATCH = 5


def write_shards(folder: Path, shards: int = 3, records: int = 40) -> list[str]:
    """Write small shards of Examples; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [str(folder / f"a-{number}.tfrecord") for number in range(shards)]
    for path in paths:
        with Writer(path) as writer:
            for label in range(records):
                writer.write_example({"label": label})
    return paths


def train(
    run: Path,
    paths: list[str],
    steps: list[int],
    *,
    state: dict[str, Any] | None = None,
    begin: int = 0,
    **options: Any,
) -> dict[str, Any]:
    """Deliver `steps[rank]` steps on each rank and commit a receipt; return the state of rank 0."""
    states = []
    for rank, count in enumerate(steps):
        world = World(rank=rank, size=len(steps))
        loader = Loader(paths, batch_size=BATCH, world=world, epochs=None, **{"shuffle": "global", **options})
        if state is not None:
            loader.load_state_dict(state)
        batches = iter(loader)
        with WorkerFile(run, world) as out:
            for _ in range(count):
                next(batches)
            out.append("loss", [0.5])
            out.commit(step=begin + count, receipt=loader.receipt())
        states.append(loader.state_dict())
    return states[0]
