"""A locked reader and a writer in place, in different processes: exclusion, names, SIGKILL, fork."""

import os
import subprocess
import sys
import threading

import pytest

from shardkeep.errors import LockError, LockTimeoutError
from shardkeep.tfrecord import Reader, Writer
from tests.waiting import PATIENCE_S

RECORDS = [b"%d" % number * 50 for number in range(20)]

_READ = """
import sys
from shardkeep.tfrecord import Reader
records = iter(Reader(sys.argv[1], lock=True))
next(records)
print("held", flush=True)
sys.stdin.readline()
print(1 + sum(1 for _ in records), flush=True)
sys.stdin.readline()
"""

_APPEND = """
import sys
from shardkeep.tfrecord import Writer
with Writer(sys.argv[1], exists="append") as writer:
    writer.write(b"appended")
    print("held", flush=True)
    sys.stdin.readline()
print("done", flush=True)
"""


class Child:
    def __init__(self, code, path):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, "-c", code, str(path)], text=True, **pipes)
        assert self.hears() == "held"

    def says(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def hears(self):
        return self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.tfrecord"
    with Writer(path) as writer:
        for record in RECORDS:
            writer.write(record)
    return path


def test_a_reader_keeps_the_writer_out_until_its_last_record(path):
    before = path.read_bytes()
    with Child(_READ, path) as reader:
        with pytest.raises(LockTimeoutError) as caught:
            Writer(path, exists="append", lock_timeout_s=0.2)
        assert caught.value.holder["pid"] == reader.process.pid
        assert f"pid {reader.process.pid}" in str(caught.value)
        assert path.read_bytes() == before
        reader.says()
        assert reader.hears() == "20"
        with Writer(path, exists="append", lock_timeout_s=PATIENCE_S) as writer:
            writer.write(b"appended")
    assert list(Reader(path)) == [*RECORDS, b"appended"]


def test_a_writer_keeps_the_reader_out_until_it_is_closed(path):
    with Child(_APPEND, path) as writer:
        with pytest.raises(LockTimeoutError) as caught:
            Reader(path, lock=True, lock_timeout_s=0.2)
        assert caught.value.holder["pid"] == writer.process.pid
        assert "Writer" in caught.value.holder["command"]
        threading.Timer(0.3, writer.says).start()
        assert list(Reader(path, lock=True, lock_timeout_s=PATIENCE_S)) == [*RECORDS, b"appended"]
        assert writer.hears() == "done"


@pytest.mark.parametrize("killed", ["reader", "writer"])
def test_sigkill_releases_the_lock(path, killed):
    with Child(_READ if killed == "reader" else _APPEND, path) as child:
        child.process.kill()
        child.process.wait()
        with Writer(path, exists="append", lock_timeout_s=0) as writer:
            writer.write(b"more")
        assert list(Reader(path, lock=True, lock_timeout_s=0))[-1] == b"more"
    assert os.listdir(path.parent) == ["a.tfrecord"]


def test_several_processes_read_under_the_lock_at_once(path):
    with Child(_READ, path) as one, Child(_READ, path) as two:
        assert list(Reader(path, lock=True, lock_timeout_s=0)) == RECORDS
        for child in (one, two):
            child.says()
            assert child.hears() == "20"
        with Writer(path, exists="append", lock_timeout_s=0) as writer:
            writer.write(b"more")


def test_iteration_under_a_lock_ends_in_a_forked_child(path):
    """The child has no lock, so its iteration ends; the lock of the parent stays."""
    reader = Reader(path, lock=True)
    records = iter(reader)
    next(records)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            next(records)
        except LockError as error:
            fresh = list(reader) == RECORDS
            code = 0 if "start another" in str(error) and fresh else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    with pytest.raises(LockTimeoutError):
        Writer(path, exists="append")
    assert list(records) == RECORDS[1:]
    with Writer(path, exists="append"):
        pass


_REWRITE = """
import select, sys, time
from shardkeep.tfrecord import Writer
while not select.select([sys.stdin], [], [], 0)[0]:
    with Writer(sys.argv[1], exists="append", lock_timeout_s=200) as writer:
        for _ in range(20):
            writer.write(b"x" * 3000)
            writer.flush()
    time.sleep(0.002)  # a lock is not fair
"""


def test_readers_wait_for_a_busy_writer(path):
    """Whole appends or none of them, in every pass."""
    command = [sys.executable, "-c", _REWRITE, str(path)]
    counts = set()
    with subprocess.Popen(command, stdin=subprocess.PIPE) as writer:
        while len(counts) < 5:
            assert writer.poll() is None
            counts.add(sum(1 for _ in Reader(path, lock=True, lock_timeout_s=PATIENCE_S)))
        writer.stdin.close()
        assert writer.wait(PATIENCE_S) == 0
    assert all(count % 20 == 0 for count in counts)
