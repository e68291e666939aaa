"""Global batches of JAX on the devices of one process.

Covers `shardkeep.adapters.jax`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import shardkeep as sk  # noqa: E402
from shardkeep.adapters.jax import make_global_batch  # noqa: E402
from tests.frameworks.exactly_once import RECORDS, make_loader  # noqa: E402

LARGE = 5_000_000_000


@pytest.fixture(scope="module")
def mesh() -> Any:
    return jax.make_mesh((1,), ("data",))


def test_batches_become_arrays_of_all_devices(paths: list[str], mesh: Any) -> None:
    loader = make_loader(paths)
    total = 0
    for batch in loader:
        whole = make_global_batch(batch, mesh)
        assert isinstance(whole["x"], jax.Array)
        assert whole["x"].sharding == jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
        total += int(jax.numpy.where(whole["valid"], whole["x"], 0).sum())
    assert total == sum(range(RECORDS))


def test_a_sharding_may_divide_other_axes(mesh: Any) -> None:
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "data"))
    whole = make_global_batch({"x": np.ones((4, 2), np.float32)}, sharding)
    assert whole["x"].sharding == sharding


def test_integers_become_32_bits_only_if_they_fit(mesh: Any) -> None:
    kept = make_global_batch(
        {"x": np.array([-(2**31), 2**31 - 1]), "u": np.array([2**32 - 1], np.uint64)}, mesh
    )
    assert (str(kept["x"].dtype), kept["x"].tolist()) == ("int32", [-(2**31), 2**31 - 1])
    assert kept["u"].tolist() == [2**32 - 1]
    for number in (LARGE, -LARGE):
        with pytest.raises(sk.SchemaError, match=rf"column 'id' has {number}.*jax_enable_x64"):
            make_global_batch({"id": np.array([1, number])}, mesh)
    assert make_global_batch({"id": np.zeros(0, np.int64)}, mesh)["id"].shape == (0,)


def test_64_bits_stay_where_jax_has_them(mesh: Any) -> None:
    jax.config.update("jax_enable_x64", True)
    try:
        assert make_global_batch({"id": np.array([1, LARGE])}, mesh)["id"].tolist() == [1, LARGE]
    finally:
        jax.config.update("jax_enable_x64", False)


def test_bytes_and_ragged_columns_stay_on_the_host(paths: list[str], mesh: Any) -> None:
    features = {"x": sk.FixedLen(), "s": sk.FixedLen(dtype="bytes"), "v": sk.VarLen("float32")}
    batch = sk.Loader(paths, features, 8, sk.World(0, 1), with_ids=True).peek()
    with pytest.raises(sk.SchemaError, match=r"column 's' .*columns=\['x', 'valid', 'shard', 'index'\]"):
        make_global_batch(batch, mesh)
    with pytest.raises(sk.SchemaError, match=r"column 'v' has rows of different lengths.*to_padded"):
        make_global_batch(batch, mesh, columns=["x", "v"])
    assert list(make_global_batch(batch, mesh, columns=["x", "valid"])) == ["x", "valid"]
    with pytest.raises(sk.SchemaError, match="no column 'y'; it has 'x', 's', 'v', 'valid'"):
        make_global_batch(batch, mesh, columns=["y"])


def test_a_column_that_does_not_fit_the_sharding_is_named(mesh: Any) -> None:
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "data"))
    with pytest.raises(sk.PlanError, match=r"column 'x' of shape \(4,\) does not fit"):
        make_global_batch({"x": np.ones(4)}, sharding)
    with pytest.raises(sk.PlanError, match="or a Mesh, not str"):
        make_global_batch({"x": np.ones(4)}, "data")


def test_columns_of_a_loader_are_taken_without_a_copy(tmp_path: Path) -> None:
    with sk.tfrecord.Writer(tmp_path / "x.tfrecord") as w:
        for number in range(64):
            w.write_example({"x": np.full(100, number, np.float32)})
    loader = sk.Loader(w.path, {"x": sk.FixedLen((100,), "float32")}, 32, sk.World(0, 1))
    for batch in loader:
        assert batch["x"].ctypes.data % 64 == 0
        assert jax.device_put(batch["x"]).unsafe_buffer_pointer() == batch["x"].ctypes.data
