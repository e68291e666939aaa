"""The TensorFlow adapter, the bare loader, a repeated batch and the input of the guides."""

import functools

import tensorflow as tf

from benchmarks.peer_loop import serve
from benchmarks.peers.tfdata import DATASETS
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
    if name == "guide":
        return DATASETS["png usual"](list(paths), batch)
    if name == "repeated":
        return repeated(paths, batch)
    return to_dataset(loader(paths, batch), for_keras)


def drained(batches):
    for _ in batches:
        pass


def job(name, network=""):
    """Return a job; the guides' input and the network, which are slow, take a quarter of the files."""

    def run(files, batch, most):
        files = tuple(files[: len(files) // 4] if name == "guide" or network == "train" else files)
        records = loader(files, batch).positions
        yield
        if name == "loader":
            drained(loader(files, batch))
        elif network:
            model(network).fit(dataset(name, files, batch), shuffle=False, verbose=0)
        else:
            drained(dataset(name, files, batch))
        yield records

    return run


JOBS = {name: job(name) for name in ("loader", "to_dataset", "guide")}
JOBS |= {f"fit {name}": job(name, "fit") for name in ("to_dataset", "repeated", "guide")}
JOBS |= {f"train {name}": job(name, "train") for name in ("to_dataset", "repeated")}

if __name__ == "__main__":
    serve(JOBS, "tensorflow-cpu")
