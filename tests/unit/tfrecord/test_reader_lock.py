"""Readers that hold a shared lock.

Covers `shardkeep.tfrecord.reader`.
"""

import gc
import os
import pickle
import time

import pytest

from shardkeep.errors import CorruptRecordError, LockError, LockTimeoutError
from shardkeep.files import FileLock
from shardkeep.files.locks import probe
from shardkeep.files.locks.mounts import Mount
from shardkeep.tfrecord import Reader, Writer

RECORDS = [b"a" * 100, b"bb" * 100, b"", b"last"]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.tfrecord"
    with Writer(path) as writer:
        for record in RECORDS:
            writer.write(record)
    return path


@pytest.fixture
def sshfs(monkeypatch):
    monkeypatch.setattr(probe, "_faults", {})
    monkeypatch.delenv("SHARDKEEP_LOCKS", raising=False)
    mount = Mount(7, "/data", "fuse.sshfs", "ada@host:/x", ("rw",))
    monkeypatch.setattr(probe, "mount_of", lambda folder: mount)


def is_free(path):
    try:
        with FileLock(path, timeout_s=0):
            return True
    except LockTimeoutError:
        return False


def test_everything_reads_as_without_a_lock(path):
    reader = Reader(path, lock=True)
    assert list(reader) == RECORDS
    assert (len(reader), reader[-1], reader[:2], reader.read_many([2, 0])) == (
        4,
        b"last",
        RECORDS[:2],
        [b"", RECORDS[0]],
    )
    assert is_free(path)
    assert os.listdir(path.parent) == ["a.tfrecord"]


def test_lock_is_held_from_the_first_record_to_the_end(path):
    records = iter(Reader(path, lock=True))
    assert is_free(path), "nothing is read yet"
    for _ in RECORDS:
        next(records)
        assert not is_free(path)
    assert next(records, None) is None
    assert is_free(path)


@pytest.mark.parametrize("end", ["close", "garbage", "error"])
def test_lock_is_free_after_any_end_of_the_iteration(path, end):
    if end == "error":
        content = bytearray(path.read_bytes())
        content[-5] ^= 1
        path.write_bytes(content)
    records = iter(Reader(path, lock=True))
    next(records)
    assert not is_free(path)
    if end == "close":
        records.close()
    elif end == "error":
        with pytest.raises(CorruptRecordError):
            list(records)
    else:
        del records
        gc.collect()
    assert is_free(path)


def test_read_many_reads_under_the_lock(path, monkeypatch):
    reader = Reader(path, lock=True)
    seen = []
    original = reader._indexed

    def indexed():
        seen.append(is_free(path))
        return original()

    monkeypatch.setattr(reader, "_indexed", indexed)
    reader.read_many([0])
    len(reader)
    assert seen == [False, False]
    with pytest.raises(IndexError):
        reader.read_many([99])
    assert is_free(path)


def test_a_writer_in_place_keeps_readers_out(path):
    reader = Reader(path, lock=True, lock_timeout_s=0)
    with Writer(path, exists="append") as writer:
        start = time.monotonic()
        for read in (lambda: next(iter(reader)), lambda: reader.read_many([0]), lambda: len(reader)):
            with pytest.raises(LockTimeoutError, match="this process"):
                read()
        with pytest.raises(LockTimeoutError):
            Reader(path, lock=True, lock_timeout_s=0)
        assert time.monotonic() - start < 5, "lock_timeout_s=0 does not wait, in any of them"
        assert list(Reader(path)) == RECORDS, "a reader without a lock does not ask"
        writer.write(b"more")
    assert list(reader) == [*RECORDS, b"more"]


def test_a_reader_keeps_a_writer_in_place_out(path):
    before = path.read_bytes()
    records = iter(Reader(path, lock=True))
    next(records)
    start = time.monotonic()
    with pytest.raises(LockTimeoutError):
        Writer(path, exists="append")
    assert time.monotonic() - start < 5
    assert path.read_bytes() == before
    records.close()
    with Writer(path, exists="append", lock_timeout_s=5) as writer:
        writer.write(b"more")


def test_two_iterations_at_once(path):
    reader = Reader(path, lock=True, lock_timeout_s=0)
    assert list(zip(reader, reader, strict=True)) == [(record, record) for record in RECORDS]
    assert is_free(path)


def test_pickled_reader_locks_again(path):
    reader = pickle.loads(pickle.dumps(Reader(path, lock=True, lock_timeout_s=0)))
    with Writer(path, exists="append"), pytest.raises(LockTimeoutError):
        list(reader)


def test_lock_without_effect_is_refused(path, sshfs):
    with pytest.raises(LockError, match=r"fuse\.sshfs"):
        Reader(path, lock=True)
    assert list(Reader(path)) == RECORDS


def test_without_locks_append_is_refused_and_a_new_file_is_not(path, sshfs):
    before = path.read_bytes()
    with pytest.raises(LockError, match=r"fuse\.sshfs"):
        Writer(path, exists="append")
    assert path.read_bytes() == before
    new = path.with_name("new.tfrecord")
    with pytest.warns(RuntimeWarning, match="no other process"), Writer(new) as writer:
        writer.write(b"x")
    with pytest.warns(RuntimeWarning, match="no other process"), Writer(new, exists="replace") as writer:
        writer.write(b"y")
    assert list(Reader(new)) == [b"y"]
