"""Following files that other processes write."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardkeep.errors import TruncatedFileError
from shardkeep.tfrecord import Writer, follow
from tests.waiting import PATIENCE_S


@contextlib.contextmanager
def running(script: str, *arguments: object, python: str = sys.executable) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [python, "-c", script, *map(str, arguments)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    try:
        with child:
            yield child
    finally:
        child.kill()


OURS = """
import sys, time
from shardkeep.tfrecord import Writer
with Writer(sys.argv[1], exists="append") as w:
    for i in range(300):
        w.write(b"%d " % i * (i % 7 * 1000))
        if i % 3 == 0:
            w.flush()
            time.sleep(0.001)
"""


def test_three_followers_receive_all_records_of_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "x"
    got: list[list[bytes]] = []

    def read(poll_s: float | None) -> None:
        records = []
        it = follow(path, idle_timeout_s=PATIENCE_S, poll_s=poll_s)
        for _ in range(300):
            records.append(next(it))
        it.close()
        got.append(records)

    threads = [threading.Thread(target=read, args=[poll_s]) for poll_s in (None, None, 0.005)]
    for thread in threads:
        thread.start()
    with running(OURS, path) as child:
        assert child.wait(PATIENCE_S) == 0
    for thread in threads:
        thread.join(PATIENCE_S)
    assert got == [[b"%d " % i * (i % 7 * 1000) for i in range(300)]] * 3


BYTE_BY_BYTE = """
import os, sys, time
from shardkeep._core import masked_crc32c
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for i in range(20):
    data = b"%d" % i * i
    length = len(data).to_bytes(8, "little")
    sums = [masked_crc32c(part).to_bytes(4, "little") for part in (length, data)]
    for byte in length + sums[0] + data + sums[1]:
        os.write(fd, bytes([byte]))
        if i % 5 == 0:
            time.sleep(0.0005)
"""


def test_records_written_byte_by_byte_are_yielded_whole(tmp_path: Path) -> None:
    with running(BYTE_BY_BYTE, tmp_path / "x"):
        records = follow(tmp_path / "x", idle_timeout_s=PATIENCE_S, grace_s=0)
        assert [next(records) for _ in range(20)] == [b"%d" % i * i for i in range(20)]
        records.close()


OUT_OF_ORDER = """
import os, sys, time
from shardkeep._core import masked_crc32c
def frame(data):
    length = len(data).to_bytes(8, "little")
    sums = [masked_crc32c(part).to_bytes(4, "little") for part in (length, data)]
    return length + sums[0] + data + sums[1]
content = b"".join(frame(bytes([i + 1]) * 3000) for i in range(40))
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
pages = range(0, len(content), 4096)
for at in sorted(pages, key=lambda at: (at // 4096 // 6, -at)):  # six at a time, the last first
    os.pwrite(fd, content[at : at + 4096], at)
    time.sleep(0.005)
"""


def test_pages_written_out_of_order_are_waited_for(tmp_path: Path) -> None:
    """As a network file system writes pages back: bytes follow after each hole."""
    with running(OUT_OF_ORDER, tmp_path / "x"):
        records = follow(tmp_path / "x", idle_timeout_s=PATIENCE_S, grace_s=PATIENCE_S)
        assert [next(records) for _ in range(40)] == [bytes([i + 1]) * 3000 for i in range(40)]
        records.close()


TORN = """
import os, sys
from shardkeep.tfrecord import Writer
w = Writer(sys.argv[1], exists="append")
w.write(b"whole")
w.flush()
with open(sys.argv[1], "ab") as f:
    f.write((1000).to_bytes(8, "little"))
print("written", flush=True)
sys.stdin.read()
"""


def test_follower_continues_after_a_writer_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with running(TORN, path) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "written\n"
        records = follow(path, idle_timeout_s=0.3)
        assert next(records) == b"whole"
        child.kill()
    with pytest.raises(TruncatedFileError, match="8 bytes into a record") as caught:
        next(records)
    assert (caught.value.record, caught.value.offset_bytes) == (1, 21)
    records = follow(path, idle_timeout_s=PATIENCE_S)
    assert next(records) == b"whole"
    with Writer(path, exists="append") as w:
        w.write(b"next")
    assert next(records) == b"next"
    records.close()


def test_follower_continues_in_parent_and_child_after_fork(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with Writer(path, exists="append") as w:
        for i in range(1000):
            w.write(b"%d" % i)
    records = follow(path, idle_timeout_s=PATIENCE_S)
    seen = [next(records) for _ in range(10)]
    waiting = follow(path, idle_timeout_s=PATIENCE_S, from_start=False)
    thread = threading.Timer(0.1, lambda: append(path, b"woken"))
    thread.start()
    assert next(waiting) == b"woken"  # its inotify descriptor is open now
    thread.join()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            got = [next(records) for _ in range(993)]
            new = [next(waiting) for _ in range(2)]
            code = 0 if got[-2:] == new == [b"both", b"end"] else 2
        finally:
            os._exit(code)
    append(path, b"both")
    assert next(waiting) == b"both"
    append(path, b"end")
    assert next(waiting) == b"end"
    seen += [next(records) for _ in range(993)]
    assert os.waitpid(child, 0)[1] == 0
    assert seen == [b"%d" % i for i in range(1000)] + [b"woken", b"both", b"end"]
    waiting.close()
    records.close()


def append(path: Path, record: bytes) -> None:
    with Writer(path, exists="append") as w:
        w.write(record)


FOLLOW = """
import os, sys
from shardkeep.tfrecord import follow
for record in follow(sys.argv[1], idle_timeout_s=None, poll_s=float(sys.argv[2]) or None):
    print(record.decode(), flush=True)
"""


@pytest.mark.parametrize("poll_s", [0, 3600])
def test_ctrl_c_ends_a_wait_at_once(tmp_path: Path, poll_s: float) -> None:
    path = tmp_path / "x"
    append(path, b"a")
    child = subprocess.Popen(
        [sys.executable, "-c", FOLLOW, str(path), str(poll_s)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "a\n"
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        _, complaint = child.communicate(timeout=PATIENCE_S)
    assert complaint.rstrip().endswith("KeyboardInterrupt")


TENSORFLOW = """
import sys, time
import tensorflow as tf
with tf.io.TFRecordWriter(sys.argv[1]) as w:
    for i in range(100):
        w.write(b"%d" % i * 100)
        if i % 10 == 0:
            w.flush()
            time.sleep(0.005)
"""


@pytest.mark.tensorflow
def test_file_that_tensorflow_writes_is_followed(tensorflow_python: str, tmp_path: Path) -> None:
    records = follow(tmp_path / "x", idle_timeout_s=PATIENCE_S)
    with running(TENSORFLOW, tmp_path / "x", python=tensorflow_python) as child:
        assert [next(records) for _ in range(100)] == [b"%d" % i * 100 for i in range(100)]
        assert child.wait(PATIENCE_S) == 0
    records.close()
