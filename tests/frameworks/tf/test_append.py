"""Tensors of TensorFlow as rows of HDF5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

import shardkeep as sk  # noqa: E402


def test_tensors_are_rows_and_others_are_refused_with_the_call(tmp_path: Path) -> None:
    ragged = tf.ragged.constant([[1.0], [2.0, 3.0]])
    with sk.hdf5.WorkerFile(tmp_path, sk.World(0, 1)) as out:
        out.append("x", tf.range(3))
        out.append("names", tf.constant(["a", "bc"]))
        out.append("ragged", sk.Ragged(ragged.values.numpy(), ragged.row_splits.numpy()))
        refused: dict[str, Any] = {
            "append tf.cast(rows, tf.float32).numpy()": tf.zeros(2, tf.bfloat16),
            "append shardkeep.Ragged(rows.values.numpy(), rows.row_splits.numpy())": ragged,
            "append tf.sparse.to_dense(rows).numpy()": tf.sparse.from_dense([1, 0]),
        }
        for advice, tensor in refused.items():
            with pytest.raises(sk.SchemaError) as caught:
                out.append("y", tensor)
            assert advice in str(caught.value)
        with pytest.raises(sk.SchemaError, match=r"outside of tf\.function"):
            tf.function(lambda rows: out.append("y", rows), autograph=False)(tf.zeros(2))
        out.commit(step=1)
        assert out.committed_rows == {"x": 3, "names": 2, "ragged": 2}
