"""Random damage of the files of a run: every row of the new run is one that was committed there, once.

Covers `shardkeep.jobs.salvage.run`.
"""

from __future__ import annotations

import os
import random
import shutil

import pytest

from shardkeep.hdf5 import merge
from shardkeep.jobs.salvage.run import salvage_run
from tests.damaged_runs import make_run, read_merged, segments_of, tree

RANKS, COMMITS = 4, 4
_KINDS = ("flip", "zero", "cut", "insert", "remove", "noise", "delete", "exchange", "copy", "rename")


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """Return the folder of a whole run; not to be changed."""
    run = tmp_path_factory.mktemp("whole") / "run"
    make_run(run, RANKS, COMMITS)
    return run


def _damage(chance, paths):
    """Damage random files; return those that have other bytes, or another name, than before."""
    changed = set()
    for _ in range(chance.choice([1, 1, 2, 3, 6])):
        path, other = chance.sample(paths, 2)
        if not path.exists():
            continue
        data = path.read_bytes()
        at = chance.randrange(len(data) + 1)
        size = chance.choice([1, 8, 100, 3000])
        kind = chance.choice(_KINDS)
        if kind == "flip" and data:
            at = min(at, len(data) - 1)
            path.write_bytes(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])
        elif kind == "zero":
            path.write_bytes(data[:at] + bytes(min(size, len(data) - at)) + data[at + size :])
        elif kind == "cut":
            path.write_bytes(data[:at])
        elif kind == "insert":
            path.write_bytes(data[:at] + chance.randbytes(size) + data[at:])
        elif kind == "remove":
            path.write_bytes(data[:at] + data[at + size :])
        elif kind == "noise":
            path.write_bytes(data[:at] + chance.randbytes(min(size, len(data) - at)) + data[at + size :])
        elif kind == "delete":
            os.unlink(path)
        elif kind == "exchange" and other.exists():
            path.write_bytes(other.read_bytes())
            other.write_bytes(data)
            changed.add(other)
        elif kind == "copy":
            shutil.copy(path, other)
            changed.add(other)
            continue
        elif kind == "rename":
            path.rename(path.with_name(chance.choice(["00000009-step-90.h5", "1-step-20.h5", "a.h5", "old"])))
        changed.add(path)
    return changed


def _one(whole_run, tmp_path, seed):
    chance = random.Random(seed)
    run, output, merged = tmp_path / f"run-{seed}", tmp_path / f"out-{seed}", tmp_path / f"{seed}.h5"
    shutil.copytree(whole_run, run)
    paths = segments_of(run)
    changed = _damage(chance, sorted(paths.values()))
    before = tree(run)
    result = salvage_run(str(run), str(output), tick=lambda _: None)
    assert tree(run) == before
    found = set()
    if result.output is not None:
        merge(output, merged, incomplete="allow", check="full")
        found = read_merged(merged)
    assert found >= {number for number, path in paths.items() if path not in changed}, seed
    lost = set(paths) - found
    # Of the newest commits of a rank nothing may be left that shows that there were more.
    newest = {rank: max(number for one, number in found if one == rank) for rank, _ in found}
    gaps = {(rank, number) for rank, number in lost if number < newest.get(rank, 0)}
    assert not gaps or not result.ok, (seed, gaps)
    shutil.rmtree(run)
    shutil.rmtree(output, ignore_errors=True)


def test_damaged_runs(tmp_path, whole_run):
    for seed in range(5):
        _one(whole_run, tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("tenth", range(10))
def test_many_damaged_runs(tmp_path, whole_run, tenth):
    for seed in range(1000 + 30 * tenth, 1030 + 30 * tenth):
        _one(whole_run, tmp_path, seed)
