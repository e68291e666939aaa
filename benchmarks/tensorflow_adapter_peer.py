"""Jobs of the TensorFlow adapter and of what it is compared with, in an interpreter with TensorFlow."""

import functools
import time

import tensorflow as tf

from benchmarks.peer_loop import serve
from benchmarks.tensorflow_peer import DATASETS
from shardkeep import FixedLen, Image, Loader, World
from shardkeep.adapters.tensorflow import to_dataset


def loader(paths, batch):
    features = {"image_raw": Image(size=(32, 32)), "label": FixedLen()}
    return Loader(paths, features, batch, World(0, 1), shuffle="blocks")


def for_keras(batch):
    return batch["image_raw"], batch["label"], tf.cast(batch["valid"], tf.float32)


@functools.cache
def model():
    """Return a model that costs little, so that the input decides."""
    import keras

    one = keras.Sequential([keras.Input((32, 32, 3)), keras.layers.Flatten(), keras.layers.Dense(10)])
    one.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return one


def repeated(paths, batch):
    """Return one batch again and again, as often as the loader has batches."""
    elements = for_keras(loader(paths, batch).peek())
    return tf.data.Dataset.from_tensors(elements).repeat(loader(paths, batch).steps_per_epoch)


def drained(dataset):
    for _ in dataset:
        pass


JOBS = {
    "loader": lambda paths, batch: drained(loader(paths, batch)),
    "to_dataset": lambda paths, batch: drained(to_dataset(loader(paths, batch))),
    "fit to_dataset": lambda paths, batch: model().fit(
        to_dataset(loader(paths, batch), for_keras), shuffle=False, verbose=0
    ),
    "fit repeated": lambda paths, batch: model().fit(repeated(paths, batch), shuffle=False, verbose=0),
    "fit tutorial": lambda paths, batch: model().fit(
        DATASETS["png usual"](paths, batch), shuffle=False, verbose=0
    ),
    "drained tutorial": lambda paths, batch: drained(DATASETS["png usual"](paths, batch)),
}


def run(job, paths, batch):
    """Run "adapter JOB", or "adapter processor JOB", whose seconds are those of the processors."""
    name = job.removeprefix("adapter ")
    clock = time.process_time if name.startswith("processor ") else time.perf_counter
    start = clock()
    JOBS[name.removeprefix("processor ")](paths, batch)
    return clock() - start, loader(paths, batch).positions


if __name__ == "__main__":
    serve({"tensorflow": tf.__version__}, run)
