"""TensorFlow: tf.data in its own loops and in `fit`, the replicas and the servers of strategies."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

import shardkeep as sk
from shardkeep.adapters.tensorflow import StepReader, distribute, local_rows, to_dataset
from tests.frameworks.consumers.drivers import Driver, Passes, after_a_peek, by_length, loop
from tests.frameworks.consumers.program_runs import PROGRAMS, merged_epochs
from tests.frameworks.consumers.stories import Answer, case, cases, endless, resumed, resumed_by_two, whole
from tests.frameworks.exactly_once import RECORDS, rows, write_shards
from tests.waiting import PATIENCE_S

# Before any test of this process uses a device.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)


def of(batch: Any) -> list[int]:
    return rows({name: tensor.numpy() for name, tensor in batch.items()})


# -- loops ---------------------------------------------------------------------------------------------------


def dataset(consume: Any = None, *options: Any) -> Driver:
    """Return the driver of a loop over `to_dataset`."""
    return loop(lambda loader: to_dataset(loader, *options), *filter(None, [consume]), rows=of)


def steps_in_a_function(train: sk.Loader, epochs: int, stop: int | None = None) -> Passes:
    """Drive a loop in a traced function, which adds up the records; `repeat` begins each epoch."""
    seen: list[int] = []
    batches = to_dataset(train).repeat(epochs)

    @tf.function
    def run(batches: Any) -> None:
        for batch in batches:
            x = tf.boolean_mask(batch["x"], batch["valid"])
            tf.numpy_function(lambda values: seen.extend(values.tolist()), [x], [])

    run(batches)
    return [seen[first : first + RECORDS] for first in range(0, len(seen), RECORDS)]


class Steps(StepReader):
    """Batches by number, as a coordinator schedules them."""

    def __iter__(self) -> Iterator[Any]:
        for number in super().__iter__():
            batch = self.read(number)
            self.consume()
            yield batch


# -- strategies ----------------------------------------------------------------------------------------------


@cache
def mirrored() -> Any:
    devices = ["CPU:0", "CPU:1"]
    return tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())


def with_mask(batch: Any) -> Any:
    return {"valid": tf.ones_like(batch["x"], tf.bool), **batch}


def divided(loader: sk.Loader) -> Any:
    return distribute(mirrored(), lambda context: loader, with_mask)


def of_replicas(batch: Any) -> list[int]:
    return rows(local_rows(mirrored(), batch))


def run_workers(folder: Path, size: int, *arguments: str) -> list[dict[str, Any]]:
    """Run the workers of a MultiWorkerMirroredStrategy; return what they print."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(size)]
    cluster = {"worker": [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]}
    for one in sockets:
        one.close()
    workers = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                f"{PROGRAMS}.multi_worker_run",
                str(folder),
                *arguments,
            ],
            env={
                **os.environ,
                "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}}),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(size)
    ]
    outputs = [worker.communicate(timeout=PATIENCE_S) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * size, outputs
    return [json.loads(out) for out, _ in outputs]


def two_workers_and_then_one(folder: Path) -> Answer:
    """Train four steps on two workers, and the rest of two epochs on one."""
    write_shards(folder)
    first = run_workers(folder, 2, "4")
    assert [one["rows of all ranks"] for one in first] == [4 * 32] * 2
    run_workers(folder, 1)
    return merged_epochs(folder / "run", folder)


# -- fit -----------------------------------------------------------------------------------------------------


class Recorder(keras.Model):
    """A model that keeps the records that it trains on."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []
        self.dense = keras.layers.Dense(1)

    def call(self, x: Any) -> Any:
        tf.numpy_function(lambda values: self.seen.extend(values.ravel().astype(int).tolist()), [x], [])
        return self.dense(x)


class Epochs(keras.callbacks.Callback):
    """The records of each epoch; moves a loader after each step, and stops after some."""

    def __init__(self, stop: int | None, consume: Callable[[], None]) -> None:
        super().__init__()
        self.passes: Passes = []
        self.left, self.consume = stop or 0, consume

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.model.seen.clear()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.consume()
        self.left -= 1
        if not self.left:
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.passes.append([row for row in self.model.seen if row >= 0])


def for_keras(batch: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return x (-1 where it is padding), y and the weights."""
    x = tf.cast(tf.where(batch["valid"], batch["x"], -1), tf.float32)[:, tf.newaxis]
    return x, x, tf.cast(batch["valid"], tf.float32)


def fit(is_mirrored: bool = False, is_divided: bool = False) -> Driver:
    """Return the driver of `fit`, also with two replicas, of a dataset or of what `distribute` returns."""

    def train(loader: sk.Loader, epochs: int, stop: int | None = None) -> Passes:
        consume, strategy = bool, mirrored() if is_mirrored else tf.distribute.get_strategy()
        if is_divided:
            batches = distribute(strategy, lambda context: loader, for_keras)
            consume, data = batches.consume, batches.dataset
        else:
            data = to_dataset(loader, for_keras)
        with strategy.scope():
            model = Recorder()
            model.compile(keras.optimizers.SGD(0.0), "mse")
        passes = Epochs(stop, consume)
        steps = loader.steps_per_epoch if loader.epochs is None else None
        model.fit(data, epochs=epochs, steps_per_epoch=steps, verbose=0, callbacks=[passes])
        return passes.passes

    return train


# Keras 2 makes all epochs as long as the first one, also if that was a resumed rest, and does not know the
# length of a divided dataset.
KERAS_3 = pytest.mark.skipif(keras.__version__ < "3", reason="needs Keras 3")
SAME_LENGTH = "takes the length of a resumed epoch for all"
DIVIDED = fit(is_mirrored=True, is_divided=True)

CASES = [
    *cases("tf.data", dataset(), "iterates"),
    *cases("tf.data with map_func", dataset(None, dict), "reads ahead"),
    *cases("tf.data with 3 parallel map_func", dataset(None, dict, 3), "reads ahead"),
    case("ends by count", "tf.data", whole, dataset(by_length)),
    case("ends by count", "tf.data without an end", endless, dataset()),
    case("peeks", "tf.data", whole, dataset(after_a_peek)),
    case("peeks", "tf.data, resumed", resumed, dataset(after_a_peek)),
    case("ends by count", "a loop in a tf.function", whole, steps_in_a_function),
    case("reads ahead", "ParameterServerStrategy, by number", whole, loop(Steps, rows=of)),
    case("resumes", "ParameterServerStrategy, by number", resumed, loop(Steps, rows=of)),
    *(
        case(
            "drops the last batch without a partner",
            f"MirroredStrategy, {remainder}",
            whole,
            loop(divided, rows=of_replicas),
            remainder=remainder,
        )
        for remainder in ("mask", "short")
    ),
    case("ends by count", "MirroredStrategy", whole, loop(divided, by_length, of_replicas)),
    case("peeks", "MirroredStrategy", whole, loop(divided, after_a_peek, of_replicas)),
    case("resumes", "MirroredStrategy", resumed, loop(divided, rows=of_replicas)),
    case("resumes as two ranks", "MirroredStrategy", resumed_by_two, loop(divided, rows=of_replicas)),
    case("divides again", "MultiWorkerMirroredStrategy", two_workers_and_then_one),
    case("peeks", "fit", whole, fit()),
    case("ends by count", "fit without an end", endless, fit()),
    case("peeks", "fit, MirroredStrategy", whole, fit(is_mirrored=True), in_order=False),
    case("peeks", "fit, MirroredStrategy, distribute", whole, DIVIDED, in_order=False, marks=KERAS_3),
    case(SAME_LENGTH, "fit", resumed, fit(), marks=KERAS_3),
    case(
        SAME_LENGTH,
        "fit, MirroredStrategy, distribute",
        resumed,
        DIVIDED,
        in_order=False,
        marks=[KERAS_3, pytest.mark.filterwarnings("ignore:Your input ran out of data")],
    ),
]
