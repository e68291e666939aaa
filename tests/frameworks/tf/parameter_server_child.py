"""One process of a cluster with a parameter server, for test_parameter_server.py.

`python -m tests.frameworks.tf.parameter_server_child FOLDER`, with TF_CONFIG.
"""

from __future__ import annotations

import json
import os
import sys
import time
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


def coordinate(folder: Path) -> None:
    paths = sorted(map(str, folder.glob("*.tfrecord")))
    loader = make_loader(paths, epochs=2)
    steps = StepReader(loader)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        total = tf.Variable(0, dtype=tf.int64)
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
        "audit": str(sk.plan.audit([loader.receipt()])),
        "ok": sk.plan.audit([loader.receipt()]).ok,
    }
    (folder / "answer").write_text(json.dumps(answer))
    os.replace(folder / "answer", folder / "answer.json")


if __name__ == "__main__":
    task = json.loads(os.environ["TF_CONFIG"])["task"]["type"]
    coordinate(Path(sys.argv[1])) if task == "chief" else serve()
