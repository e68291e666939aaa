"""Tensors of torch as rows of HDF5."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import shardkeep as sk  # noqa: E402
from tests.frameworks.exactly_once import write_shards  # noqa: E402


def test_tensors_are_rows_and_others_are_refused_with_the_call(tmp_path: Path) -> None:
    refused = {
        "append rows.detach().numpy()": torch.zeros(2, requires_grad=True),
        "append rows.detach().float().numpy()": torch.zeros(2, dtype=torch.bfloat16),
        "append rows.detach().float().numpy(": torch.zeros(2).to(torch.float8_e4m3fn),
        "append rows.detach().to_dense().numpy()": torch.zeros(2).to_sparse(),
        "'meta' has no values": torch.zeros(2, device="meta"),
    }
    with sk.hdf5.WorkerFile(tmp_path, sk.World(0, 1)) as out:
        out.append("x", torch.arange(3))
        for name in ("x", "new"):
            for advice, tensor in refused.items():
                with pytest.raises(sk.SchemaError) as caught:
                    out.append(name, tensor)
                assert advice in str(caught.value)
            with pytest.raises(sk.SchemaError, match=r"append rows\.detach\(\)\.numpy\(\)"):
                out.append(name, [torch.zeros(2, requires_grad=True)] * 2)
        out.commit(step=1)
        assert out.committed_rows == {"x": 3}


def test_columns_of_a_loader_are_rows(tmp_path: Path) -> None:
    from shardkeep.adapters.torch import DataLoader

    features = {"s": sk.FixedLen(dtype="bytes"), "v": sk.VarLen("float32")}
    loader = sk.Loader(write_shards(tmp_path), features, 8, sk.World(0, 1))
    with sk.hdf5.WorkerFile(tmp_path / "run", sk.World(0, 1)) as out:
        for batch in DataLoader(loader):
            out.append("s", batch["s"])
            out.append("v", batch["v"])
        out.commit(step=1)
    sk.hdf5.merge(tmp_path / "run", tmp_path / "all.h5")
    with sk.hdf5.open(tmp_path / "all.h5") as merged:
        assert [row.tobytes() for row in merged["s"][:5]] == [b"", b"s", b"ss", b"", b"s"]
        assert [len(row) for row in merged["v"][:5]] == [1, 2, 3, 4, 1]
