"""Reports of a collector for people and programs."""

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
from shardkeep.collector.server.events import Counters, Events
from shardkeep.errors import CollectorError
from tests.procs.collector_run import start_collector
from tests.waiting import PATIENCE_S

COUNTERS = Counters(rows=123_456_789, bytes=987_654_321_000, commits=3, queued_bytes=12_345_678)


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
            events.progress(COUNTERS, 1, 5)
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


def test_progress_as_json_and_metrics(clock):
    out = io.StringIO()
    published = []
    events = Events(out, "json", metrics=published.append)
    clock[0] += 10
    events.progress(COUNTERS, 2, 5)
    (line,) = map(json.loads, out.getvalue().splitlines())
    assert line["event"] == "progress"
    assert (line["rows_per_s"], line["clients"], line["queued_bytes"]) == (12_345_678.9, 2, 12_345_678)
    assert published == [{name: line[name] for name in line if name not in ("time", "event")}]


def test_a_repeated_refusal_is_reported_once_a_minute_with_its_number(clock):
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
    events.progress(COUNTERS, 0, 0)  # without another refusal
    assert out.getvalue() == "shardkeep: refused a stranger 499 times more within 61 s: no key\n"
    for number in range(1000):
        events.refused(f"connection {number}", "garbage")
    assert len(out.getvalue().splitlines()) == 101
    assert events.refused_count == 1501


def test_a_full_disk_is_reported_once_a_minute_and_when_it_ends(clock):
    """Meanwhile the file is opened again every second, and all clients come back."""
    out = io.StringIO()
    events = Events(out, "lines")
    store = SimpleNamespace(path="all.h5", rows={"x": 5}, recovery=None)
    for _ in range(100):
        clock[0] += 1
        events.failed(CollectorError("the disk is full"))
        events.working(store, 2)
        events.opened(store)
        events.joined("rank 0", 1)
    clock[0] += 6
    events.working(store, 2)
    events.joined("rank 3", 3)
    full = "shardkeep: the disk is full; trying again every second"
    assert out.getvalue().splitlines() == [
        *(full, full),
        "shardkeep: all.h5 can be written again: 5 rows of 'x', 2 clients",
        "shardkeep: rank 3 joined",
    ]


def test_problems_report_omits_usual_events(clock):
    out = io.StringIO()
    events = Events(out, "problems")
    events.listening("ipc://x")
    events.joined("rank 0", 1)
    events.refused("rank 0", "a wrong type")
    events.failed(CollectorError("the disk is full"))
    events.progress(COUNTERS, 1, 0)
    events.stopping("as requested", 1)
    assert out.getvalue().splitlines() == [
        "shardkeep: refused rank 0: a wrong type",
        "shardkeep: the disk is full; trying again every second",
    ]


def test_a_collector_of_a_program_reports_a_repair_on_stderr(tmp_path):
    killed = start_collector(tmp_path / "all.h5")
    killed.kill()
    killed.join()
    program = "import sys; from shardkeep.hdf5 import Collector\nwith Collector(sys.argv[1]): pass"
    command = [sys.executable, "-c", program, str(tmp_path / "all.h5")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    (line,) = done.stderr.splitlines()
    assert "all.h5 was not closed: " in line
    assert done.stdout == ""


def test_the_address_of_metrics_is_reported(tmp_path):
    out = io.StringIO()
    events = Events(out, "json")
    events.serve_metrics(0)
    (line,) = map(json.loads, out.getvalue().splitlines())
    assert line["url"] == f"http://127.0.0.1:{events._metrics.port}/metrics"
    events._metrics.close()
