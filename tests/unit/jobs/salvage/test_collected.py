"""Covers `shardkeep.jobs.salvage.collected_child`."""

from __future__ import annotations

import os
import shutil
import tempfile

import h5py
import numpy as np
import pytest

from shardkeep.collector.protocol.payload import encode_rows
from shardkeep.collector.protocol.schema import Schema
from shardkeep.collector.store.client_table import ClientEntry
from shardkeep.collector.store.store import Store
from shardkeep.errors import ExistsError
from shardkeep.hdf5.journal.redo_log import LogHeader, RedoLog, read_log
from shardkeep.hdf5.storage.dtypes import TEXT
from shardkeep.jobs.salvage.collected import salvage_collected
from shardkeep.jobs.verify import verify
from tests.damaged_runs import tree

GZIP = ((1, 1, (1,)),)
SCHEMAS = [
    Schema("x", np.dtype("i4"), (8,), 16),
    Schema("t", TEXT, (), 4),
    Schema("z", np.dtype("i8"), (2,), 8, GZIP),
    Schema("k", np.dtype("i4"), (3,), 8, rows=64),
]
COUNT = 5


def _rows(name, start, stop):
    numbers = np.arange(start, stop)
    if name == "t":
        return np.array([b"row %d" % one for one in numbers], TEXT)
    schema = next(one for one in SCHEMAS if one.name == name)
    shape = (len(numbers), *schema.row_shape)
    return np.broadcast_to(numbers.reshape(-1, *(1 for _ in schema.row_shape)), shape).astype(schema.dtype)


def _commit(store, number):
    """Add rows to each dataset and commit them."""
    start, stop = COUNT * number, COUNT * (number + 1)
    for schema in SCHEMAS:
        store.declare(schema)
        data = memoryview(encode_rows(_rows(schema.name, start, stop)))
        if schema.rows is None:
            store.append(schema.name, data, COUNT)
        else:
            store.put(schema.name, data, np.arange(start, stop), 0, 1)
    rows = len(SCHEMAS) * stop
    store.clients.update(ClientEntry(b"0123456789abcdef", 0, 1, number + 1, rows=rows))
    store.commit()


def _killed(folder, applied=2, logged=3):
    """Return a file whose collector was killed after some commits in the file and others in its log."""
    folder.mkdir()
    path = folder / "all.h5"
    store = Store(str(path), synced=False)
    for number in range(applied):
        _commit(store, number)
    store.apply()
    for number in range(applied, applied + logged):
        _commit(store, number)
    store.abandon().release()
    return path


def _salvage(path):
    """Salvage a file into another folder; the original and its log stay as they are."""
    before = tree(path.parent)
    output = path.parent.parent / "out" / "new.h5"
    output.parent.mkdir()
    result = salvage_collected(str(path), str(output), tick=lambda _: None)
    assert tree(path.parent) == before
    assert os.listdir(output.parent) == ([] if result.output is None else ["new.h5"])
    assert result.kind == "collected"
    return result, output


def _check(output, commits):
    """Check that a file has exactly the rows of the first commits."""
    rows = COUNT * commits
    with h5py.File(output) as file:
        for schema in SCHEMAS[:3]:
            assert (file[schema.name][:] == _rows(schema.name, 0, rows)).all() and len(
                file[schema.name]
            ) == rows
        written = file["_collector/writers/k"][:] > 0
        assert written.tolist() == [True] * rows + [False] * (64 - rows)
        assert (file["k"][:rows] == _rows("k", 0, rows)).all() and not file["k"][rows:].any()
        assert "tails" not in file["_collector"]
    assert verify(output).ok


def _outcomes(result):
    return {outcome: result.items(outcome) for outcome in ("repaired", "unchecked", "lost")}


def _flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 4
    path.write_bytes(bytes(data))


def _log(path):
    return path.with_name("all.h5.redo")


def _records(path):
    """Return the offsets of the records of a log."""
    data, found = path.read_bytes(), []
    at = data.find(b"SKRC")
    while at >= 0:
        found.append(at)
        at = data.find(b"SKRC", at + 24 + int.from_bytes(data[at + 8 : at + 16], "little"))
    return found


def test_all_commits_of_a_killed_collector_are_kept(tmp_path):
    result, output = _salvage(_killed(tmp_path / "a"))
    _check(output, 5)
    assert result.ok and _outcomes(result) == {"repaired": 0, "unchecked": 4 * 25, "lost": 0}
    reasons = [one.reason for one in result.parts if one.outcome == "repaired"]
    assert reasons == ["3 commits of the redo log applied"]


def test_a_dry_run_leaves_nothing(tmp_path, monkeypatch):
    path = _killed(tmp_path / "a")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    before = tree(tmp_path)
    ticks = []
    dry = salvage_collected(str(path), None, tick=ticks.append)
    assert sum(ticks) == path.stat().st_size and dry.output is None
    assert tree(tmp_path) == before
    assert dry.parts == _salvage(path)[0].parts


