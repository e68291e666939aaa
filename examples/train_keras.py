"""Training with Keras that is killed and resumed, and predictions of several processes in one HDF5 file.

A classifier is trained from TFRecords. The training is killed in the middle of an epoch and again while it
saves, and each time the same command continues it with the batch after its last backup. Two processes then
predict the class of every record, one of them is killed and continues, and their files are merged. The
audits prove that no record was lost or used twice. Runs on TensorFlow, torch and jax:

    KERAS_BACKEND=jax python examples/train_keras.py
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from typing import Any

import keras
import numpy as np

import shardkeep as sk
from shardkeep.adapters.keras import BackupAndRestore, PyDataset, WorkerFileLogger

EPOCHS, BATCH, RANKS = 3, 32, 2
COUNTS = (11, 400, 33, 600, 5, 251)  # records of each shard
FEATURES = {"x": sk.FixedLen((8,), "float32"), "label": sk.FixedLen()}


def train(folder: str, *more: Any) -> None:
    world = sk.World(0, 1)
    loader = sk.Loader(f"{folder}/*.tfrecord", FEATURES, BATCH, world, shuffle="global")
    data = PyDataset(loader, "x", "label")
    model = make_model()
    with sk.hdf5.WorkerFile(f"{folder}/training", world) as out:
        callbacks = [
            WorkerFileLogger(data, out),
            BackupAndRestore(data, f"{folder}/backup", save_freq=10),
            *more,
        ]
        model.fit(data, epochs=EPOCHS, shuffle=False, callbacks=callbacks, verbose=0)
    model.save(f"{folder}/model.keras")


def predict(folder: str, world: sk.World, *more: Any) -> None:
    loader = sk.Loader(f"{folder}/*.tfrecord", FEATURES, BATCH, world, with_ids=True)
    model = keras.models.load_model(f"{folder}/model.keras")
    with sk.hdf5.WorkerFile(f"{folder}/predictions", world) as out:
        if out.committed_state:
            loader.load_state_dict(out.committed_state)
        data = PyDataset(loader, "x")
        model.predict(data, callbacks=[WorkerFileLogger(data, out, commit_freq=5), *more], verbose=0)


def make_model() -> keras.Model:
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(2)]
    )
    # `weighted_metrics` leave out the padding of the last batch, `metrics` do not.
    model.compile(
        "adam",
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=["sparse_categorical_accuracy"],
    )
    return model


class Kill(keras.callbacks.Callback):
    """Kills this process after a number of batches, as a scheduler or the kernel would."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)

    on_predict_batch_end = on_train_batch_end


def write_shards(folder: str) -> None:
    rng = np.random.default_rng(0)
    for number, count in enumerate(COUNTS):
        with sk.tfrecord.Writer(f"{folder}/{number}.tfrecord") as writer:
            for x in rng.normal(size=(count, 8)).astype(np.float32):
                writer.write_example({"x": x, "label": int(x.sum() > 0)})


def start(*arguments: object) -> int:
    """Run this program in another process, and return its exit code."""
    return subprocess.run([sys.executable, __file__, *map(str, arguments)], check=False).returncode


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        write_shards(folder)
        print(f"{sum(COUNTS)} records in {len(COUNTS)} shards, Keras on {keras.backend.backend()}")
        for after in (25, 41, 0):
            code = start("train", folder, after)
            print("the training was killed" if code == -signal.SIGKILL else f"the training ended: {code}")
        for rank, after in ((0, 0), (1, 12), (1, 0)):
            code = start("predict", folder, after, rank)
            print(f"rank {rank} was killed" if code == -signal.SIGKILL else f"rank {rank} predicted: {code}")

        exact = True
        for name, epochs in (("training", EPOCHS), ("predictions", 1)):
            sk.hdf5.merge(f"{folder}/{name}", f"{folder}/{name}.h5")
            audit = sk.plan.audit(sk.hdf5.receipts(f"{folder}/{name}.h5"), epochs=range(epochs))
            print(f"{name}: {audit}".replace("\n", f"\n{name}: "))
            exact &= audit.ok
        with sk.hdf5.open(f"{folder}/training.h5") as merged:
            losses = merged["logs/loss"][:]
            exact &= len(losses) == EPOCHS
        with sk.hdf5.open(f"{folder}/predictions.h5") as merged:
            logits, shard = merged["predictions"][:], merged["shard"][:]
            exact &= np.bincount(shard).tolist() == list(COUNTS)
        print(f"loss of each epoch {losses.round(2).tolist()}, {np.argmax(logits, 1).mean():.0%} of class 1")
    print("each record was trained on once in each epoch, and predicted once" if exact else "NOT exact")
    return 0 if exact else 1


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(main())
    kind, place, number, *rest = sys.argv[1:]
    kill = [Kill(int(number))] if int(number) else []
    if kind == "train":
        train(place, *kill)
    else:
        predict(place, sk.World(int(rest[0]), RANKS), *kill)
