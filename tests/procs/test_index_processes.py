"""Index files in real processes: concurrent builds, kills and readers."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shardkeep.tfrecord import Index, Reader, Writer
from shardkeep.tfrecord.index.binary import read_index_file
from shardkeep.tfrecord.index.index import frame_starts, load_index
from tests.waiting import PATIENCE_S

RECORDS = 40_000

_BUILD = """
import select, sys
from shardkeep.tfrecord import build_index
print("ready", flush=True)
sys.stdin.readline()
while not select.select([sys.stdin], [], [], 0)[0]:
    assert build_index(sys.argv[1]).records == int(sys.argv[2])
"""


@pytest.fixture(autouse=True)
def _beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store index files next to the shards, also those of readers, since these tests inspect them."""
    monkeypatch.setenv("SHARDKEEP_INDEX", "beside")


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("index") / "x.tfrecord"
    with Writer(path) as w:
        for i in range(RECORDS):
            w.write(b"x" * (i % 200))
    return path


def builder(shard: Path) -> subprocess.Popen[bytes]:
    """Start a process that builds the index again and again, from a line on its stdin to the end of that."""
    child = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", _BUILD, str(shard), str(RECORDS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    return child


def test_readers_find_a_whole_index_while_four_processes_build_it(shard: Path) -> None:
    right = Index(frame_starts([shard])[0])
    beside = f"{shard}.skidx"
    children = [builder(shard) for _ in range(4)]
    for child in children:
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.flush()
    seen = 0
    while seen < 20:
        assert all(child.poll() is None for child in children)
        if os.path.exists(beside):
            # A reader finds a whole index at any time.
            found = read_index_file(beside, shard_bytes=right.size_bytes)
            assert found is not None
            assert Index(found[0]) == right
            seen += 1
        assert Reader(shard)[-1] == b"x" * ((RECORDS - 1) % 200)
    for child in children:
        assert child.stdin is not None
        child.stdin.close()
    for child in children:
        assert child.wait(PATIENCE_S) == 0
        assert child.stdout is not None
        child.stdout.close()
    assert sorted(os.listdir(shard.parent)) == ["x.tfrecord", "x.tfrecord.skidx"]


@pytest.mark.parametrize("runs", [6, pytest.param(80, marks=pytest.mark.slow)])
def test_killed_build_leaves_a_whole_index_or_none(shard: Path, runs: int) -> None:
    right = Index(frame_starts([shard])[0])
    beside = Path(f"{shard}.skidx")
    for _ in range(runs):
        beside.unlink(missing_ok=True)
        child = builder(shard)
        assert child.stdin is not None
        assert child.stdout is not None
        with child.stdin, child.stdout:
            child.stdin.write(b"\n")
            child.stdin.flush()
            time.sleep(random.random() * 0.08)
            child.kill()
            child.wait()
        if beside.exists():
            found = read_index_file(str(beside), shard_bytes=right.size_bytes)
            assert found is not None
            assert Index(found[0]) == right
            beside.unlink()
        # The next one stores its own and sweeps what the dead one left.
        assert load_index(shard) == right
        assert sorted(os.listdir(shard.parent)) == ["x.tfrecord", "x.tfrecord.skidx"]


_LIMITED = """
import resource, sys
from shardkeep.tfrecord.index.index import load_index
from shardkeep.tfrecord.index.binary import read_index_file
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20),) * 2)
assert read_index_file(sys.argv[1] + ".skidx", shard_bytes=1 << 50) is None
print(load_index(sys.argv[1]).records)
"""


def test_index_with_a_huge_record_count_takes_little_memory(shard: Path, tmp_path: Path) -> None:
    """An index file of 100 GB, almost all hole, for a shard of 4 MB."""
    path = tmp_path / "x.tfrecord"
    path.write_bytes(shard.read_bytes())
    load_index(path)
    beside = Path(f"{path}.skidx")
    head = bytearray(beside.read_bytes()[:72])
    records = 50 << 30
    head[16:24] = records.to_bytes(8, "little")
    with beside.open("wb") as file:
        file.write(head)
        file.truncate(72 + 2 * records + 4)
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.stdout.strip() == str(RECORDS), done.stderr
    assert beside.stat().st_size < 200_000
