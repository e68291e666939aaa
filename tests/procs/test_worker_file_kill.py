"""SIGKILL at random instants: every committed row is there once, and no other row.

Covers `shardkeep.hdf5.worker.rollback`.
"""

import os
import random
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

from shardkeep.errors import LockTimeoutError, SchemaError
from shardkeep.hdf5 import WorkerFile, merge, rollback
from shardkeep.hdf5.segments.run_folder import list_segments
from shardkeep.world import World
from tests.procs.collector_run import start
from tests.waiting import PATIENCE_S

RANKS = 2


# Row i of rank r is (r, i) in "x" and the text "i" in "t", so that any row that is lost, doubled
# or out of place shows. A step is acknowledged after commit has returned.
def _work(write_end, run, rank, seed):
    chance = random.Random(seed)
    out = WorkerFile(run, World(rank=rank, size=RANKS), durable=seed % 4 == 0)
    step = -1 if out.committed_step is None else out.committed_step
    row = out.committed_rows.get("x", 0)
    out.declare("g/z", "i4", (8,), compression=chance.choice(["gzip", "lzf"]), chunk_rows=64)
    out.put("classes", [10, 20])
    z = out.committed_rows["g/z"]
    os.write(write_end, b"ready\n")
    while True:
        step += 1
        for _ in range(chance.randrange(4)):
            count = chance.choice([1, 1, 7, 3000])
            block = np.empty((count, 64), "i8")
            block[:, 0] = rank
            block[:, 1:] = np.arange(row, row + count)[:, None]
            out.append("x", block)
            if count < 10:
                out.append("t", [str(i) for i in range(row, row + count)])
            row += count
        for _ in range(chance.randrange(150)):
            out.append("g/z", np.array([[rank] + [z] * 7], "i4"))
            z += 1
        if chance.random() < 0.7:
            out.set_attribute("row", row, on=chance.choice(["/", "x", "g"]))
        out.set_attribute("row", [row, z], on="other")
        out.commit(step=step, receipt={"id": f"{rank}-{seed}", "rows": row})
        os.write(write_end, f"{step} {row}\n".encode())
        if chance.random() < 0.1 and step > 3:
            os.write(write_end, f"back {step - 2}\n".encode())
            out.rollback(step=step - 2)
            step, row = out.committed_step, out.committed_rows.get("x", 0)
            z = out.committed_rows["g/z"]
            out.put("classes", [10, 20])


def _start(run, rank, seed):
    # Forked: a new interpreter takes a hundred times as long.
    return start(_work, run, rank, seed)


def _wait_until_ready(child):
    child.first = child.wait_for_word()
    assert child.first.startswith(b"ready\n")


def _kill(child):
    """Kill a child; return what it acknowledged."""
    child.kill()
    assert child.join() == -signal.SIGKILL
    lines = (child.first + child.said()).decode().splitlines(keepends=True)[1:]
    return [line.split() for line in lines if line.endswith("\n")]


