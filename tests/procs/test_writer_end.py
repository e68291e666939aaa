"""A program that ends, or a child that ends, while a writer is open."""

import subprocess
import sys

import pytest

from tests.waiting import PATIENCE_S

_BEGIN = """
import multiprocessing, os, sys
from shardkeep.tfrecord import ShardWriter, Writer
def begin(name="a"):
    global one, many
    one = Writer(name)
    one.write(b"1")
    many = ShardWriter(name + "-{shard}-of-{shards}", shards=3)
    many.write(b"1")
"""
_CHILD = """
os.waitpid({pid}, 0)
assert len(os.listdir()) == 6, os.listdir()  # two locks, four files
one.close()
many.close()
"""


@pytest.mark.parametrize(
    ("program", "code", "told", "left"),
    [
        ("begin()", 0, 2, []),
        ("begin(); sys.exit(3)", 3, 2, []),
        ("begin(); raise KeyError", 1, 0, []),
        ("begin(); one.close(); many.close()", 0, 0, ["a", *(f"a-{i}-of-3" for i in range(3))]),
        (
            "begin()\npid = os.fork()\nif pid == 0: sys.exit()" + _CHILD.format(pid="pid"),
            0,
            0,
            ["a", *(f"a-{i}-of-3" for i in range(3))],
        ),
        (
            "begin()\npid = os.fork()\nif pid == 0: del one, many; sys.exit()" + _CHILD.format(pid="pid"),
            0,
            0,
            ["a", *(f"a-{i}-of-3" for i in range(3))],
        ),
        (
            "child = multiprocessing.get_context('fork').Process(target=begin)\nchild.start(); child.join()",
            0,
            2,
            [],
        ),
    ],
    ids=["end", "exit", "error", "closed", "fork", "fork and drop", "multiprocessing"],
)
def test_an_open_writer_is_reported_and_leaves_nothing(tmp_path, program, code, told, left):
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == code, done.stderr
    assert done.stderr.count("was never closed, so it does not appear (lost records: 1)") == told, done.stderr
    assert told or code or done.stderr == ""
    assert sorted(one.name for one in tmp_path.iterdir()) == left
