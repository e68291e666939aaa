"""Estimator with MirroredStrategy, which left TensorFlow with 2.16, and `RunHook`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import pytest

pytest.importorskip("tensorflow")

import shardkeep as sk
from tests.frameworks.exactly_once import RECORDS, write_shards
from tests.waiting import PATIENCE_S


def test_a_killed_estimator_continues_from_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    write_shards(tmp_path / "shards")
    for kill_after, code in ((17, -9), (0, 0)):
        done = subprocess.run(
            [sys.executable, "-m", "tests.frameworks.legacy.estimator_child", str(tmp_path), str(kill_after)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == code, done.stderr
    assert done.stdout == "ended 28\n"
    sk.hdf5.merge(tmp_path / "run", tmp_path / "all.h5")
    with h5py.File(tmp_path / "all.h5") as file:
        assert sorted(file["x"][:].tolist()) == sorted([*range(RECORDS)] * 2)
    assert sk.plan.audit(sk.hdf5.receipts(tmp_path / "run")).ok
