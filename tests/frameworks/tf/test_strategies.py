"""Batches divided among the replicas of a strategy: states, loops in functions, refusals; the audit as judge.

Covers `shardkeep.adapters.tensorflow.strategies`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

import numpy as np  # noqa: E402

import shardkeep as sk  # noqa: E402
from shardkeep.adapters.tensorflow import distribute, local_rows  # noqa: E402
from tests.frameworks.exactly_once import RECORDS, bare, judge, make_loader  # noqa: E402

# Before any test of this process uses a device.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)


@pytest.fixture(scope="module")
def mirrored() -> Any:
    devices = ["CPU:0", "CPU:1"]
    return tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())


def of(strategy: Any, batch: Any) -> list[int]:
    local = local_rows(strategy, batch)
    return local["x"][local["valid"]].tolist()


def test_the_state_is_that_of_the_steps_that_were_made(
    mirrored: Any, paths: list[str], tmp_path: Path
) -> None:
    batches, resumed = (distribute(mirrored, lambda context: make_loader(paths)) for _ in range(2))
    assert batches.dataset.element_spec["x"]._value_specs[0].shape == [8]
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


def test_a_rank_that_is_not_the_input_pipeline_is_refused(paths: list[str]) -> None:
    class Strategy:
        def distribute_datasets_from_function(self, make: Any) -> Any:
            return make(tf.distribute.InputContext(2, 1, 2))

    with pytest.raises(sk.PlanError, match=r"rank 0 of 1, but .* pipeline 1 of 2: pass world=World\(1, 2\)"):
        distribute(Strategy(), lambda context: make_loader(paths))
