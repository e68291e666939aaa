"""zstd and blosc2 in processes that have not imported hdf5plugin, and in those that cannot.

Covers `shardkeep.hdf5.storage.compression`.
"""

import os
import subprocess
import sys

import h5py
import numpy as np
import pytest

from shardkeep.hdf5 import WorkerFile, merge
from shardkeep.hdf5.storage.layout import Layout, create_dataset
from shardkeep.world import World
from tests.waiting import PATIENCE_S

pytest.importorskip("hdf5plugin")


def _run(body, folder, *, plugin):
    begin = "import sys\n" + ("" if plugin else "sys.modules['hdf5plugin'] = None\n")
    done = subprocess.run(
        [sys.executable, "-c", begin + body],
        cwd=folder,
        env={**os.environ, "HDF5_PLUGIN_PATH": str(folder)},  # none that the machine may have
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def folder(tmp_path, request):
    compression = getattr(request, "param", "zstd")
    for rank in range(2):
        with WorkerFile(tmp_path / "run", World(rank=rank, size=2), compression=compression) as out:
            # 2.5 chunks, so that some rows of each rank are compressed again.
            out.declare("x", "i8", chunk_rows=1000)
            out.append("x", np.arange(2500) * 2 + rank)
            out.commit(step=1)
    merge(tmp_path / "run", tmp_path / "whole.h5")
    merge(tmp_path / "run", tmp_path / "virtual.h5", mode="virtual")
    return tmp_path


_MERGE = """
from shardkeep.hdf5 import merge
assert "hdf5plugin" not in sys.modules
merge("run", "all.h5", order_by=ORDER)
"""


@pytest.mark.parametrize(("folder", "order_by"), [("zstd", "rank"), ("blosc2", "x")], indirect=["folder"])
def test_merge_loads_the_filter(folder, order_by):
    # The dataset is made before the first rows are compressed again; a filter that HDF5 got to know in
    # between once damaged the header of the result.
    _run(_MERGE.replace("ORDER", repr(order_by)), folder, plugin=True)
    with h5py.File(folder / "all.h5") as file:
        expected = np.concatenate([np.arange(2500) * 2 + rank for rank in range(2)])
        assert (file["x"][:] == (expected if order_by == "rank" else np.arange(5000))).all()


def test_filter_registered_during_writing_does_no_damage(folder):
    body = """
import h5py
from shardkeep.hdf5.storage.layout import create_dataset, read_layout
with h5py.File("whole.h5") as file:
    layout, dtype = read_layout(file["x"]), file["x"].dtype
with h5py.File("new.h5", "w", libver="v110") as file:
    create_dataset(file, "x", layout, (10,))
    import hdf5plugin
with h5py.File("new.h5") as file:
    print(file["x"].shape)
"""
    assert _run(body, folder, plugin=True) == ["(10,)"]


_READ = """
import numpy as np
from shardkeep.errors import MissingExtraError
from shardkeep.hdf5 import open
from shardkeep.jobs import cat
def told(action):
    try:
        return action()
    except MissingExtraError as error:
        return f"{type(error).__name__} {error}"
for name in ("whole.h5", "virtual.h5"):
    with open(name) as file:
        x = file["x"]
        room = np.zeros(5000, "i8")
        small = x.astype("i2")
        print(told(lambda: int(x[1])), told(lambda: int(small[1])), told(lambda: x.read_direct(room)))
    print(told(lambda: [row.value.item() for row in cat(name, limit=2)]))
"""


def test_reading_loads_the_filter(folder):
    assert _run(_READ, folder, plugin=True) == ["2 2 None", "[0, 2]"] * 2


def test_reading_without_the_plugin_has_the_install_command(folder):
    lines = _run(_READ, folder, plugin=False)
    assert len(lines) == 4
    for line, times, name in zip(lines, (3, 1, 3, 1), ("whole", "whole", "virtual", "virtual"), strict=True):
        assert line.count("pip install 'shardkeep[compression]'") == line.count("MissingExtraError") == times
        assert line.count("dataset '/x' of") >= times
        assert line.count(f"{name}.h5") >= times or name == "virtual"


def test_chunks_are_copied_without_the_filter(folder):
    body = """
from shardkeep.hdf5 import merge
print(merge("whole.h5", "again.h5").rows)
"""
    assert _run(body, folder, plugin=False) == ["{'x': 5000}"]


def test_creation_with_an_unavailable_filter_succeeds(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        code = h5py.h5t.NATIVE_INT32.encode()
        layout = Layout(code, (5,), ((65000, h5py.h5z.FLAG_OPTIONAL, ()),), b"", True)
        assert create_dataset(file, "x", layout, (10,)).shape == (10,)