def test_a_collector_continues_the_new_file(tmp_path):
    _, output = _salvage(_killed(tmp_path / "a"))
    store = Store(str(output), synced=False)
    assert store.recovery is None and store.clients.find(b"0123456789abcdef").sequence == 5
    _commit(store, 5)
    store.close()
    _check(output, 6)


@pytest.mark.parametrize("place", ["in a record", "between records", "in the header", "empty"])
def test_a_log_that_is_cut_off(tmp_path, place):
    path = _killed(tmp_path / "a")
    last = _records(_log(path))[-1]
    size = {"in a record": last + 99, "between records": last, "in the header": 20, "empty": 0}[place]
    os.truncate(_log(path), size)
    result, output = _salvage(path)
    _check(output, 4 if size >= last else 2)
    assert any("ends inside a commit" in note for note in result.notes) == (place == "in a record")
    assert any("the start of the redo log" in note for note in result.notes) == (size < 30)


@pytest.mark.parametrize("number", range(3))
def test_a_log_with_a_damaged_commit(tmp_path, number):
    path = _killed(tmp_path / "a")
    _flip(_log(path), _records(_log(path))[number] + 60)
    result, output = _salvage(path)
    _check(output, 2 + number)
    (lost,) = (one for one in result.parts if one.outcome == "lost")
    assert lost.reason.startswith(f"{3 - number} commit") and "damaged part of the redo log" in lost.reason
    assert lost.bytes == _log(path).stat().st_size - _records(_log(path))[number]


def test_a_log_with_a_damaged_header(tmp_path):
    """Its commits have checksums, and the header only says of which file they are."""
    path = _killed(tmp_path / "a")
    _flip(_log(path), 30)
    result, output = _salvage(path)
    _check(output, 5)
    assert any("is damaged; its commits are used" in note for note in result.notes)


def test_a_file_without_its_log(tmp_path):
    path = _killed(tmp_path / "a")
    os.unlink(_log(path))
    _, output = _salvage(path)
    _check(output, 2)


def test_a_log_of_another_file_is_not_used(tmp_path):
    path, other = _killed(tmp_path / "a"), _killed(tmp_path / "b", applied=4)
    shutil.copy(_log(other), _log(path))
    result, output = _salvage(path)
    _check(output, 2)
    assert not result.ok and any("the redo log is not used: " in one.reason for one in result.parts)


def test_an_older_log_of_the_same_file_is_not_used(tmp_path):
    path = _killed(tmp_path / "a")
    old = _log(path).read_bytes()
    store = Store(str(path), synced=False)
    _commit(store, 5)
    store.close()
    _log(path).write_bytes(old)
    result, output = _salvage(path)
    _check(output, 6)
    assert any("is not the file of which" in one.reason for one in result.parts if one.outcome == "lost")


def test_a_crash_while_the_log_was_applied(tmp_path):
    """Some changes of the log are in the file already."""
    path = _killed(tmp_path / "a")
    _, records = read_log(str(_log(path)))
    for record in list(records)[::2]:
        with open(path, "r+b") as file:
            for offset, data in record.extents[::2]:
                file.seek(offset)
                file.write(data)
    _, output = _salvage(path)
    _check(output, 5)


def test_a_collector_that_was_killed_before_its_first_commit(tmp_path):
    path = tmp_path / "a" / "all.h5"
    path.parent.mkdir()
    path.write_bytes(bytes(48) + b"half of a new file")
    RedoLog(str(_log(path)), LogHeader(fresh=True, synced=False, boot="", file_bytes=0)).close(remove=False)
    result, _ = _salvage(path)
    assert result.output is None and not result.ok
    assert "killed before its first commit" in result.parts[0].reason


def test_damage_beyond_the_log(tmp_path):
    """The rows of datasets that HDF5 can still read are kept."""
    path = _killed(tmp_path / "a")
    os.unlink(_log(path))
    with h5py.File(path) as file:
        at = h5py.h5o.get_info(file["z"].id).addr
    with open(path, "r+b") as file:
        file.seek(at + 20)
        file.write(bytes(16))
    result, output = _salvage(path)
    assert not result.ok and result.output is not None
    with h5py.File(output) as file:
        assert "z" not in file and (file["x"][:] == _rows("x", 0, 10)).all()
    assert any("HDF5 cannot read the whole file" in note for note in result.notes)


def test_a_file_that_is_nothing_but_damage(tmp_path):
    path = _killed(tmp_path / "a")
    path.write_bytes(os.urandom(5000))
    result, _ = _salvage(path)
    assert not result.ok and result.output is None
    assert all("sktmp" not in one.reason for one in result.parts)


def test_an_existing_output_stays(tmp_path):
    path = _killed(tmp_path / "a")
    (tmp_path / "b").write_text("mine")
    with pytest.raises(ExistsError):
        salvage_collected(str(path), str(tmp_path / "b"), tick=lambda _: None)
    assert (tmp_path / "b").read_text() == "mine"
    salvage_collected(str(path), str(tmp_path / "b"), exists="replace", tick=lambda _: None)
    _check(tmp_path / "b", 5)
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