def _check(run, acknowledged):
    """Compare the merge with the newest commit that stands, and that with what was acknowledged."""
    output = run / "all.h5"
    standing = {}
    for rank in range(RANKS):
        with WorkerFile(run, World(rank=rank, size=RANKS)) as out:
            standing[rank] = (out.committed_step, out.committed_rows)
            said = out.attributes("other")
            rows = [out.committed_rows.get(name, 0) for name in ("x", "g/z")]
            assert rows == (said["row"].tolist() if said else [0, 0])
            for on in ("/", "x", "g"):
                assert out.attributes(on).get("row", 0) <= rows[0]
            if said:
                with pytest.raises(SchemaError, match="differs"):
                    out.put("classes", [10, 21])
        assert not [name for name in os.listdir(run / f"rank-{rank:05d}") if not name.endswith(".h5")]
    merge(run, output, exists="replace", incomplete="allow")
    with h5py.File(output) as file:
        x, t = file["x"][:], file["t"].asstr()[:].tolist()
        z = file["g/z"][:] if "g/z" in file else np.empty((0, 8), "i4")
    for rank, (step, rows) in standing.items():
        mine = x[x[:, 0] == rank]
        assert len(mine) == rows.get("x", 0)
        assert (mine[:, 1:] == np.arange(len(mine))[:, None]).all()
        packed = z[z[:, 0] == rank]
        assert len(packed) == rows.get("g/z", 0)
        assert (packed[:, 1:] == np.arange(len(packed))[:, None]).all()
        last = acknowledged.get(rank)
        if last is not None and last[0] == "back":
            assert step >= int(last[1])
        elif last is not None:
            assert step >= int(last[0])
            assert len(mine) >= int(last[1])
    assert len(x) == sum(rows.get("x", 0) for _, rows in standing.values())
    assert len(z) == sum(rows.get("g/z", 0) for _, rows in standing.values())
    assert len(t) == sum(rows.get("t", 0) for _, rows in standing.values())
    texts = t[: standing[0][1].get("t", 0)]
    assert [int(text) for text in texts] == sorted({int(text) for text in texts})


# Two ranks are killed for each seed: 16 kills, and more than a thousand with --slow; in pieces, so that each
# stays below the time limit of a test.
_SEEDS = [
    range(8),
    *(pytest.param(range(i, i + 50), marks=pytest.mark.slow) for i in range(8, 608, 50)),
]


@pytest.mark.parametrize("seeds", _SEEDS, ids=str)
def test_a_kill_during_any_call_loses_no_committed_row(tmp_path, seeds):
    run = tmp_path / "run"
    for rank in range(RANKS):
        # So that there is something to merge, however early the first kill is.
        with WorkerFile(run, World(rank=rank, size=RANKS)) as out:
            out.append("x", np.empty((0, 64), "i8"))
            out.declare("t", str)
            out.commit(step=0)
    for seed in seeds:
        children = [_start(run, rank, seed) for rank in range(RANKS)]
        for child in children:
            _wait_until_ready(child)
        time.sleep(random.random() * 0.1)
        acknowledged = {}
        for rank, child in enumerate(children):
            lines = _kill(child)
            if lines:
                acknowledged[rank] = lines[-1]
        _check(run, acknowledged)
        # A restart from an old checkpoint; it also keeps the folder small.
        rollback(run, step=5)


def _roll_back(write_end, run):
    os.write(write_end, b"ready")
    rollback(run, step=3)


