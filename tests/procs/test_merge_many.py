"""Thousands of worker files under a low limit of open descriptors."""

import json
import subprocess
import sys

import h5py
import pytest

_WORK = """
import json, os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from shardkeep.hdf5 import WorkerFile, merge, verify
from shardkeep.world import World
folder, ranks, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for rank in range(ranks):
    with WorkerFile(folder + "/run", World(rank=rank, size=ranks), durable=False) as out:
        for step in range(steps):
            out.append("id", [(step * ranks + rank) * 2, (step * ranks + rank) * 2 + 1])
            out.append("text", [f"rank {rank}", f"step {step}"])
            out.commit(step=step)
most = 0
def watch(done, total):
    global most
    if done % 97 == 0:
        most = max(most, len(os.listdir("/proc/self/fd")))
for mode in ("copy", "virtual"):
    for order_by in ("rank", "id"):
        path = f"{folder}/{mode}-{order_by}.h5"
        merge(folder + "/run", path, mode=mode, order_by=order_by, progress=watch, incomplete="refuse")
        assert verify(path).ok
print(json.dumps(most))
"""


@pytest.mark.parametrize(("ranks", "steps"), [(60, 3), pytest.param(500, 20, marks=pytest.mark.slow)])
def test_more_files_than_descriptors_are_merged(tmp_path, ranks, steps):
    done = subprocess.run(
        [sys.executable, "-c", _WORK, str(tmp_path), str(ranks), str(steps)],
        capture_output=True,
        text=True,
        timeout=3000,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) < 30
    rows = 2 * ranks * steps
    with h5py.File(tmp_path / "copy-id.h5") as file:
        assert (file["id"][:] == range(rows)).all()
    with h5py.File(tmp_path / "virtual-rank.h5") as file:
        assert sorted(file["id"][:].tolist()) == list(range(rows))
