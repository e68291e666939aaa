"""States and marks of commits; rollbacks are in ``test_cut.py`` and ``test_rollback.py``."""

import numpy as np
import pytest

from shardkeep.errors import PlanError
from shardkeep.hdf5 import WorkerFile
from shardkeep.world import World

WORLD = World(rank=0, size=1)


def test_state_belongs_to_its_commit(tmp_path):
    with WorkerFile(tmp_path, WORLD) as out:
        assert out.committed_state is None
        state = {"epoch": 1, "seen": [1, 2]}
        out.commit(step=1, state=state)
        state["seen"].append(3)
        out.committed_state["epoch"] = 9
        out.commit(step=2)
        assert out.committed_state is None
        out.rollback(step=1)
        assert out.committed_state == {"epoch": 1, "seen": [1, 2]}


@pytest.mark.parametrize("state", [{"a": (1, 2)}, {1: 2}, {"a": np.zeros(2)}, {"a": float("nan")}, [1]])
def test_state_that_json_would_change_is_refused(tmp_path, state):
    with WorkerFile(tmp_path, WORLD) as out:
        with pytest.raises(PlanError, match="state= must be a dict of JSON values"):
            out.commit(step=1, state=state)
        with pytest.raises(PlanError, match="state= must be a dict of JSON values"):
            out.mark(1, state=state)
        out.commit(step=1)


def test_mark_before_a_commit_or_mark_is_refused(tmp_path):
    with WorkerFile(tmp_path, WORLD) as out:
        out.commit(step=3)
        with pytest.raises(PlanError, match="has committed step 3"):
            out.mark(3)
        out.mark(5)
        out.mark(5)
        for call in (lambda: out.mark(4), lambda: out.commit(step=4)):
            with pytest.raises(PlanError, match="has marked step 5, step 4 is before it"):
                call()
        out.commit(step=5)
