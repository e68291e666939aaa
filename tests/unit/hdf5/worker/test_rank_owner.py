"""One call at a time: threads, signal handlers, the end. Processes are in tests/procs."""

import os
import signal
import threading

import h5py
import numpy as np
import pytest

from shardkeep.errors import ExistsError, LockError, LockTimeoutError, PlanError
from shardkeep.hdf5 import WorkerFile, merge
from shardkeep.hdf5.segments.segment import Segment
from shardkeep.hdf5.storage.row_writer import RowWriter
from shardkeep.world import World
from tests.waiting import PATIENCE_S

WORLD = World(rank=0, size=1)


@pytest.fixture
def on_signal():
    """Return a function that sets the handler of SIGUSR1."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda action: signal.signal(signal.SIGUSR1, lambda *_: action())
    signal.signal(signal.SIGUSR1, before)


def _interrupted(monkeypatch, owner, name):
    """Let a signal come in the middle of a method."""
    original = getattr(owner, name)

    def method(*arguments):
        os.kill(os.getpid(), signal.SIGUSR1)
        return original(*arguments)

    monkeypatch.setattr(owner, name, method)


def _merged(run):
    merge(run, run / "all.h5", exists="replace")
    with h5py.File(run / "all.h5") as file:
        return file["x"][:].tolist()


@pytest.mark.parametrize("place", [(Segment, "seal"), (RowWriter, "finish"), (RowWriter, "reset")])
def test_close_in_the_middle_of_a_commit_waits_for_it(tmp_path, monkeypatch, on_signal, place):
    out = WorkerFile(tmp_path, WORLD)
    out.append("x", [1, 2])
    on_signal(out.close)
    _interrupted(monkeypatch, *place)
    out.commit(step=1)
    with pytest.raises(LockError, match="closed"):
        out.append("x", [3])
    assert _merged(tmp_path) == [1, 2]
    WorkerFile(tmp_path, WORLD).close()


def test_close_in_the_middle_of_an_append_warns_after_it(tmp_path, monkeypatch, on_signal):
    out = WorkerFile(tmp_path, WORLD)
    out.append("x", [1])
    out.commit(step=1)
    on_signal(out.close)
    _interrupted(monkeypatch, RowWriter, "_write")
    with pytest.warns(RuntimeWarning, match="100000 of 'x'"):
        out.append("x", np.arange(100_000))
    assert _merged(tmp_path) == [1]


@pytest.mark.parametrize("place", [(Segment, "seal"), (RowWriter, "finish"), (RowWriter, "reset")])
@pytest.mark.parametrize(
    "call",
    [
        lambda out: out.commit(step=2),
        lambda out: out.rollback(step=-1),
        lambda out: out.append("x", np.arange(5)),
        lambda out: out.put("v", 1),
        lambda out: out.set_attribute("a", 1),
        lambda out: out.declare("y", "f4"),
        lambda out: out.attributes(),
    ],
)
def test_other_calls_in_the_middle_of_a_commit_are_refused(tmp_path, monkeypatch, on_signal, place, call):
    said = []
    with WorkerFile(tmp_path, WORLD) as out:
        out.append("x", [1, 2])

        def act():
            with pytest.raises(LockError, match="in the middle of commit") as caught:
                call(out)
            said.append(str(caught.value))

        on_signal(act)
        _interrupted(monkeypatch, *place)
        out.commit(step=1)
        monkeypatch.undo()
        assert said and "\n" not in said[0]
        out.append("x", [3])
        out.commit(step=2)
    assert _merged(tmp_path) == [1, 2, 3]


def test_a_handler_that_raises_in_a_commit_leaves_it_undone(tmp_path, monkeypatch, on_signal):
    with pytest.raises(SystemExit), WorkerFile(tmp_path, WORLD) as out:
        out.append("x", [1])
        out.commit(step=1)
        out.append("x", [2])

        def leave():
            out.close()
            raise SystemExit

        on_signal(leave)
        _interrupted(monkeypatch, Segment, "seal")
        out.commit(step=2)
    monkeypatch.undo()
    assert _merged(tmp_path) == [1]
    with WorkerFile(tmp_path, WORLD) as out:
        assert out.committed_step == 1


def test_one_row_from_a_handler_is_in_this_commit_or_the_next(tmp_path, monkeypatch, on_signal):
    row = np.array([9])
    with WorkerFile(tmp_path, WORLD) as out:
        out.append("x", np.array([1]))
        on_signal(lambda: out.append("x", row))
        for step, place in enumerate([(RowWriter, "finish"), (Segment, "seal"), (RowWriter, "reset")]):
            with monkeypatch.context() as patch:
                _interrupted(patch, *place)
                out.commit(step=step)
        out.commit(step=3)
        assert out.committed_rows == {"x": 4}
    assert _merged(tmp_path) == [1, 9, 9, 9]


def test_signals_at_any_instant_neither_lose_nor_double_rows(tmp_path, on_signal):
    """Row by row, the quick way, while handlers append and close."""
    count = 0
    with WorkerFile(tmp_path, WORLD, durable=False) as out:
        out.append("x", np.array([0]))

        def act():
            nonlocal count
            count += 1
            out.append("x", np.array([-count]))

        on_signal(act)
        stop = threading.Event()

        def shoot():
            while not stop.wait(0.0005):
                os.kill(os.getpid(), signal.SIGUSR1)

        shooter = threading.Thread(target=shoot)
        shooter.start()
        try:
            for i in range(1, 30_001):
                out.append("x", np.array([i]))
                if i % 10_000 == 0:
                    out.commit(step=i)
        finally:
            stop.set()
            shooter.join()
        out.commit(step=40_000)
    rows = np.array(_merged(tmp_path))
    assert rows[rows >= 0].tolist() == list(range(30_001))
    assert count > 3
    assert rows[rows < 0].tolist() == list(range(-1, -count - 1, -1))


def test_a_full_buffer_waits_for_the_commit_of_another_thread(tmp_path, monkeypatch):
    """Rows that come while a commit syncs may not pile up without end."""
    with WorkerFile(tmp_path, WORLD, durable=False) as out:
        out.append("x", np.array([0]))
        inside, go_on = threading.Event(), threading.Event()
        original = Segment.seal

        def slow(*arguments):
            inside.set()
            assert go_on.wait(PATIENCE_S)
            original(*arguments)

        monkeypatch.setattr(Segment, "seal", slow)

        def push():
            for i in range(1, 5001):
                out.append("x", np.array([i]))

        threads = [threading.Thread(target=out.commit, kwargs={"step": 1}), threading.Thread(target=push)]
        threads[0].start()
        assert inside.wait(PATIENCE_S)
        threads[1].start()
        threads[1].join(0.2)
        assert threads[1].is_alive()
        assert len(out._writers["x"].parts) == 1024
        go_on.set()
        for one in threads:
            one.join(PATIENCE_S)
        monkeypatch.undo()
        out.commit(step=2)
    assert _merged(tmp_path) == list(range(5001))


def _committed(run, rank=0, **options):
    with WorkerFile(run, World(rank=rank, size=2), **options) as out:
        out.append("x", 1)
        out.commit(step=1 if out.committed_step is None else out.committed_step + 1)


def test_exists_decides_about_earlier_commits(tmp_path):
    for rank in range(2):
        _committed(tmp_path, rank, exists="fail")
    with pytest.raises(ExistsError, match=r"rank 0 has commits up to step 1 .* exists=\"resume\"") as caught:
        _committed(tmp_path, exists="fail")
    assert caught.value.exit_code == 2
    _committed(tmp_path, exists="resume")
    _committed(tmp_path)
    with WorkerFile(tmp_path, World(rank=0, size=2)) as out:
        assert (out.committed_step, out.committed_rows) == (3, {"x": 3})
    _committed(tmp_path, exists="replace")
    with WorkerFile(tmp_path, World(rank=0, size=2)) as out:
        assert (out.committed_step, out.committed_rows) == (1, {"x": 1})
    assert len(list(tmp_path.rglob("rank-00001/*.h5"))) == 1
    with pytest.raises(PlanError, match='exists must be "resume", "fail" or "replace", not \'append\''):
        _committed(tmp_path, exists="append")


@pytest.mark.parametrize("exists", ["replace", "fail"])
def test_commits_of_a_live_worker_are_not_replaced(tmp_path, exists):
    with WorkerFile(tmp_path, WORLD) as out:
        out.append("x", 1)
        out.commit(step=1)
        with pytest.raises(LockTimeoutError):
            WorkerFile(tmp_path, WORLD, exists=exists)
        out.append("x", 2)
        out.commit(step=2)
    with WorkerFile(tmp_path, WORLD) as out:
        assert out.committed_rows == {"x": 2}


@pytest.mark.parametrize("value", [0.5, 3, "word", np.float32(2)])
def test_a_scalar_is_appended_as_one_row(tmp_path, value):
    with WorkerFile(tmp_path, WORLD) as out:
        for _ in range(3):
            out.append("x", value)
        out.append("x", [value])
        out.commit(step=1)
    rows = _merged(tmp_path)
    assert rows == [value.encode() if isinstance(value, str) else value] * 4
