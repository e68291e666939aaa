"""Rollbacks that cut a commit at a marked step."""

import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from shardkeep.errors import CorruptDataError
from shardkeep.hdf5 import WorkerFile, merge, receipts, rollback
from shardkeep.world import World

WORLD = World(rank=0, size=1)
OLD = Path(__file__).parents[3] / "data" / "old"


def _write(run):
    with WorkerFile(run, WORLD, compression="gzip") as out:
        out.append("x", np.arange(3))
        out.append("t", ["a", "b", "c"])
        out.commit(step=10, receipt={"id": "L", "n": 3}, state={"at": 10})
        out.append("x", np.arange(3, 5))
        out.put("early", [1, 2])
        out.mark(15, receipt={"id": "L", "n": 5}, state={"at": 15})
        out.append("x", np.arange(5, 9))
        out.append("t", ["d"])
        out.mark(17)
        out.append("late", np.zeros((2, 2)))
        out.put("value", 3)
        out.commit(step=20, receipt={"id": "L", "n": 9}, state={"at": 20})
        out.append("x", [9])
        out.commit(step=30)


def _merged(run):
    output = run.parent / "all.h5"
    output.unlink(missing_ok=True)
    with h5py.File(merge(run, output).output) as file:
        return {name: item[()].tolist() for name, item in file.items() if isinstance(item, h5py.Dataset)}


@pytest.mark.parametrize("of", ["folder", "object"])
def test_rollback_to_a_mark_keeps_the_rows_up_to_it(tmp_path, of):
    run = tmp_path / "run"
    _write(run)
    if of == "folder":
        assert rollback(run, step=16, dry_run=True) == {0: 15}
        assert rollback(run, step=16) == {0: 15}
        assert rollback(run, step=16) == {0: 15}
    with WorkerFile(run, WORLD) as out:
        if of == "object":
            out.rollback(step=16)
        assert (out.committed_step, out.committed_state) == (15, {"at": 15})
        assert out.committed_rows == {"x": 5, "t": 3}
        assert receipts(run) == [{"id": "L", "n": 5}]
        assert sorted(os.listdir(run / "rank-00000")) == [
            "00000000-step-10.h5",
            "00000001-step-15.h5",
            "writer.lock",
        ]
        out.append("x", [5])
        out.append("late", ["another type"])
        out.put("value", "another")
        out.commit(step=16)
    with h5py.File(merge(run, tmp_path / "all.h5").output) as file:
        assert file["x"][:].tolist() == [0, 1, 2, 3, 4, 5]
        assert file["t"].asstr()[:].tolist() == ["a", "b", "c"]
        assert file["early"][:].tolist() == [1, 2]
        assert file["late"].asstr()[:].tolist() == ["another type"]


def test_receipt_before_the_mark_is_the_newest_after_a_mark_without_one(tmp_path):
    _write(tmp_path / "run")
    assert rollback(tmp_path / "run", step=17) == {0: 17}
    assert receipts(tmp_path / "run") == [{"id": "L", "n": 3}]
    with WorkerFile(tmp_path / "run", WORLD) as out:
        assert (out.committed_state, out.committed_rows) == (None, {"x": 9, "t": 4})
    assert rollback(tmp_path / "run", step=15) == {0: 15}


def test_uncommitted_rows_up_to_a_mark_are_committed_by_a_rollback(tmp_path):
    with WorkerFile(tmp_path / "run", WORLD) as out:
        out.append("x", np.arange(4))
        out.mark(4, state={"at": 4})
        out.append("x", [7, 8])
        out.rollback(step=4)
        assert (out.committed_step, out.committed_state, out.committed_rows) == (4, {"at": 4}, {"x": 4})
        assert sorted(os.listdir(tmp_path / "run" / "rank-00000")) == ["00000000-step-4.h5", "writer.lock"]


def test_rollback_to_none_empties_and_needs_no_folder(tmp_path):
    assert rollback(tmp_path / "none", step=None) == {}
    with WorkerFile(tmp_path / "run", WORLD) as out:
        out.rollback(step=None)
        out.append("x", [1])
        out.commit(step=0)
        out.rollback(step=None)
        assert (out.committed_step, out.committed_rows) == (None, {})


def test_damaged_rows_are_not_given_a_new_hash_by_a_cut(tmp_path):
    with WorkerFile(tmp_path, WORLD) as out:
        out.append("x", np.arange(100))
        out.mark(1)
        out.append("x", np.arange(100, 200))
        out.commit(step=2)
    path = tmp_path / "rank-00000" / "00000000-step-2.h5"
    raw = path.read_bytes().replace((7).to_bytes(8, "little") + (8).to_bytes(8, "little"), bytes(16))
    path.write_bytes(raw)
    with pytest.raises(CorruptDataError, match="are not those of its commit"):
        rollback(tmp_path, step=1)
    assert path.read_bytes() == raw


@pytest.mark.parametrize("is_removed", [False, True])
def test_cut_that_a_crash_interrupted_is_completed(tmp_path, is_removed):
    run = tmp_path / "run"
    _write(run)
    folder = run / "rank-00000"
    whole = (folder / "00000001-step-20.h5").read_bytes()
    rollback(run, step=15)
    (folder / "00000001-step-15.h5").rename(folder / "00000001-step-15-from-20.h5")
    if not is_removed:
        (folder / "00000001-step-20.h5").write_bytes(whole)
    assert _merged(run)["x"] == [0, 1, 2, 3, 4]
    with WorkerFile(run, WORLD) as out:
        assert out.committed_rows == {"x": 5, "t": 3}
    assert sorted(os.listdir(folder))[:2] == ["00000000-step-10.h5", "00000001-step-15.h5"]
    assert _merged(run)["x"] == [0, 1, 2, 3, 4]


def test_old_commit_with_a_mark_can_be_cut(tmp_path):
    shutil.copytree(OLD / "run-3", tmp_path / "run")
    with WorkerFile(tmp_path / "run", WORLD) as out:
        assert (out.committed_step, out.committed_state) == (2, {"at": 2})
        out.rollback(step=1)
        assert (out.committed_step, out.committed_state, out.committed_rows) == (1, {"at": 1}, {"x": 3})
