"""Jobs of the Keras adapter, in the programs of torch and JAX, which set KERAS_BACKEND."""

import keras
import numpy as np

from shardkeep.adapters.keras import LoaderProgress, PyDataset


def batches(loader):
    """Yield the batches of a loader as Keras takes them, without a place."""
    for batch in loader:
        yield batch["image_raw"], batch["label"], batch["valid"].astype(np.float32)


def repeated(batch):
    """Yield one batch without an end; Keras takes generators only."""
    while True:
        yield batch


def run(kind, loader):
    """Yield before an epoch, after a first step; then the number of its images."""
    steps = loader.steps_per_epoch
    images = loader.positions
    if kind in ("drained", "loader"):
        source = PyDataset(loader, "image_raw", "label") if kind == "drained" else batches(loader)
        yield
        assert sum(1 for _ in source) == steps
        yield images
        return
    first = next(batches([loader.peek()]))
    layers = [keras.Input(first[0].shape[1:]), keras.layers.Flatten(), keras.layers.Dense(10)]
    model = keras.Sequential(layers)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(repeated(first), steps_per_epoch=2, verbose=0)
    if kind == "fit":
        source = PyDataset(loader, "image_raw", "label")
        options = {"callbacks": [LoaderProgress(source)], "shuffle": False}
    else:
        source = batches(loader) if kind == "generator" else repeated(first)
        options = {"steps_per_epoch": steps}
    yield
    model.fit(source, verbose=0, **options)
    yield images
