"""The `image_raw`/`label` input of several GPUs: a MirroredStrategy of two replicas.

The replicas are two logical processors, so that this runs anywhere; with GPUs only the names of the devices
differ. All replicas make each step together, so an input per GPU ends with the shortest one.

    python examples/recipes/tensorflow_images.py
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf
from recipe import finish, heading, png, show, write_shards

import shardkeep as sk
from shardkeep.adapters.tensorflow import distribute, local_rows

GPUS = 2
COUNTS = (60, 31)


def images_of(files: list[str]) -> tf.data.Dataset:
    """Return the images as tutorials read them."""

    def parse(record: Any) -> dict[str, Any]:
        number = tf.io.FixedLenFeature([], tf.int64)
        features = {"image_raw": tf.io.FixedLenFeature([], tf.string), "label": number, "number": number}
        example = tf.io.parse_single_example(record, features)
        image = tf.image.convert_image_dtype(tf.io.decode_png(example["image_raw"], 1), tf.float32)
        return {**example, "image_raw": tf.ensure_shape(image, (8, 8, 1)), "valid": True}

    return tf.data.TFRecordDataset(files).map(parse)


def in_turn(strategy: Any, inputs: list[tf.data.Dataset]) -> Iterable[Any]:
    for parts in zip(*(one.batch(8) for one in inputs), strict=False):
        yield strategy.experimental_distribute_values_from_function(
            lambda context, parts=parts: parts[context.replica_id_in_sync_group]
        )


def input_of_each_gpu(strategy: Any, files: list[str]) -> Iterable[Any]:
    """WRONG: each GPU reads all images."""
    return in_turn(strategy, [images_of(files) for _ in range(GPUS)])


def files_of_each_gpu(strategy: Any, files: list[str]) -> Iterable[Any]:
    """WRONG: a step needs all GPUs, so the epoch ends with the GPU that has the fewest images."""
    return in_turn(strategy, [images_of(files[gpu::GPUS]) for gpu in range(GPUS)])


def full_batches(strategy: Any, files: list[str]) -> Iterable[Any]:
    """WRONG: batches of one shape, without the images of the last one."""
    return strategy.experimental_distribute_dataset(images_of(files).batch(8 * GPUS, drop_remainder=True))


def loader(strategy: Any, files: list[str]) -> Iterable[Any]:
    """RIGHT: batches of one shape for all GPUs, in which `valid` marks the images."""
    features = {"image_raw": sk.Image(1, size=(8, 8)), "label": sk.FixedLen(), "number": sk.FixedLen()}

    def make_loader(context: tf.distribute.InputContext) -> sk.Loader:
        world = sk.World(context.input_pipeline_id, context.num_input_pipelines)
        return sk.Loader(files, features, 8 * GPUS, world, shuffle="global")

    return distribute(strategy, make_loader)


def train(strategy: Any, batches: Iterable[Any]) -> list[int]:
    """Train for an epoch; return the numbers of the images that were used."""
    with strategy.scope():
        weights = tf.Variable(tf.zeros((64, 10)), aggregation=tf.VariableAggregation.SUM)

    @tf.function
    def step(batch: dict[str, Any]) -> Any:
        def replica(batch: dict[str, Any]) -> Any:
            valid = batch["valid"]
            with tf.GradientTape() as tape:
                logits = tf.reshape(batch["image_raw"], (-1, 64)) @ weights
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["label"], logits)
                loss = tf.reduce_sum(losses * tf.cast(valid, tf.float32)) / (8 * GPUS)
            weights.assign_sub(0.1 * tape.gradient(loss, weights))
            return tf.boolean_mask(batch["number"], valid)

        return strategy.run(replica, args=(batch,))

    used: list[int] = []
    for batch in batches:
        used += local_rows(strategy, step(batch)).tolist()
    return used


def main() -> int:
    cpus = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpus[0], [tf.config.LogicalDeviceConfiguration()] * GPUS)
    strategy = tf.distribute.MirroredStrategy([f"CPU:{gpu}" for gpu in range(GPUS)])
    with tempfile.TemporaryDirectory() as folder:
        files = write_shards(
            folder, COUNTS, image_raw=lambda number: png(8, number), label=lambda number: number % 10
        )
        heading(f"{GPUS} replicas train with {sum(COUNTS)} images")
        inputs: tuple[tuple[str, Callable[[Any, list[str]], Iterable[Any]]], ...] = (
            ("an input of all files for each GPU", input_of_each_gpu),
            ("a file for each GPU", files_of_each_gpu),
            ("batch(drop_remainder=True)", full_batches),
            ("a Loader, distributed", loader),
        )
        outcomes = [
            show(title, range(sum(COUNTS)), [train(strategy, input_of(strategy, files))])
            for title, input_of in inputs
        ]
    return finish(outcomes, [False, False, False, True])


if __name__ == "__main__":
    sys.exit(main())
