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
    return Loader(list(paths), features, batch, World(0, 1), shuffle="blocks")


def for_keras(batch):
    return batch["image_raw"], batch["label"], tf.cast(batch["valid"], tf.float32)


@functools.cache
def model(kind):
    """Return a small network for "train"; for "fit" one that costs little, so that the input decides."""
    import keras
    from keras.layers import Conv2D, Dense, Flatten, MaxPooling2D

    convolutions = [Conv2D(32, 3, activation="relu"), MaxPooling2D(), Conv2D(64, 3, activation="relu")]
    layers = convolutions if kind == "train" else []
    one = keras.Sequential([keras.Input((32, 32, 3)), *layers, Flatten(), Dense(10)])
    one.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return one


def repeated(paths, batch):
    """Return one batch again and again, as often as the loader has batches."""
    elements = for_keras(loader(paths, batch).peek())
    return tf.data.Dataset.from_tensors(elements).repeat(loader(paths, batch).steps_per_epoch)


@functools.cache
def dataset(name, paths, batch):
    """Return a dataset, traced once for all turns: each iteration of ours is the next epoch."""
    if name == "tutorial":
        return DATASETS["png usual"](list(paths), batch)
    if name == "repeated":
        return repeated(paths, batch)
    return to_dataset(loader(paths, batch), for_keras)


def drained(batches):
    for _ in batches:
        pass


def run(job, paths, batch):
    """Run "adapter [processor] [fit | train] NAME"; the seconds of "processor" are those of all threads.

    The tutorial's input and the network, which are slow, take a quarter of the files.
    """
    words = job.split()[1:]
    paths = tuple(paths[: len(paths) // 4] if {"tutorial", "train"} & {*words} else paths)
    clock = time.process_time if "processor" in words else time.perf_counter
    records = loader(paths, batch).positions
    start = clock()
    if words[-1] == "loader":
        drained(loader(paths, batch))
    elif len(words) > 1 and words[-2] in {"fit", "train"}:
        model(words[-2]).fit(dataset(words[-1], paths, batch), shuffle=False, verbose=0)
    else:
        drained(dataset(words[-1], paths, batch))
    return clock() - start, records


if __name__ == "__main__":
    serve({"tensorflow": tf.__version__}, run)
