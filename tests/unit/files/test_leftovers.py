"""Temporary names and the removal of leftovers.

Covers `shardkeep.files.owner`.
"""

import fcntl
import io
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from shardkeep.files import leftovers, publish
from shardkeep.files.owner import Owner, _short_hash, _this_process, boot_time_s, this_process
from tests.waiting import PATIENCE_S, eventually

ME = this_process()


def _leftover(folder, *, host=ME.host, boot=ME.boot, namespace=ME.namespace, pid=0, start=0, age_s=0.0):
    path = folder / f".a.sk-{host}-{boot}-{namespace}-{pid}-{start}-0123abcd.sktmp"
    path.write_bytes(b"half")
    then = time.time() - age_s
    os.utime(path, (then, then))
    return path


@pytest.fixture
def dead_pid():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def _sweep(folder):
    leftovers._next_sweep.clear()
    return leftovers.sweep(str(folder))


def test_name_identifies_its_process(tmp_path):
    name = leftovers.temporary_name("a.h5")
    assert name.startswith(".a.h5.sk-")
    assert f"-{os.getpid()}-" in name
    assert leftovers.is_temporary(name)
    assert not leftovers.is_temporary("a.sktmp")
    assert len(os.fsencode(leftovers.temporary_name("é" * 127))) <= 255


def test_publishing_sweeps_a_dead_process(tmp_path, dead_pid):
    path = _leftover(tmp_path, pid=dead_pid, start=5)
    with publish(tmp_path / "b"):
        pass
    assert not path.exists()


def test_reused_pid_counts_as_dead(tmp_path):
    mine = _leftover(tmp_path, pid=ME.pid, start=ME.start_ticks)
    assert _sweep(tmp_path) == []
    mine.unlink()
    assert _sweep(tmp_path) == []
    reused = _leftover(tmp_path, pid=ME.pid, start=ME.start_ticks + 1)
    assert _sweep(tmp_path) == [reused.name]


def test_an_emulated_process_is_alive_for_its_threads(tmp_path, monkeypatch):
    # QEMU makes up /proc/PID/stat for the processes that it runs, with the start of the thread that reads it.
    def emulated(path, *options, **more):
        if str(path) != f"/proc/{os.getpid()}/stat":
            return open(path, *options, **more)
        return io.BytesIO(f"{os.getpid()} (python) {'0 ' * 19}{threading.get_ident()}".encode())

    monkeypatch.setattr("shardkeep.files.owner.open", emulated, raising=False)
    monkeypatch.setattr("shardkeep.files.owner._this_process", _this_process.__wrapped__)
    _leftover(tmp_path, pid=ME.pid, start=this_process().start_ticks)
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(_sweep, tmp_path).result() == []


def test_a_zombie_is_dead():
    child = subprocess.Popen([sys.executable, "-c", ""])
    owner = Owner(ME.host, ME.boot, ME.namespace, child.pid, 0)
    eventually(owner.is_gone)
    child.wait()


def test_other_hosts_are_left_alone(tmp_path, dead_pid):
    _leftover(tmp_path, host="0badcafe", pid=dead_pid, age_s=1e7)
    assert _sweep(tmp_path) == []


def test_another_container_is_dead_when_its_lock_is_free(tmp_path, dead_pid):
    path = _leftover(tmp_path, namespace="1", pid=dead_pid, age_s=100)
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert _sweep(tmp_path) == []
    assert _sweep(tmp_path) == [path.name]
    _leftover(tmp_path, namespace="1", pid=dead_pid)  # touched just now
    assert _sweep(tmp_path) == []


def test_another_boot_counts_only_if_untouched_since(tmp_path, dead_pid):
    path = _leftover(tmp_path, boot="0", pid=dead_pid, age_s=time.time() - boot_time_s() - 10)
    assert _sweep(tmp_path) == []
    path.unlink()
    path = _leftover(tmp_path, boot="0", pid=dead_pid, age_s=time.time() - boot_time_s() + 1000)
    assert _sweep(tmp_path) == [path.name]


def test_other_files_are_not_removed(tmp_path):
    for name in (".a.sktmp", ".a.sk-x.sktmp", "a.tmp", ".nfs0001"):
        (tmp_path / name).write_bytes(b"")
    assert _sweep(tmp_path) == []
    assert leftovers.remove_all(str(tmp_path)) == []
    assert len(os.listdir(tmp_path)) == 4


def test_remove_all_ignores_owners(tmp_path):
    path = _leftover(tmp_path, host="0badcafe", pid=1)
    assert leftovers.remove_all(str(tmp_path)) == [path.name]


def test_a_huge_folder_is_not_listed_every_time(tmp_path, monkeypatch, dead_pid):
    clock = iter([0.0, 1.0, 2.0, 20.9, 21.1, 21.1])
    # Not the clock of every thread there is.
    monkeypatch.setattr(leftovers, "time", SimpleNamespace(monotonic=lambda: next(clock), time=time.time))
    monkeypatch.setattr(leftovers, "_SWEEP_SHARE", 20)
    leftovers._next_sweep.clear()
    assert leftovers.sweep(str(tmp_path)) == []
    path = _leftover(tmp_path, pid=dead_pid)
    assert leftovers.sweep(str(tmp_path)) == []
    assert leftovers.sweep(str(tmp_path)) == []
    assert leftovers.sweep(str(tmp_path)) == [path.name]
    leftovers._next_sweep.clear()


def test_this_process_has_its_own_identity():
    assert ME.pid == os.getpid()
    assert ME.host == _short_hash(socket.gethostname())
    assert not ME.is_gone()
    assert 0 < boot_time_s() < time.time()


def test_the_command_of_a_process():
    program = "from shardkeep.files.owner import command_line; print(command_line())"
    command = [sys.executable, "-c", program, "--option", "a word"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert done.stdout == " ".join(command)[:200] + "\n"
