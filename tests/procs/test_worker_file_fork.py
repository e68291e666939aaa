"""A forked child neither uses nor harms its parent's worker file, however it ends."""

import multiprocessing
import os
import subprocess
import sys

import h5py
import numpy as np
import pytest

from shardkeep.errors import LockError
from shardkeep.hdf5 import WorkerFile, merge, rollback
from shardkeep.world import World
from tests.waiting import PATIENCE_S

# FACTS: with plain h5py, a child that ends like this rolls its parent's rows back.
_PARENT = """
import ctypes, os, sys
import numpy as np
from shardkeep.errors import LockError, LockTimeoutError
from shardkeep.hdf5 import WorkerFile
from shardkeep.world import World
run, how = sys.argv[1:]
rows = np.arange(5000 * 128, dtype="f4").reshape(5000, 128)
out = WorkerFile(run, World(rank=0, size=1))
if how in ("exit", "left open"):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(out))   # not even the end of Python deletes it
out.append("x", rows[:10])
out.commit(step=1)
out.append("x", rows[10:3000])   # chunks are in the file, rows in memory
out.append("t", ["a"] * 5000)
child = os.fork()
if child == 0:
    if how == "use":
        for action in (
            lambda: out.append("x", rows[:1]),
            lambda: out.append("x", rows),
            lambda: out.commit(step=2),
            lambda: out.rollback(step=1),
        ):
            try:
                action()
            except LockError as error:
                assert "forked" in str(error), error
            else:
                sys.exit(3)
        try:
            WorkerFile(run, World(rank=0, size=1))
        except LockTimeoutError as error:
            assert error.holder["pid"] == os.getppid()
        else:
            sys.exit(4)
    elif how == "close":
        out.close()
    elif how == "with":
        try:
            with out:
                pass
        except LockError:
            pass
    elif how == "del":
        del out
    elif how == "_exit":
        os._exit(0)
    elif how == "other rank":
        with WorkerFile(run, World(rank=1, size=2)) as mine:
            mine.append("x", rows[:7])
            mine.commit(step=1)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0, "the child failed"
out.append("x", rows[3000:])
out.commit(step=2)
if how == "left open":
    out.append("x", rows)        # never closed: the interpreter ends with the file open
    sys.exit(0)
out.close()
"""


@pytest.mark.parametrize("how", ["exit", "use", "close", "with", "del", "_exit", "other rank", "left open"])
def test_the_parent_continues_after_its_child_ended(tmp_path, how):
    done = subprocess.run(
        [sys.executable, "-c", _PARENT, str(tmp_path), how],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    # Of the parent alone.
    assert (
        done.stderr.count("5000 of 'x'; call commit") == done.stderr.count("Warning") == (how == "left open")
    )
    if how == "other rank":
        assert rollback(tmp_path, step=2) == {0: 2, 1: 1}
    assert os.listdir(tmp_path / "rank-00000") != []
    merge(tmp_path, tmp_path / "all.h5", incomplete="allow")
    expected = np.arange(5000 * 128, dtype="f4").reshape(5000, 128)
    with h5py.File(tmp_path / "all.h5") as file:
        assert (file["x"][:5000] == expected).all()
        assert len(file["x"]) == (5007 if how == "other rank" else 5000)
        assert len(file["t"]) == 5000
    assert sorted(os.listdir(tmp_path / "rank-00000")) == ["00000000-step-1.h5", "00000001-step-2.h5"]


def _append(out):
    try:
        out.append("x", [1])
    except LockError:
        raise SystemExit(7) from None


def test_children_of_multiprocessing_leave_the_files_of_the_parent_alone(tmp_path):
    with WorkerFile(tmp_path, World(rank=0, size=1)) as out:
        out.append("x", np.zeros(200_000))
        child = multiprocessing.get_context("fork").Process(target=_append, args=(out,))
        child.start()
        child.join(PATIENCE_S)
        assert child.exitcode == 7
        with pytest.raises(LockError, match="pickled"):
            multiprocessing.get_context("spawn").Process(target=_append, args=(out,)).start()
        out.commit(step=1)
    assert merge(tmp_path, tmp_path / "all.h5").rows == {"x": 200_000}
