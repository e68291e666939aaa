"""Batches divided among the replicas of a strategy, in one process and in several; the audit as judge.

Covers `shardkeep.adapters.tensorflow.strategies`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

import keras  # noqa: E402
import numpy as np  # noqa: E402

import shardkeep as sk  # noqa: E402
from shardkeep.adapters.tensorflow import distribute, local_rows, to_dataset  # noqa: E402
from tests.frameworks.exactly_once import RECORDS, bare, judge, make_loader, write_shards  # noqa: E402
from tests.waiting import PATIENCE_S  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")

STEPS = 14

# Before any test of this process uses a device.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_shards(tmp_path_factory.mktemp("shards"))


@pytest.fixture(scope="module")
def mirrored() -> Any:
    devices = ["CPU:0", "CPU:1"]
    return tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())


def of(strategy: Any, batch: Any) -> list[int]:
    local = local_rows(strategy, batch)
    return local["x"][local["valid"]].tolist()


@pytest.mark.parametrize("remainder", ["mask", "short"])
def test_two_replicas_have_each_epoch_of_the_loader(mirrored: Any, paths: list[str], remainder: str) -> None:
    loaders = []

    def make(context: Any) -> sk.Loader:
        loaders.append(make_loader(paths, remainder=remainder))
        return loaders[-1]

    def with_mask(batch: Any) -> Any:
        return {"valid": tf.ones_like(batch["x"], tf.bool), **batch}

    batches = distribute(mirrored, make, with_mask)
    assert len(batches) == STEPS
    size = 8 if remainder == "mask" else None
    assert batches.dataset.element_spec["x"]._value_specs[0].shape.as_list() == [size]
    passes = [[of(mirrored, batch) for batch in batches] for _ in range(3)]
    assert passes == bare(paths, 3)
    assert len(loaders) == 1
    assert sk.plan.audit([loaders[0].receipt()]).ok


def test_the_state_is_that_of_the_steps_that_were_made(
    mirrored: Any, paths: list[str], tmp_path: Path
) -> None:
    batches, resumed = (distribute(mirrored, lambda context: make_loader(paths)) for _ in range(2))
    seen = []
    for batch in batches:
        seen.append(of(mirrored, batch))
        if len(seen) == 5:
            break
    assert batches.loader.position == 80
    path = tf.train.Checkpoint(data=batches).save(str(tmp_path / "state"))
    tf.train.Checkpoint(data=resumed).restore(path).assert_consumed()
    seen += [of(mirrored, batch) for batch in resumed]
    assert seen == bare(paths, 1)[0]
    receipts = [batches.loader.receipt(), resumed.loader.receipt()]
    judge([[row for batch in seen for row in batch]], receipts)


def test_a_loop_in_a_function_counts_its_steps(mirrored: Any, paths: list[str]) -> None:
    batches = distribute(mirrored, lambda context: make_loader(paths))

    @tf.function
    def train(iterator: Any, steps: int) -> Any:
        total = tf.constant(0, tf.int64)
        for _ in range(steps):
            x = mirrored.run(lambda batch: tf.reduce_sum(batch["x"]), args=(next(iterator),))
            total += mirrored.reduce("SUM", x, axis=None)
        return total

    iterator = iter(batches.dataset)
    total = int(train(iterator, 6))
    batches.consume(6)
    assert batches.loader.position == 96
    total += int(train(iterator, 8))
    batches.consume(8)
    assert total == sum(range(RECORDS))
    assert sk.plan.audit([batches.loader.receipt()]).ok
    with pytest.raises(sk.PlanError, match="more steps were consumed than read"):
        batches.consume()


class Rows(keras.metrics.Metric):  # type: ignore[misc]
    """The number of rows with a weight, and the sum of their targets."""

    def __init__(self) -> None:
        super().__init__(name="rows")
        self.count = self.add_weight(name="count", initializer="zeros")
        self.sum = self.add_weight(name="sum", initializer="zeros")

    def update_state(self, y: Any, predicted: Any, sample_weight: Any = None) -> None:
        self.count.assign_add(tf.reduce_sum(sample_weight))
        self.sum.assign_add(tf.reduce_sum(y[:, 0] * sample_weight))

    def result(self) -> Any:
        return self.sum * 1000 + self.count


def for_keras(batch: dict[str, Any]) -> tuple[Any, Any, Any]:
    x = tf.cast(batch["x"], tf.float32)[:, tf.newaxis]
    return x, x, tf.cast(batch["valid"], tf.float32)


def fitted(strategy: Any, dataset: Any, epochs: int, each_step: Any = None) -> list[int]:
    """Return the fingerprint of the rows of each epoch of `fit`."""
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.0), "mse", weighted_metrics=[Rows()])
    callbacks = [] if each_step is None else [keras.callbacks.LambdaCallback(on_train_batch_end=each_step)]
    history = model.fit(dataset, epochs=epochs, verbose=0, callbacks=callbacks)
    return [round(value) for value in history.history["rows"]]


def fingerprint(rows: Any) -> int:
    return sum(rows) * 1000 + len(rows)


ALL = fingerprint(range(RECORDS))


@pytest.mark.parametrize("divided", [False, True])
def test_keras_trains_replicas_on_each_epoch_once(mirrored: Any, paths: list[str], divided: bool) -> None:
    loader = make_loader(paths)
    if divided:
        batches = distribute(mirrored, lambda context: loader, for_keras)
        seen = fitted(mirrored, batches.dataset, 3, lambda batch, logs: batches.consume())
    else:
        seen = fitted(mirrored, to_dataset(loader, for_keras), 3)
    assert seen == [ALL] * 3
    assert loader.epoch == 3
    assert sk.plan.audit([loader.receipt()]).ok


def test_keras_trains_whole_epochs_after_a_resumed_one(mirrored: Any, paths: list[str]) -> None:
    first, later = make_loader(paths), make_loader(paths)
    used = [of(mirrored, batch) for _, batch in zip(range(8), to_dataset(first), strict=False)]
    later.load_state_dict(first.state_dict())
    batches = distribute(mirrored, lambda context: later, for_keras)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Your input ran out of data")
        seen = fitted(mirrored, batches.dataset, 3, lambda batch, logs: batches.consume())
    assert seen == [ALL - fingerprint([row for batch in used for row in batch]), ALL, ALL]
    assert sk.plan.audit([first.receipt(), later.receipt()]).ok


def test_batches_that_cannot_be_divided_are_refused(mirrored: Any, paths: list[str]) -> None:
    with pytest.raises(sk.PlanError, match="batch_size=15 cannot be divided among 2 replicas"):
        distribute(mirrored, lambda context: make_loader(paths, batch_size=15))


def test_local_rows_join_ragged_rows_and_scalars(mirrored: Any, paths: list[str]) -> None:
    features = {"v": sk.VarLen("float32"), "s": sk.FixedLen(dtype="bytes")}
    batches = distribute(mirrored, lambda context: sk.Loader(paths, features, 8, sk.World(0, 1)))
    local = local_rows(mirrored, next(iter(batches)))
    assert isinstance(local["v"], sk.Ragged)
    assert local["v"].lengths.tolist() == [1 + i % 4 for i in range(8)]
    assert local["s"].tolist() == [b"s" * (i % 3) for i in range(8)]
    totals = mirrored.run(lambda: tf.constant(2.5))
    assert local_rows(mirrored, totals).tolist() == [2.5, 2.5]
    assert np.asarray(local["valid"]).all()


def run_workers(folder: Path, size: int, *arguments: str) -> list[dict[str, Any]]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(size)]
    cluster = {"worker": [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]}
    for one in sockets:
        one.close()
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.frameworks.tf.multi_worker_child", str(folder), *arguments],
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


def test_two_workers_and_then_one_have_every_record_once(tmp_path: Path) -> None:
    write_shards(tmp_path)
    first = run_workers(tmp_path, 2, "4")
    assert [one["rows of all ranks"] for one in first] == [4 * 32] * 2
    run_workers(tmp_path, 1)
    merged = tmp_path / "merged.h5"
    sk.merge(tmp_path / "run", merged)
    with sk.hdf5.open(merged) as f:
        assert sorted(f["x"][:].tolist()) == sorted(list(range(RECORDS)) * 2)
    audit = sk.audit(merged, epochs=[0, 1])
    assert audit.ok, audit


def test_a_rank_that_is_not_the_input_pipeline_is_refused(paths: list[str]) -> None:
    class Strategy:
        def distribute_datasets_from_function(self, make: Any) -> Any:
            return make(tf.distribute.InputContext(2, 1, 2))

    with pytest.raises(sk.PlanError, match=r"rank 0 of 1, but .* pipeline 1 of 2: pass world=World\(1, 2\)"):
        distribute(Strategy(), lambda context: make_loader(paths))
