"""SIGKILL at random instants around marks and rollbacks into a commit: the rows of a step are there whole."""

import os
import random
import signal
import time

import h5py
import pytest

from shardkeep.hdf5 import WorkerFile, merge, rollback
from shardkeep.world import World

WORLD = World(rank=0, size=1)


def _work(run, seed):
    """Append one row for each step; commit now and then, and roll back to a marked step."""
    chance = random.Random(seed)
    out = WorkerFile(run, WORLD, durable=False)
    step = -1 if out.committed_step is None else out.committed_step
    while True:
        for _ in range(chance.randrange(1, 6)):
            step += 1
            out.append("x", [step])
            out.mark(step, state={"step": step})
        if chance.random() < 0.8:
            out.commit(step=step, state={"step": step})
        if chance.random() < 0.6:
            step = max(0, step - chance.randrange(6))
            out.rollback(step=step)


@pytest.mark.parametrize("runs", [10, pytest.param(80, marks=pytest.mark.slow)])
def test_killed_marks_and_rollbacks_leave_the_rows_of_a_marked_step(tmp_path, runs):
    chance = random.Random(1)
    run, output = tmp_path / "run", tmp_path / "all.h5"
    for seed in range(runs):
        pid = os.fork()
        if pid == 0:
            try:
                _work(run, seed)
            finally:
                os._exit(1)
        time.sleep(chance.uniform(0.02, 0.15))
        os.kill(pid, signal.SIGKILL)
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
        if (run / "rank-00000").exists() and any(run.glob("rank-00000/*.h5")):
            output.unlink(missing_ok=True)
            with h5py.File(merge(run, output).output) as file:
                before = file["x"][:].tolist()
            assert before == list(range(len(before)))
            target = max(0, len(before) - 1 - chance.randrange(4))
            if seed % 2:
                assert rollback(run, step=target) == {0: target}
            with WorkerFile(run, WORLD) as out:
                newest = target if seed % 2 else len(before) - 1
                assert (out.committed_step, out.committed_state) == (newest, {"step": newest})
                assert out.committed_rows == {"x": newest + 1}
