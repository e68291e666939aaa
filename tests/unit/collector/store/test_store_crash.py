"""The file of a collector after a kill, or a power cut, at every single operation on the disk.

Covers `shardkeep.collector.store.appended_rows`.
"""

import os
import random

import h5py
import numpy as np
import pytest

from shardkeep.collector.protocol.payload import encode_rows
from shardkeep.collector.protocol.schema import Schema
from shardkeep.collector.store.client_table import ClientEntry
from shardkeep.collector.store.store import Store
from shardkeep.hdf5.storage.dtypes import TEXT
from tests.unit.collector.store.disk import Disk

IDENTITY = b"0123456789abcdef"
GZIP = ((1, 1, (1,)),)
SCHEMAS = [
    Schema("x", np.dtype("i4"), (8,), 16),
    Schema("g/loss", np.dtype("f8"), (), 8),
    Schema("t", TEXT, (), 4),
    Schema("z", np.dtype("i8"), (2,), 8, GZIP),
    Schema("k", np.dtype("i4"), (3,), 8, rows=64),
]


def _rows(name: str, start: int, stop: int) -> np.ndarray:
    numbers = np.arange(start, stop)
    if name == "t":
        return np.array([b"row %d" % n for n in numbers], TEXT)
    schema = next(one for one in SCHEMAS if one.name == name)
    shape = (len(numbers), *schema.row_shape)
    return np.broadcast_to(numbers.reshape(-1, *(1 for _ in schema.row_shape)), shape).astype(schema.dtype)


def _work(path: str, disk: Disk, *, synced: bool, seed: int, close: bool) -> None:
    """Append and commit; each commit promises its number of rows of each dataset. Row i has the value i."""
    chance = random.Random(seed)
    store = Store(path, synced=synced)
    rows = dict.fromkeys((one.name for one in SCHEMAS), 0)
    keys = list(range(64))
    chance.shuffle(keys)
    for round in range(14):
        for schema in SCHEMAS[: 2 + round]:
            store.declare(schema)
            count = chance.choice([0, 1, 3, 20])
            start = rows[schema.name]
            if schema.rows is None:
                data = _rows(schema.name, start, start + count)
                store.append(schema.name, memoryview(encode_rows(data)), count)
            else:
                count = min(count, 4)
                mine = np.array(keys[start : start + count], "<i8")
                data = np.repeat(mine, 3).astype("i4") + 1
                store.put(schema.name, memoryview(encode_rows(data)), mine, round, 99)
            rows[schema.name] += count
        store.clients.update(ClientEntry(IDENTITY, 0, 1, round + 1))
        if chance.random() < 0.7:
            commit = store.begin_commit()
            begun = dict(rows), round + 1
            store.live.write_commit(commit)
            disk.say(begun)
            store.live.end_commit()
        if chance.random() < 0.3:
            store.live.apply_rows()  # as while a reader holds the file and memory is short
        if chance.random() < 0.3:
            store.apply()
    if close:
        store.close()
        disk.say((rows, 14))
    else:
        store.abandon().release()


def _check(folder, said) -> None:
    """Check that promised rows are there, and that other rows are complete or absent."""
    path = str(folder / "all.h5")
    wanted, sequence = said or ({}, 0)
    store = Store(path, synced=False)
    entry = store.clients.find(IDENTITY)
    assert (entry.sequence if entry else 0) >= sequence
    store.close()
    with h5py.File(path) as file:
        for name, least in wanted.items():
            if name == "k":
                written = (file["_collector/writers/k"][:] > 0).sum() if "k" in file else 0
                assert written >= least
                continue
            assert (len(file[name]) if name in file else 0) >= least
        for schema in SCHEMAS:
            if schema.name not in file:
                continue
            found = file[schema.name][:]
            if schema.name == "k":
                who = file["_collector/writers/k"][:]
                for key, row in enumerate(found.tolist()):
                    assert row == ([key + 1] * 3 if who[key] else [0] * 3)
            else:
                assert (found == _rows(schema.name, 0, len(found))).all(), schema.name
    assert sorted(one.name for one in folder.iterdir()) == ["all.h5"]


def _kills(tmp_path, synced, step):
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(patch)
        (tmp_path / "work").mkdir()
        _work(str(tmp_path / "work/all.h5"), disk, synced=synced, seed=int(synced), close=not synced)
    assert len(disk.operations) > 150
    for count in range(0, len(disk.operations) + 1, step):
        folder = tmp_path / f"crash-{count}"
        folder.mkdir()
        said = disk.crash(count, folder)
        if said is not None or list(folder.iterdir()):
            _check(folder, said)


def _power_cuts(tmp_path, seed, times):
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(patch)
        (tmp_path / "work").mkdir()
        _work(str(tmp_path / "work/all.h5"), disk, synced=True, seed=seed, close=True)
    chance = random.Random(seed)
    for number in range(times):
        count = chance.randrange(len(disk.operations) + 1)
        folder = tmp_path / f"cut-{number}"
        folder.mkdir()
        said = disk.crash(count, folder, power_cut=chance)
        if said is not None or list(folder.iterdir()):
            _check(folder, said)


def test_rows_may_come_while_a_commit_is_written(tmp_path, monkeypatch):
    """Another thread writes a commit; whatever it calls, more rows may have come just before."""
    store = Store(str(tmp_path / "all.h5"), synced=True)
    store.declare(Schema("x", np.dtype("i8"), (4,), 8))
    rows = [0]

    def more():
        store.append("x", memoryview(encode_rows(np.full((11, 4), rows[0] + 1))), 11)
        rows[0] += 1

    for _ in range(5):
        more()
        commit = store.begin_commit()
        with monkeypatch.context() as patch:
            for name in ("fstat", "ftruncate", "fdatasync"):
                real = getattr(os, name)
                patch.setattr(os, name, lambda *args, real=real: (more(), real(*args))[1])
            store.live.write_commit(commit)
        store.live.end_commit()
    store.close()
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["x"][:, 3].tolist() == np.repeat(np.arange(1, rows[0] + 1), 11).tolist()


@pytest.mark.parametrize("synced", [False, True])
def test_a_kill_at_any_operation_loses_no_commit(tmp_path, synced):
    _kills(tmp_path, synced, 13)


def test_a_power_cut_at_any_operation_loses_no_synced_commit(tmp_path):
    _power_cuts(tmp_path, 7, 30)


@pytest.mark.slow
@pytest.mark.parametrize("synced", [False, True])
def test_a_kill_at_every_operation_loses_no_commit(tmp_path, synced):
    _kills(tmp_path, synced, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_many_power_cuts_lose_no_synced_commit(tmp_path, seed):
    _power_cuts(tmp_path, seed, 200)
