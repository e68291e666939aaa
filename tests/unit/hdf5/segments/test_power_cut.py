"""A power cut at every instant, on a disk that keeps only what was synced, and of the rest anything.

`_Disk` watches the calls that reach the kernel. After each it knows what a power cut may leave: bytes of
a file that were not synced are there, half there, zeros or missing; names that were not synced are there
or not, each for itself. POSIX promises no more, whatever one file system does. Every such state is made
and opened.

Covers `shardkeep.hdf5.segments.run_folder` and `shardkeep.hdf5.segments.segment`.
"""

import itertools
import os

import h5py
import numpy as np
import pytest

from shardkeep.hdf5 import WorkerFile, rollback
from shardkeep.hdf5.segments.run_folder import list_segments
from shardkeep.world import World

WORLD = World(rank=0, size=1)


class _Disk:
    def __init__(self, folder, monkeypatch):
        self.folder = str(folder)
        self.content = {}  # by inode: what a reader sees, and what is on the platter (None: nothing yet)
        self.synced = {}
        self.names = {}  # on the platter
        self.pending = []  # (name, inode or None) since the folder was synced
        self.allowed = [()]  # commits that may be found now
        self.whole = set()
        self.states = {}
        for function in ("pwrite", "ftruncate", "fsync", "link", "unlink"):
            monkeypatch.setattr(os, function, self._watched(function, getattr(os, function)))

    def allow(self, allowed):
        self.allowed = allowed
        self._remember()

    def _watched(self, function, original):
        def call(*arguments, **options):
            result = original(*arguments, **options)
            getattr(self, f"_{function}")(*arguments)
            self._remember()
            return result

        return call

    def _pwrite(self, fd, *_):
        self.content[os.fstat(fd).st_ino] = os.pread(fd, 1 << 24, 0)

    _ftruncate = _pwrite

    def _fsync(self, fd):
        inode = os.fstat(fd).st_ino
        if inode in self.content:
            self.synced[inode] = self.content[inode]
        elif os.path.samestat(os.fstat(fd), os.stat(self.folder)):
            for name, target in self.pending:
                self.names[name] = target
            self.pending = []

    def _link(self, _, name):
        inode = os.stat(os.path.join(self.folder, name)).st_ino
        self.pending.append((name, inode))
        self.whole.add(self.content[inode])

    def _unlink(self, name):
        name = os.path.basename(name)
        if name.endswith(".h5"):
            self.pending.append((name, None))

    def _remember(self):
        for count in range(len(self.pending) + 1):
            for happened in itertools.combinations(self.pending, count):
                names = dict(self.names)
                for name, inode in happened:
                    names[name] = inode
                there = {name: inode for name, inode in names.items() if inode is not None}
                for contents in itertools.product(*(self._contents(inode) for inode in there.values())):
                    state = tuple(sorted(zip(there, contents, strict=True)))
                    self.states.setdefault(state, set(self.allowed))
                    self.states[state] &= set(self.allowed)

    def _contents(self, inode):
        now, synced = self.content[inode], self.synced.get(inode)
        if now == synced:
            return [now]
        return [now, now[: len(now) // 2], now[: len(now) // 2].ljust(len(now), b"\0"), b""]


def _act(run, disk):
    """Commit, roll back, commit again; `disk.allowed` says what may be found at each instant."""
    done = []

    def commit(out, step):
        out.append("x", np.full(2000, step))
        out.append("t", [str(step)])
        out.set_attribute("step", step)
        disk.allow([tuple(done), (*done, step)])
        out.commit(step=step)
        done.append(step)
        disk.allow([tuple(done)])

    def roll_back(action, step):
        last = [kept for kept in done if kept <= step]
        disk.allow([tuple(done[:count]) for count in range(len(last), len(done) + 1)])
        action(step=step)
        done[:] = last
        disk.allow([tuple(done)])

    with WorkerFile(run, WORLD) as out:
        for step in (1, 2, 3):
            commit(out, step)
        roll_back(out.rollback, 1)
        commit(out, 2)
        out.append("x", [7])
        roll_back(out.rollback, 2)
        commit(out, 5)
    roll_back(lambda step: rollback(run, step=step), 1)
    with WorkerFile(run, WORLD) as out:
        commit(out, 6)


def test_every_state_that_a_power_cut_may_leave_is_complete(tmp_path, monkeypatch):
    run = tmp_path / "run"
    WorkerFile(run, WORLD).close()
    with monkeypatch.context() as patch:
        disk = _Disk(run / "rank-00000", patch)
        _act(run, disk)
    assert len(disk.states) >= 7
    for number, (state, allowed) in enumerate(disk.states.items()):
        cut = tmp_path / f"cut-{number}"
        (cut / "rank-00000").mkdir(parents=True)
        for name, data in state:
            (cut / "rank-00000" / name).write_bytes(data)
        with WorkerFile(cut, WORLD, durable=False) as out:
            segments = list_segments(str(cut / "rank-00000"))
            steps = tuple(one.step for one in segments)
            assert steps in allowed
            assert out.committed_step == (steps[-1] if steps else None)
            assert out.committed_rows.get("x", 0) == 2000 * len(steps)
            assert out.attributes() == ({"step": steps[-1]} if steps else {})
        for one in segments:
            with h5py.File(one.path) as file:
                assert (file["x"][:] == one.step).all()
                assert file["t"].asstr()[:].tolist() == [str(one.step)]


def test_the_folders_of_a_rank_are_synced_as_they_are_made(tmp_path, monkeypatch):
    synced = []
    original = os.fsync

    def fsync(fd):
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        original(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    run = tmp_path / "new" / "run"
    WorkerFile(run, WORLD).close()
    assert {str(tmp_path), str(tmp_path / "new"), str(run)} <= set(synced)


@pytest.mark.parametrize("forgotten", ["file", "folder"])
def test_the_states_reveal_a_missing_sync(tmp_path, monkeypatch, forgotten):
    """The test of the test."""
    run = tmp_path / "run"
    WorkerFile(run, WORLD).close()
    with monkeypatch.context() as patch:
        disk = _Disk(run / "rank-00000", patch)
        watched = os.fsync

        def fsync(fd):
            if os.path.isdir(f"/proc/self/fd/{fd}") != (forgotten == "folder"):
                watched(fd)

        patch.setattr(os, "fsync", fsync)
        _act(run, disk)
    bad = 0
    for state, allowed in disk.states.items():
        steps = tuple(int(name.split("-")[2][:-3]) for name, _ in state)
        bad += steps not in allowed or not {data for _, data in state} <= disk.whole
    assert bad
