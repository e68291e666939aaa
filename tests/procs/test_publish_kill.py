"""Publishing with real processes: races, SIGKILL, fork, a disk that is really full."""

import errno
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import time

import pytest

from shardkeep.errors import DurabilityError, ExistsError, LockError
from shardkeep.files import publish, publish_set
from tests.small_disk import mounted
from tests.waiting import PATIENCE_S

SPAWN = multiprocessing.get_context("spawn")
SIZE = 300_000


def _publish_rounds(folder, letter, barrier, results):
    for number in range(10):
        barrier.wait(PATIENCE_S)
        try:
            with publish(folder / str(number)) as file:
                file.write(letter * SIZE)
            results.put((number, letter))
        except ExistsError:
            pass
    results.put(None)


def test_of_racing_processes_one_wins(tmp_path):
    barrier, results = SPAWN.Barrier(4), SPAWN.Queue()
    children = [
        SPAWN.Process(target=_publish_rounds, args=(tmp_path, letter, barrier, results))
        for letter in (b"a", b"b", b"c", b"d")
    ]
    for child in children:
        child.start()
    winners = []
    while winners.count(None) < len(children):
        winners.append(results.get(timeout=PATIENCE_S))
    for child in children:
        child.join(PATIENCE_S)
        assert child.exitcode == 0
    assert sorted(number for number, _ in filter(None, winners)) == list(range(10))
    for number, letter in filter(None, winners):
        assert (tmp_path / str(number)).read_bytes() == letter * SIZE
    assert len(os.listdir(tmp_path)) == 10


_WRITE_FOR_EVER = """
import itertools, os, sys
from shardkeep.files import publish, publish_set
folder, exists = sys.argv[1:]
print("ready", flush=True)
for i in itertools.count():
    data = b"%08d" % i * 20_000
    if exists == "replace":
        with publish(f"{folder}/a", exists="replace", durable=False) as file:
            file.write(data)
    else:
        with publish_set([f"{folder}/{i}{name}" for name in "xyz"], durable=False) as files:
            for file in files:
                file.write(data)
"""


def _kill_at_random(folder, exists):
    child = subprocess.Popen(
        [sys.executable, "-c", _WRITE_FOR_EVER, str(folder), exists], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    with child.stdout:
        child.stdout.readline()
        time.sleep(random.random() * 0.15)
        child.kill()
        child.wait()


def _assert_whole(path):
    data = path.read_bytes()
    assert len(data) == 160_000
    assert data == data[:8] * 20_000


@pytest.mark.parametrize("runs", [5, pytest.param(60, marks=pytest.mark.slow)])
def test_kill_while_replacing_leaves_the_old_or_the_new_file(tmp_path, runs):
    for _ in range(runs):
        _kill_at_random(tmp_path, "replace")
        with publish(tmp_path / "next", exists="replace"):
            pass
        _assert_whole(tmp_path / "a")
        assert sorted(os.listdir(tmp_path)) == ["a", "next"]


@pytest.mark.parametrize("runs", [5, pytest.param(60, marks=pytest.mark.slow)])
def test_kill_while_a_set_appears_leaves_whole_files(tmp_path, runs):
    for run in range(runs):
        folder = tmp_path / str(run)
        folder.mkdir()
        _kill_at_random(folder, "fail")
        with publish(folder / "next"):
            pass
        (folder / "next").unlink()
        seen = set(os.listdir(folder))
        for name in seen:
            _assert_whole(folder / name)
        last = max((int(name[:-1]) for name in seen), default=-1)
        for i in range(last):
            assert {f"{i}{letter}" for letter in "xyz"} <= seen
        # The last set may be a first part; its last path proves it.
        part = "".join(sorted(name[-1] for name in seen if int(name[:-1]) == last))
        assert part in ("", "x", "xy", "xyz")


def _leave_in_a_child(file, how):
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        return
    if how == "write":
        try:
            file.write(b"x" * 1_000_000)
        except LockError:
            os._exit(0)
        os._exit(1)
    if how == "raise":
        raise SystemExit


@pytest.mark.parametrize("how", ["write", "raise", "return"])
def test_a_forked_child_neither_publishes_nor_removes(tmp_path, how):
    me = os.getpid()
    try:
        with publish(tmp_path / "a") as file:
            file.write(b"parent's ")  # still buffered when the child is born
            _leave_in_a_child(file, how)
            if os.getpid() == me:
                file.write(b"data")
    except BaseException:
        if os.getpid() == me:
            raise
    if os.getpid() != me:
        os._exit(0)
    assert (tmp_path / "a").read_bytes() == b"parent's data"
    assert os.listdir(tmp_path) == ["a"]


@pytest.fixture
def small_disk(tmp_path):
    with mounted(tmp_path / "small", "1m") as folder:
        yield folder


def test_full_disk_leaves_no_file_or_the_old_one(small_disk):
    (small_disk / "old").write_bytes(b"old")
    for target, exists in (("new", "fail"), ("old", "replace")):
        with (
            pytest.raises(DurabilityError, match="No space left") as caught,
            publish(small_disk / target, exists=exists) as file,
        ):
            for _ in range(40):
                file.write(b"x" * 100_000)
        assert caught.value.errno == errno.ENOSPC
        assert os.listdir(small_disk) == ["old"]
        assert (small_disk / "old").read_bytes() == b"old"


def test_file_size_limit_is_a_durability_error(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
        with pytest.raises(DurabilityError, match="ulimit -f") as caught, publish(tmp_path / "a") as file:
            file.write(b"x" * 2_000_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.errno == errno.EFBIG
    assert os.listdir(tmp_path) == []


def test_folder_without_write_permission_is_refused(tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir(0o555)
    if os.geteuid() == 0:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                code = _denied(folder)
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    else:
        assert _denied(folder) == 0


def _denied(folder):
    try:
        with publish_set([f"{folder}/shardkeep-a", f"{folder}/shardkeep-b"]):
            pass
    except DurabilityError as error:
        return 0 if error.errno in (errno.EACCES, errno.EROFS) else 2
    return 3
