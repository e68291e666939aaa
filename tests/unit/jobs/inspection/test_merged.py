from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from shardkeep.hdf5 import WorkerFile, merge
from shardkeep.jobs import HDF5Info, MergedInfo, MergedRank, info
from shardkeep.loader import Loader
from shardkeep.world import World
from tests.unit.jobs.verification.damage import records


def origin(path: Path) -> MergedInfo | None:
    found = info(path)
    assert isinstance(found, HDF5Info)
    assert json.loads(json.dumps(found.to_dict()))["merged"] is None or found.merged is not None
    return found.merged


def run(folder: Path, ranks: int, size: int) -> Path:
    data = records(folder / "data.tfrecord", 32)
    for rank in range(ranks):
        loader = Loader([data], batch_size=4, world=World(rank, size))
        with WorkerFile(folder / "run", World(rank=rank, size=size)) as out:
            for step in (10, 20):
                next(iter(loader))
                out.append("x", np.arange(10.0))
                out.append("id", np.arange(10) + 20 * rank + step - 10)
                out.commit(step=step, receipt=loader.receipt())
    return folder / "run"


@pytest.mark.parametrize(
    ("mode", "order_by"),
    [("copy", "rank"), ("copy", "step"), ("copy", "id"), ("virtual", "rank"), ("virtual", "step")],
)
def test_ranks_steps_sources_and_receipts(mode: str, order_by: str, tmp_path: Path) -> None:
    folder = run(tmp_path, 2, 2)
    merge(folder, tmp_path / "all.h5", mode=mode, order_by=order_by)
    assert origin(tmp_path / "all.h5") == MergedInfo(
        mode=mode,
        order_by=order_by,
        root=str(folder),
        sources=tuple(
            f"rank-0000{rank}/0000000{i}-step-{step}.h5" for rank in (0, 1) for i, step in enumerate((10, 20))
        ),
        ranks=(MergedRank(0, 10, 20, 2), MergedRank(1, 10, 20, 2)),
        receipts=2,
        findings=(),
    )


def test_missing_ranks_are_remembered(tmp_path: Path) -> None:
    merge(run(tmp_path, 2, 3), tmp_path / "all.h5", incomplete="allow")
    merged = origin(tmp_path / "all.h5")
    assert merged is not None
    assert "rank 2 of 3 has no commit" in merged.findings[0]


def test_plain_sources_have_no_rank(tmp_path: Path) -> None:
    for name in "ab":
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file.create_dataset("x", data=[1.0], maxshape=(None,))
    merge([tmp_path / "a.h5", tmp_path / "b.h5"], tmp_path / "all.h5")
    merged = origin(tmp_path / "all.h5")
    assert merged is not None
    assert (merged.ranks, merged.sources, merged.receipts) == ((), ("a.h5", "b.h5"), 0)


def test_other_files_have_no_origin(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["_provenance"] = [1]
    assert origin(tmp_path / "a.h5") is None
    assert origin(next((run(tmp_path, 1, 1) / "rank-00000").glob("*.h5"))) is None
