"""What a collector tells people and programs while it works."""

import fcntl
import io
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from types import SimpleNamespace

import pytest

from shardkeep.collector.server import events as events_module
from shardkeep.collector.server.events import Events
from shardkeep.errors import CollectorError
from tests.procs.collector_run import start_collector
from tests.waiting import PATIENCE_S

DISK = SimpleNamespace(
    rows=123_456_789,
    bytes=987_654_321_000,
    commits=3,
    last_commit=None,
    queued_bytes=12_345_678,
    failure=None,
)


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(events_module, "time", SimpleNamespace(monotonic=lambda: now[0], time=lambda: 5.0))
    return now


@pytest.mark.parametrize("columns", [30, 45, 80, 200])
def test_progress_is_one_line_of_the_terminal(clock, columns):
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        with open(os.dup(theirs), "w") as out:
            events = Events(out, "progress")
            clock[0] += 10
            events.progress(DISK, 1, 5)
            line = os.read(ours, 4096).decode().removeprefix("\r\033[K")
            assert len(line) < columns
            assert line.startswith("12,345,679 rows/s")
            assert ("98,765.4 MB/s  1 client  12.3 MB queued" in line) == (columns >= 80)
            assert ("123,456,789 rows" in line) == (columns == 200)
            events.left("rank 0", 0)
            assert os.read(ours, 4096).decode().startswith("\r\033[Kshardkeep: rank 0 left")
    finally:
        os.close(ours)
        os.close(theirs)


def test_progress_for_programs(clock):
    out = io.StringIO()
    told = []
    events = Events(out, "json", metrics=told.append)
    clock[0] += 10
    events.progress(DISK, 2, 5)
    (line,) = map(json.loads, out.getvalue().splitlines())
    assert line["event"] == "progress"
    assert (line["rows_per_s"], line["clients"], line["queued_bytes"]) == (12_345_678.9, 2, 12_345_678)
    assert told == [{name: line[name] for name in line if name not in ("time", "event")}]


def test_the_same_refusal_is_told_once_a_minute_with_its_number(clock):
    out = io.StringIO()
    events = Events(out, "lines")
    for _ in range(500):
        events.refused("a stranger", "no key")
    events.refused("rank 1", "no such dataset")
    assert out.getvalue().splitlines() == [
        "shardkeep: refused a stranger: no key",
        "shardkeep: refused rank 1: no such dataset",
    ]
    out.truncate(0)
    out.seek(0)
    clock[0] += 61
    events.progress(DISK, 0, 0)  # without another refusal
    assert out.getvalue() == "shardkeep: refused a stranger 499 times more within 61 s: no key\n"
    for number in range(1000):
        events.refused(f"connection {number}", "garbage")
    assert len(out.getvalue().splitlines()) == 101
    assert events.refused_count == 1501


def test_a_full_disk_is_told_once_a_minute_and_its_end(clock):
    """Meanwhile the file is opened again every second, and all clients come back."""
    out = io.StringIO()
    events = Events(out, "lines")
    store = SimpleNamespace(path="all.h5", rows={"x": 5}, recovery=None)
    disk = SimpleNamespace(**{**vars(DISK), "store": store})
    for _ in range(100):
        clock[0] += 1
        events.failed(CollectorError("the disk is full"))
        events.progress(disk, 2, 0)
        events.opened(store)
        events.joined("rank 0", 1)
    clock[0] += 6
    events.progress(disk, 2, 0)
    events.joined("rank 3", 3)
    full = "shardkeep: the disk is full; trying again every second"
    assert out.getvalue().splitlines() == [
        *(full, full),
        "shardkeep: all.h5 can be written again: 5 rows of 'x', 2 clients",
        "shardkeep: rank 3 joined",
    ]


def test_problems_only(clock):
    out = io.StringIO()
    events = Events(out, "problems")
    events.listening("ipc://x")
    events.joined("rank 0", 1)
    events.refused("rank 0", "a wrong type")
    events.failed(CollectorError("the disk is full"))
    events.progress(DISK, 1, 0)
    events.stopping("told to", 1)
    assert out.getvalue().splitlines() == [
        "shardkeep: refused rank 0: a wrong type",
        "shardkeep: the disk is full; trying again every second",
    ]


def test_a_collector_of_a_program_tells_on_stderr_what_it_repaired(tmp_path):
    killed = start_collector(tmp_path / "all.h5")
    killed.kill()
    killed.join()
    program = "import sys; from shardkeep.hdf5 import Collector\nwith Collector(sys.argv[1]): pass"
    command = [sys.executable, "-c", program, str(tmp_path / "all.h5")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    (line,) = done.stderr.splitlines()
    assert "all.h5 was not closed: brought" in line
    assert done.stdout == ""


def test_where_metrics_are_is_told(tmp_path):
    out = io.StringIO()
    events = Events(out, "json")
    events.serve_metrics(0)
    (line,) = map(json.loads, out.getvalue().splitlines())
    assert line["url"] == f"http://127.0.0.1:{events._metrics.port}/metrics"
    events._metrics.close()
