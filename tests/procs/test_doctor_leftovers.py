"""Leftovers of killed processes, and of live ones.

Covers `shardkeep.diagnosis.examination.contents.leftovers`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time

import h5py
import numpy as np

from shardkeep.diagnosis.examination.contents.survey import survey
from shardkeep.diagnosis.examination.report import Fact, Problem
from shardkeep.files import publish
from shardkeep.files.leftovers import temporary_name
from shardkeep.files.owner import this_process
from shardkeep.hdf5 import WorkerFile, connect
from shardkeep.tfrecord import Writer
from shardkeep.world import World
from tests.procs.collector_run import collecting, start, start_collector
from tests.unit.diagnosis.examination.contents.conftest import subject_of
from tests.waiting import PATIENCE_S

TOOLS = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])


def leftovers_of(path):
    return [one for one in survey(subject_of(path)) if isinstance(one, Problem) and one.check == "leftovers"]


def fact_of(path, name):
    return next(one.value for one in survey(subject_of(path)) if isinstance(one, Fact) and one.name == name)


def run(command):
    subprocess.run(command, shell=True, env={**os.environ, "PATH": TOOLS}, check=True, timeout=PATIENCE_S)


def _write(write_end, path):
    with Writer(path) as writer:
        writer.write(b"x" * 5000)
        writer.flush()
        os.write(write_end, b"written")
        time.sleep(PATIENCE_S)


def test_a_temporary_file_of_a_killed_writer(tmp_path):
    child = start(_write, str(tmp_path / "a.tfrecord"))
    child.wait_for_word()
    assert leftovers_of(tmp_path) == []
    assert fact_of(tmp_path, "temporary files of live processes") == "1 temporary file (4.9 KiB)"
    child.kill()
    child.join()
    one, lock = leftovers_of(tmp_path)
    assert (one.severity, one.path) == ("note", str(tmp_path))
    assert "1 lock file of processes that ended, which lock nothing: a.tfrecord.lock" in lock.evidence
    assert "1 temporary file (4.9 KiB) of processes that ended: unfinished files" in one.evidence
    assert one.command.startswith("rm -- ")
    run(one.command)
    assert os.listdir(tmp_path) == ["a.tfrecord.lock"]
    with Writer(tmp_path / "a.tfrecord") as writer:
        writer.write(b"x")
    assert leftovers_of(tmp_path) == []


def test_many_temporary_files_of_dead_processes(tmp_path):
    me = this_process()
    with publish(tmp_path / "live") as file:
        file.write(b"x")
        for number in range(30):
            name = temporary_name(f"{number}.tfrecord").replace(f"-{me.pid}-{me.start_ticks}-", "-4194303-1-")
            (tmp_path / name).write_bytes(b"x")
        (one,) = leftovers_of(tmp_path)
        assert "30 temporary files (30 bytes)" in one.evidence
        run(one.command)
        assert len(os.listdir(tmp_path)) == 1


def test_a_temporary_file_of_another_host_is_named_after_a_day(tmp_path):
    path = tmp_path / temporary_name("a.h5").replace(this_process().host, "0" * 8)
    path.write_bytes(b"x")
    assert leftovers_of(tmp_path) == []
    os.utime(path, (time.time() - 1e6,) * 2)
    (one,) = leftovers_of(tmp_path)
    assert "that no process of this host has open, unchanged for a day" in one.evidence


def _append(write_end, run_dir):
    out = WorkerFile(run_dir, World(0, 1, 0, 1))
    out.append("x", np.zeros((5000, 100)))
    os.write(write_end, b"appended")
    time.sleep(PATIENCE_S)


def test_rows_of_a_killed_worker_that_were_not_committed(tmp_path):
    child = start(_append, str(tmp_path / "run"))
    child.wait_for_word()
    assert leftovers_of(tmp_path) == []
    child.kill()
    child.join()
    rows, lock = leftovers_of(tmp_path)
    assert "rows that were appended and never committed" in rows.evidence
    assert rows.path == lock.path == f"{tmp_path}/run/rank-00000"
    assert "1 lock file of processes that ended, which lock nothing: writer.lock" in lock.evidence
    assert f"pid {child.pid} " in lock.evidence
    WorkerFile(tmp_path / "run", World(0, 1, 0, 1)).close()
    assert leftovers_of(tmp_path) == []


def test_a_killed_collector(tmp_path):
    path = tmp_path / "all.h5"
    collector = start_collector(path)
    with connect(collector.address, World(0, 1, 0, 1), timeout_s=PATIENCE_S) as client:
        client.append("x", np.arange(10.0)[:, None])
        client.flush()
        found = list(survey(subject_of(tmp_path)))
        assert [one for one in found if isinstance(one, Problem)] == []
        assert any("a collector writes it" in one.value for one in found if one.name == str(path))
        collector.kill()
        collector.join()
    by_path = {}
    for one in leftovers_of(tmp_path):
        by_path.setdefault(one.path, one)
    log = by_path[str(path)]
    assert (log.severity, log.command) == ("warning", f"shardkeep collect {path} --recover")
    assert "its collector was killed: " in log.evidence
    assert " in the redo log all.h5.redo" in log.evidence
    address = by_path[f"{path}.collector.json"]
    assert address.severity == "note"
    assert f"(pid {collector.pid} on host {socket.gethostname()})" in address.evidence
    assert "all.h5.lock" in by_path[str(tmp_path)].evidence
    assert [
        one for one in survey(subject_of(tmp_path)) if isinstance(one, Problem) and one.check == "hdf5"
    ] == []
    run(log.command)
    run(address.command if os.path.exists(f"{path}.collector.json") else "true")
    with h5py.File(path) as file:
        assert file["x"].shape == (10, 1)
    assert leftovers_of(tmp_path) == []


def _spill(write_end, address, folder):
    options = {"on_full": "spill", "spill_dir": folder, "memory_bytes": 1 << 16, "timeout_s": 1}
    client = connect(address, World(0, 1, 0, 1), **options)
    for _ in range(20):
        client.append("x", np.zeros((1000, 16)))
    os.write(write_end, b"spilt")
    time.sleep(PATIENCE_S)


def test_rows_that_a_killed_client_spilt(tmp_path):
    path, folder = tmp_path / "all.h5", tmp_path / "spill"
    with collecting(path) as collector:
        address = collector.address
    child = start(_spill, address, str(folder))
    child.wait_for_word()
    assert leftovers_of(folder) == []
    child.kill()
    child.join()
    spilt, *_ = leftovers_of(folder)
    assert (spilt.severity, spilt.path) == ("warning", str(folder))
    assert "1 spill file of clients that ended, with rows (" in spilt.evidence
    assert f"spill_dir={str(folder)!r}" in spilt.fix


def test_lock_files_of_other_hosts_and_programs(tmp_path):
    (tmp_path / "poetry.lock").write_text("[[package]]")
    (tmp_path / "empty.lock").touch()
    assert leftovers_of(tmp_path) == []
    holder = {"host": "node3", "pid": 71, "command": "python train.py", "since": 1764283902.5}
    (tmp_path / "all.h5.lock").write_text(json.dumps(holder))
    (one,) = leftovers_of(tmp_path)
    assert (one.severity, one.path) == ("note", str(tmp_path / "all.h5"))
    assert "'python train.py', pid 71 on host node3" in one.evidence
    assert one.command == "ssh node3 ps -o pid,lstart,args -p 71"


def test_a_log_of_another_program_is_not_named(tmp_path):
    (tmp_path / "notes.redo").write_bytes(b"other")
    assert leftovers_of(tmp_path) == []
