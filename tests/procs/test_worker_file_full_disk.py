"""A disk that is really full: an error that says so, and nothing lost that was committed."""

import errno
import os
import subprocess
import sys

import h5py
import numpy as np
import pytest

from shardkeep.errors import DurabilityError
from shardkeep.hdf5 import WorkerFile, merge
from shardkeep.world import World
from tests.small_disk import mounted
from tests.waiting import PATIENCE_S

WORLD = World(rank=0, size=1)


@pytest.fixture
def small_disk(tmp_path):
    with mounted(tmp_path / "small", "4m") as folder:
        yield folder


@pytest.mark.parametrize("rows", [7, 100, 2000])
def test_a_full_disk_at_any_point_loses_no_commit(small_disk, rows):
    block = np.random.default_rng(0).random((rows, 64))
    step = 0
    with WorkerFile(small_disk / "run", WORLD) as out:
        with pytest.raises(DurabilityError, match="No space left") as caught:
            while True:
                out.append("x", block)
                out.append("t", ["some text"] * rows)
                out.commit(step=step)
                step += 1
        assert caught.value.errno == errno.ENOSPC
        assert out.committed_step == step - 1
        assert len([name for name in os.listdir(small_disk / "run/rank-00000") if ".h5" in name]) == step
        half = step // 2
        out.rollback(step=half)  # makes room
        out.append("x", block)
        out.commit(step=half + 1)
    report = merge(small_disk / "run", small_disk.parent / "all.h5")
    assert report.rows == {"x": (half + 2) * rows, "t": (half + 1) * rows}
    with h5py.File(report.output) as file:
        assert (file["x"][:] == np.tile(block, (half + 2, 1))).all()


def test_a_merge_onto_a_full_disk_leaves_nothing(small_disk, tmp_path):
    with WorkerFile(tmp_path / "run", WORLD) as out:
        for step in range(3):
            out.append("x", np.zeros((30_000, 16)))
            out.append("t", ["some text"] * 3000)
            out.commit(step=step)
    (small_disk / "old.h5").write_bytes(b"old")
    for target, exists in (("new.h5", "fail"), ("old.h5", "replace")):
        with pytest.raises(DurabilityError, match="No space left"):
            merge(tmp_path / "run", small_disk / target, exists=exists)
        assert os.listdir(small_disk) == ["old.h5"]
    assert (small_disk / "old.h5").read_bytes() == b"old"


def test_the_process_ends_quietly_after_a_full_disk(small_disk):
    code = """
import sys
import numpy as np
from shardkeep.errors import DurabilityError
from shardkeep.hdf5 import WorkerFile
from shardkeep.world import World
out = WorkerFile(sys.argv[1], World(rank=0, size=1))
try:
    out.append("x", np.zeros((100_000, 64)))
except DurabilityError:
    print("full")
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(small_disk / "run")],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "full\n", "")
    assert os.listdir(small_disk / "run/rank-00000") == []
