"""Arrays of JAX as rows of HDF5."""

from __future__ import annotations

from pathlib import Path

import pytest

jax = pytest.importorskip("jax")

import shardkeep as sk  # noqa: E402


def test_arrays_are_rows_and_others_are_refused_with_the_call(tmp_path: Path) -> None:
    with sk.hdf5.WorkerFile(tmp_path, sk.World(0, 1)) as out:
        out.append("x", jax.numpy.arange(3.0))
        out.append("x", jax.numpy.float32(4))
        with pytest.raises(sk.SchemaError, match=r"no bfloat16\): append rows\.astype\('float32'\)"):
            out.append("half", jax.numpy.zeros(2, jax.numpy.bfloat16))
        with pytest.raises(sk.SchemaError, match=r"append it outside of jax\.jit"):
            jax.jit(lambda rows: out.append("y", rows))(jax.numpy.zeros(2))
        out.commit(step=1)
        assert out.committed_rows == {"x": 4}
