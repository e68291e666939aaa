"""One process of a cluster with a parameter server.

`python -m tests.frameworks.consumers.programs.server_run FOLDER [checkpoints]`, with TF_CONFIG.
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import islice
from pathlib import Path

import tensorflow as tf

import shardkeep as sk
from shardkeep.adapters.tensorflow import StepReader
from tests.frameworks.exactly_once import make_loader


def serve() -> None:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )
    server.join()


def set_up(folder: Path) -> tuple[StepReader, tf.distribute.coordinator.ClusterCoordinator, tf.Variable]:
    """Return the steps of two epochs, the coordinator, and a variable on the parameter server."""
    paths = sorted(map(str, folder.glob("*.tfrecord")))
    steps = StepReader(make_loader(paths, epochs=2))
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        total = tf.Variable(0, dtype=tf.int64)
    return steps, coordinator, total


def coordinate(folder: Path) -> None:
    steps, coordinator, total = set_up(folder)
    loader = steps.loader
    reads: list[int] = []
    read = steps._read

    def recorded(number: int) -> object:
        reads.append(int(number))
        time.sleep(0.05)
        return read(number)

    steps._read = recorded  # type: ignore[method-assign]

    @tf.function
    def train(number):  # type: ignore[no-untyped-def]
        batch = steps.read(number)
        rows = tf.boolean_mask(batch["x"], batch["valid"])
        total.assign_add(tf.reduce_sum(rows))
        return number, rows

    results, states = [], []
    for number in steps:
        results.append(coordinator.schedule(train, args=(number,)))
        if len(results) == 5:
            coordinator.join()
            steps.consume()
            states.append(loader.state_dict())
            (folder / "ready").touch()
    coordinator.join()
    steps.consume()
    by_number = {int(number): rows.tolist() for number, rows in map(coordinator.fetch, results)}
    answer = {
        "batches": [by_number[number] for number in sorted(by_number)],
        "reads": sorted(reads),
        "total": int(total.numpy()),
        "state": states[0],
        "receipt": loader.receipt(),
    }
    (folder / "answer").write_text(json.dumps(answer))
    os.replace(folder / "answer", folder / "answer.json")


def coordinate_with_checkpoints(folder: Path) -> None:
    """Train to the end from the last checkpoint; without one, wait for a kill in the third group of steps."""
    steps, coordinator, total = set_up(folder)
    loader = steps.loader

    @tf.function
    def train(number):  # type: ignore[no-untyped-def]
        batch = steps.read(number)
        rows = tf.boolean_mask(batch["x"], batch["valid"])
        total.assign_add(tf.reduce_sum(rows))
        return rows

    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(total=total, data=steps), str(folder / "checkpoints"), max_to_keep=2
    )
    is_first = manager.restore_or_initialize() is None

    def rows_made() -> int:
        return loader.epoch * loader.positions + loader.position

    with sk.hdf5.WorkerFile(folder / "run", sk.World(0, 1)) as out:
        out.rollback(step=rows_made() or None)
        numbers = iter(steps)
        while group := list(islice(numbers, 5)):
            results = [coordinator.schedule(train, args=(number,)) for number in group]
            if is_first and rows_made() == 160:
                (folder / "ready").touch()
                while not (folder / "killed").exists():
                    time.sleep(0.01)
            coordinator.join()
            for rows in map(coordinator.fetch, results):
                out.append("x", rows)
            steps.consume()
            out.commit(step=rows_made(), receipt=loader.receipt(), state=loader.state_dict())
            manager.save(rows_made())
    (folder / "total").write_text(str(int(total.numpy())))


if __name__ == "__main__":
    task = json.loads(os.environ["TF_CONFIG"])["task"]["type"]
    run = coordinate_with_checkpoints if sys.argv[2:] else coordinate
    run(Path(sys.argv[1])) if task == "chief" else serve()
