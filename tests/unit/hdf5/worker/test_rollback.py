import errno
import os

import pytest

from shardkeep.errors import (
    CorruptDataError,
    DurabilityError,
    LockTimeoutError,
    PlanError,
)
from shardkeep.hdf5 import WorkerFile, merge, receipts, rollback
from shardkeep.hdf5.segments.run_folder import list_segments
from shardkeep.world import World
from tests.unit.hdf5.worker.float_rows import WORLD, float_rows, merged


def _five_commits(run, rank=0, size=2):
    with WorkerFile(run, World(rank=rank, size=size)) as out:
        for step in range(5):
            out.append("x", float_rows(step * 10, step * 10 + 10))
            out.commit(step=step, receipt={"id": "a" if step < 3 else "b", "step": step})


def test_rows_may_be_appended_after_a_rollback(run):
    _five_commits(run)
    with WorkerFile(run, WORLD) as out:
        out.append("x", float_rows(50, 3000))
        out.rollback(step=2)
        assert out.committed_step == 2
        assert out.committed_rows == {"x": 30}
        assert out.uncommitted_rows == {}
        out.append("x", float_rows(30, 35))
        out.commit(step=3, receipt={"id": "c", "step": 3})
    assert (merged(run) == float_rows(0, 35)).all()
    assert receipts(run) == [{"id": "a", "step": 2}, {"id": "c", "step": 3}]


def test_rollback_removes_everything_or_nothing(run):
    _five_commits(run)
    with WorkerFile(run, WORLD) as out:
        out.rollback(step=100)
        assert out.committed_step == 4
        out.rollback(step=-1)
        assert out.committed_step is None
        assert out.committed_rows == {}
        out.append("x", ["another type now"])
        out.commit(step=0)
        out.append("x", ["and a row"])
        with pytest.raises(PlanError, match="not a whole number"):
            out.rollback(step="0")
        out.commit(step=1)
        assert out.committed_rows == {"x": 2}, "a wrong call must not drop rows"
    with pytest.raises(PlanError):
        rollback(run, step="2")


def test_rollback_reaches_every_rank(run):
    _five_commits(run, 0)
    _five_commits(run, 1)
    with WorkerFile(run, World(rank=7, size=8)) as out:
        out.commit(step=4)
    with WorkerFile(run, World(rank=1, size=2)), pytest.raises(LockTimeoutError):
        rollback(run, step=2)
    assert len(list_segments(run / "rank-00000")) == 5
    assert rollback(run, step=2) == {0: 2, 1: 2, 7: None}
    assert rollback(run, step=2) == {0: 2, 1: 2, 7: None}


def test_rollback_removes_the_newest_first(run, monkeypatch):
    _five_commits(run, size=1)
    removed = []
    original = os.unlink

    def unlink(path, **options):
        if str(path).endswith(".h5"):
            if len(removed) == 2:
                raise OSError(errno.EIO, "stop here")
            removed.append(os.path.basename(path))
        return original(path, **options)

    monkeypatch.setattr(os, "unlink", unlink)
    with pytest.raises(DurabilityError):
        rollback(run, step=0)
    assert removed == ["00000004-step-4.h5", "00000003-step-3.h5"]
    monkeypatch.undo()
    assert (merged(run) == float_rows(0, 30)).all()


def test_a_gap_is_refused(run):
    _five_commits(run)
    os.unlink(run / "rank-00000" / "00000002-step-2.h5")
    for action in (lambda: WorkerFile(run, WORLD), lambda: receipts(run)):
        with pytest.raises(CorruptDataError, match=r"segment 2 is missing .* roll back to a step before it"):
            action()
    with pytest.raises(CorruptDataError, match="commit 2 of rank 0 is missing"):
        merge(run, run / "a.h5")
    assert sorted(os.listdir(run)) == ["rank-00000"]


def test_a_rollback_removes_the_commits_after_a_gap(run):
    _five_commits(run, size=1)
    os.unlink(run / "rank-00000" / "00000002-step-2.h5")
    assert rollback(run, step=1, dry_run=True) == {0: 1}
    assert rollback(run, step=1) == {0: 1}
    assert (merged(run) == float_rows(0, 20)).all()
    with WorkerFile(run, WORLD) as out:
        assert out.committed_step == 1


def test_a_segment_under_another_name_is_refused(run):
    _five_commits(run)
    folder = run / "rank-00000"
    os.rename(folder / "00000004-step-4.h5", folder / "00000004-step-9.h5")
    with pytest.raises(CorruptDataError, match="its name says"):
        WorkerFile(run, WORLD)
    with pytest.raises(CorruptDataError, match="its name says"):
        merge(run, run / "a.h5")
    assert rollback(run, step=3) == {0: 3}
