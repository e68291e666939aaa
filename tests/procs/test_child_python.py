"""Child interpreters of Shardkeep, which import no files of the user from the current folder.

Covers `shardkeep.files.child_python`.
"""

import subprocess
import sys

import pytest

from tests.waiting import PATIENCE_S

PROGRAM = """
import sys, tempfile
import h5py, numpy
{body}
"""
COLLECT = """
from shardkeep.hdf5 import Collector
from shardkeep.world import World
with Collector(sys.argv[1] + "/all.h5") as collector, collector.connect(World(rank=0, size=1)) as client:
    client.append("x", 1.0)
"""
VERIFY = """
from shardkeep.jobs.verify import verify
with h5py.File(sys.argv[1] + "/one.h5", "w") as file:
    file["x"] = [1]
assert verify([sys.argv[1] + "/one.h5"]).ok
"""
DEMO = """
from shardkeep.cli.app import app
app(["demo", "--workers", "2", "--epochs", "2", "--output", sys.argv[1] + "/demo"], standalone_mode=False)
"""


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(COLLECT, id="collect"),
        pytest.param(VERIFY, id="verify"),
        pytest.param(DEMO, id="demo", marks=pytest.mark.slow),
    ],
)
def test_modules_in_the_current_folder_are_not_imported(tmp_path, body):
    here = tmp_path / "here"
    here.mkdir()
    for name in ("json", "queue", "select", "click", "numpy", "h5py", "zmq", "shardkeep"):
        (here / f"{name}.py").write_text(f"raise SystemExit('{name}.py of the user was imported')")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(body=body))
    done = subprocess.run(
        [sys.executable, program, tmp_path], cwd=here, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    assert "was imported" not in done.stderr
