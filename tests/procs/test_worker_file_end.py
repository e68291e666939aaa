"""A program that ends without closing its worker file."""

import subprocess
import sys

import pytest

from tests.waiting import PATIENCE_S

_BEGIN = """
import sys
from shardkeep.hdf5 import WorkerFile
from shardkeep.world import World
out = WorkerFile("run", World(rank=0, size=1))
out.append("x", [1, 2])
"""


@pytest.mark.parametrize(
    ("end", "code", "told"),
    [
        ("", 0, True),
        ("sys.exit(3)", 3, True),
        ("out.commit(step=1)", 0, False),
        ("raise KeyError", 1, False),  # that is what the user has to read
        ("import os\nif os.fork() == 0: sys.exit()\nos.wait()\nout.commit(step=1)", 0, False),
    ],
    ids=["end", "exit", "commit", "error", "fork"],
)
def test_lost_rows_are_reported_at_exit(tmp_path, end, code, told):
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + end],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == code, done.stderr
    said = "rows of rank 0 in 'run' that were never committed are dropped: 2 of 'x'; call commit"
    assert (said in done.stderr) == told, done.stderr
    assert told or code or done.stderr == ""
