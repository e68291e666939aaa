"""HDF5 files on a file system that refuses locks, with an error of ``flock`` for each kind.

Covers `shardkeep._file_locking`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import h5py
import pytest

from tests.flock_shim import flock_environment
from tests.waiting import PATIENCE_S

ERRNOS = [37, 95, 524]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in "ab":
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["x"] = [1, 2]
    with h5py.File(tmp_path / "links.h5", "w") as file:
        file["out"] = h5py.ExternalLink("b.h5", "/x")
    return tmp_path


def run(folder: Path, body: str, number: int, **variables: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(body)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, **flock_environment(folder, number), **variables},
    )
    assert done.returncode == 0, done.stderr
    return done


EVERYTHING = """
    import warnings
    import shardkeep as sk
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first, second = sk.hdf5.open("a.h5"), sk.hdf5.open("a.h5")
        assert first["x"][1] == second["x"][1] == 2
        assert sk.hdf5.open("links.h5")["out"][0] == 1
        assert len(sk.info("a.h5").datasets) == len(sk.info("b.h5").datasets) == 1
        assert list(sk.cat("b.h5")) == list(sk.cat("a.h5"))
        assert sk.hdf5.verify("b.h5").ok and sk.verify("b.h5").ok
        assert sk.hdf5.merge(["a.h5", "b.h5"], "m.h5", check="full").rows == {"x": 4}
        assert sk.hdf5.merge(["a.h5", "b.h5"], "v.h5", mode="virtual").rows == {"x": 4}
        assert sk.hdf5.open("v.h5")["x"][:].tolist() == [1, 2, 1, 2]
        assert sk.hdf5.verify("v.h5").ok
        with sk.hdf5.WorkerFile("run", sk.World(0, 1)) as out:
            out.append("x", [1])
            out.commit(step=1)
        assert sk.hdf5.merge("run", "r.h5").rows == {"x": 1}
    assert sum("is read without a lock" in str(one.message) for one in caught) == 1, caught
"""


@pytest.mark.parametrize("number", ERRNOS)
def test_all_readers_read_what_open_reads(folder, number):
    run(folder, EVERYTHING, number)


def test_best_effort_reads_without_a_lock(folder):
    run(folder, EVERYTHING, 37, HDF5_USE_FILE_LOCKING="BEST_EFFORT")


def test_children_inherit_best_effort(folder):
    body = """
        import os, shardkeep as sk
        assert os.environ["HDF5_USE_FILE_LOCKING"] == "BEST_EFFORT"
        assert str(sk.hdf5.locking_mode()) == "HDF5 locking is on unless a program switches it off"
    """
    run(folder, body, 37, HDF5_USE_FILE_LOCKING="BEST_EFFORT")


def test_a_handle_of_plain_h5py_without_locks_may_stay_open(folder):
    body = """
        import h5py, warnings
        import shardkeep as sk
        warnings.simplefilter("ignore")
        plain = h5py.File("a.h5", locking=False)
        assert sk.hdf5.open("a.h5")["x"][0] == 1
        assert len(sk.info("a.h5").datasets) == 1
        assert h5py.File("a.h5", locking=False)["x"][0] == 1
    """
    run(folder, body, 95)


def test_a_handle_of_plain_h5py_without_locks_is_refused_where_there_are_locks(folder):
    body = """
        import h5py
        import shardkeep as sk
        plain = h5py.File("a.h5", locking=False)
        try:
            sk.hdf5.open("a.h5")
        except sk.LockError as error:
            assert "in another way" in str(error)
        else:
            raise SystemExit(1)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(body)], cwd=folder, check=True)