@pytest.mark.parametrize("runs", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_a_kill_during_a_rollback_leaves_a_first_part_of_the_commits(tmp_path, runs):
    for number in range(runs):
        run = tmp_path / str(number)
        for rank in range(RANKS):
            with WorkerFile(run, World(rank=rank, size=RANKS), durable=False) as out:
                for step in range(60):
                    out.append("x", [[rank, step]])
                    out.commit(step=step)
        child = start(_roll_back, run)
        child.wait_for_word()
        time.sleep(random.random() * 0.08)
        child.kill()
        child.join()
        left = [len(list_segments(run / f"rank-{rank:05d}")) for rank in range(RANKS)]
        assert all(4 <= count <= 60 for count in left)
        merge(run, run / "all.h5", incomplete="allow")
        with h5py.File(run / "all.h5") as file:
            expected = [[rank, step] for rank in range(RANKS) for step in range(left[rank])]
            assert file["x"][:].tolist() == expected
        assert rollback(run, step=3) == {0: 3, 1: 3}


def test_a_running_writer_is_named_and_a_killed_one_does_not_block(tmp_path):
    child = _start(tmp_path, 0, 1)
    _wait_until_ready(child)
    try:
        for action in (
            lambda: WorkerFile(tmp_path, World(rank=0, size=2)),
            lambda: rollback(tmp_path, step=-1),
        ):
            with pytest.raises(LockTimeoutError, match=f"pid {child.pid} ") as caught:
                action()
            assert caught.value.holder["pid"] == child.pid
    finally:
        _kill(child)
    WorkerFile(tmp_path, World(rank=0, size=2)).close()


_SHARE = """
import sys
import numpy as np
from shardkeep.hdf5 import WorkerFile
from shardkeep.world import World
rank = int(sys.argv[2])
with WorkerFile(sys.argv[1], World(rank=rank, size=8), durable=rank % 4 == 0, compression="lzf") as out:
    out.put("classes", [10, 20])
    out.set_attribute("run", "shared")
    for step in range(20):
        for i in range(40):
            out.append("x", np.full((1, 64), rank * 800 + step * 40 + i))
        out.append("t", [f"{rank} {step}"])
        out.commit(step=step)
"""


def test_eight_processes_write_one_run_folder(tmp_path):
    run = tmp_path / "new" / "run"  # all of them make it at once
    command = [sys.executable, "-c", _SHARE, str(run)]
    children = [subprocess.Popen([*command, str(rank)]) for rank in range(8)]
    assert [child.wait(PATIENCE_S) for child in children] == [0] * 8
    report = merge(run, tmp_path / "all.h5")
    assert report.rows == {"x": 6400, "t": 160}
    with h5py.File(tmp_path / "all.h5") as file:
        assert (file["x"][:, 0] == np.arange(6400)).all()
        assert file["t"].asstr()[:].tolist() == [f"{rank} {step}" for rank in range(8) for step in range(20)]
        assert file["classes"][:].tolist() == [10, 20]


MANY_RANKS = 4


def _commit_often(write_end, run, rank, seed):
    """Commit one to three rows at a time, of both kinds, and acknowledge each commit."""
    chance = random.Random(seed)
    with WorkerFile(run, World(rank=rank, size=MANY_RANKS), durable=seed % 8 == 0) as out:
        step = -1 if out.committed_step is None else out.committed_step
        row = out.committed_rows.get("x", 0)
        while True:
            step += 1
            for _ in range(chance.randint(1, 3)):
                out.append("x", [[rank, row]])
                out.append("t", [f"{rank} {row}"])
                row += 1
            out.commit(step=step)
            os.write(write_end, f"{step} {row}\n".encode())


@pytest.mark.parametrize("commits", [20, pytest.param(500, marks=pytest.mark.slow)])
def test_many_ranks_that_are_killed_repeatedly_lose_no_commit(tmp_path, commits):
    chance = random.Random(commits)
    run = tmp_path / "run"
    lives = 0
    acknowledged = dict.fromkeys(range(MANY_RANKS), (-1, 0))
    while True:
        running = [rank for rank in acknowledged if acknowledged[rank][0] + 1 < commits]
        if not running:
            break
        lives += 1
        assert lives <= commits  # each life of a rank makes at least one commit
        children = {rank: start(_commit_often, run, rank, chance.randrange(1 << 30)) for rank in running}
        said = {rank: children[rank].wait_for_word() for rank in running}
        time.sleep(chance.uniform(0, 0.1))
        for rank in chance.sample(running, len(running)):
            children[rank].kill()
        for rank in running:
            assert children[rank].join() == -signal.SIGKILL
            whole = (said[rank] + children[rank].said()).rpartition(b"\n")[0]
            step, rows = map(int, whole.splitlines()[-1].split())
            assert step > acknowledged[rank][0]
            acknowledged[rank] = (step, rows)
    standing = {}
    for rank in range(MANY_RANKS):
        with WorkerFile(run, World(rank=rank, size=MANY_RANKS)) as out:
            standing[rank] = out.committed_rows["x"]
            assert out.committed_step >= max(acknowledged[rank][0], commits - 1)
            assert standing[rank] >= acknowledged[rank][1]
        assert len(list_segments(str(run / f"rank-{rank:05d}"))) >= commits
    merge(run, tmp_path / "all.h5", incomplete="allow")
    expected = [[rank, row] for rank, rows in standing.items() for row in range(rows)]
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["x"][:].tolist() == expected
        assert file["t"].asstr()[:].tolist() == [f"{rank} {row}" for rank, row in expected]
