"""Estimator under MirroredStrategy on two logical CPUs.

Arguments: folder, and the step after which the process kills itself (0: it ends).
"""

from __future__ import annotations

import glob
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

import shardkeep as sk
from shardkeep.adapters.tensorflow import RunHook
from tests.frameworks.exactly_once import make_loader

v1 = tf.compat.v1
REPLICAS = 2


class Kill(v1.train.SessionRunHook):  # type: ignore[misc]
    """SIGKILL after a number of steps of this process."""

    def __init__(self, after: int) -> None:
        self.left = after

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Count a step."""
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)


def parts(loader: sk.Loader) -> Iterator[dict[str, Any]]:
    """Yield a part of each batch for each replica, so that no replica lacks one; the last has the place."""
    rows = loader.batch_size // REPLICAS
    for batch, place in loader.read_ahead():
        for replica in range(REPLICAS):
            mine = slice(replica * rows, (replica + 1) * rows)
            numbers = place.to_array() if replica == REPLICAS - 1 else np.zeros(0, np.int64)
            yield {"x": batch["x"][mine], "valid": batch["valid"][mine], "place": numbers}


def model_fn(features: dict[str, Any], mode: str) -> Any:
    """Return a model of one weight; each replica adds what it fetches to a collection of the graph."""
    x = tf.boolean_mask(features["x"], features["valid"])
    v1.add_to_collection("rows", x)
    v1.add_to_collection("places", features["place"])
    weight = v1.get_variable("weight", ())
    loss = tf.reduce_sum(weight * tf.cast(x, tf.float32)) / 1e6
    train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def main() -> None:
    """Train two epochs, or until the kill."""
    folder, kill_after = sys.argv[1], int(sys.argv[2])
    loader = make_loader(sorted(glob.glob(f"{folder}/*.tfrecord")), epochs=2)

    def input_fn() -> Any:
        rows = loader.batch_size // REPLICAS
        signature = {
            "x": tf.TensorSpec((rows,), tf.int64),
            "valid": tf.TensorSpec((rows,), tf.bool),
            "place": tf.TensorSpec((None,), tf.int64),
        }
        return tf.data.Dataset.from_generator(lambda: parts(loader), output_signature=signature)

    strategy = tf.distribute.MirroredStrategy(
        [f"/cpu:{replica}" for replica in range(REPLICAS)],
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )
    config = tf.estimator.RunConfig(
        f"{folder}/log",
        save_checkpoints_steps=10,
        train_distribute=strategy,
        session_config=v1.ConfigProto(device_count={"CPU": REPLICAS}),
    )
    with sk.hdf5.WorkerFile(f"{folder}/run", sk.World(0, 1)) as out:
        hook = RunHook(
            out,
            lambda: {"x": tf.concat(v1.get_collection("rows"), 0)},
            config.model_dir,
            data=loader,
            place=lambda: v1.get_collection("places"),
        )
        tf.estimator.Estimator(model_fn, config=config).train(input_fn, hooks=[hook, Kill(kill_after)])
        sys.stdout.write(f"ended {out.committed_step}\n")


if __name__ == "__main__":
    physical = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(physical, [tf.config.LogicalDeviceConfiguration()] * REPLICAS)
    main()
