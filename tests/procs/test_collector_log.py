"""The log of ``shardkeep collect`` when its reader has ended, or its disk is full."""

import os
import subprocess
import sys

import h5py
import pytest

from shardkeep.hdf5 import connect
from shardkeep.world import World
from tests.waiting import PATIENCE_S


@pytest.mark.parametrize("how", ["--json", ""])
@pytest.mark.parametrize("lost", ["pipe", "full"])
def test_a_log_that_cannot_be_written_does_not_stop_the_collector(tmp_path, how, lost):
    path = str(tmp_path / "all.h5")
    if lost == "pipe":
        reads, out = os.pipe()
        os.close(reads)
    else:
        out = os.open("/dev/full", os.O_WRONLY)
    command = [
        sys.executable,
        "-c",
        "from shardkeep.cli import main; main()",
        "collect",
        path,
        *([how] if how else []),
    ]
    process = subprocess.Popen(command, stdout=out, stderr=out)
    os.close(out)
    try:
        with connect(path, World(rank=0, size=1), timeout_s=PATIENCE_S) as client:
            client.append("x", [1.0, 2.0])
        process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    with h5py.File(path) as file:
        assert file["x"][:].tolist() == [1.0, 2.0]
    assert not os.path.exists(path + ".redo")
