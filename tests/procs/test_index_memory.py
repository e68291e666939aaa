"""Memory of the index of a data set in the processes of a host: shared, and a few bytes a record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardkeep.tfrecord import Writer
from tests.waiting import PATIENCE_S

RECORDS = 2_000_000

SCRIPT = """
import ctypes, json, os, sys
from shardkeep.loader import Loader
from shardkeep.tfrecord.index import dataset_file, positions
from shardkeep.world import World

positions._WORTH_FILES, dataset_file._UNSAFE_NS = 1, 0

def own_bytes():
    with open("/proc/self/smaps_rollup") as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) * 1024

def mapped_bytes():
    found, is_index = {"Rss": 0, "Pss": 0}, False
    with open("/proc/self/smaps") as lines:
        for line in lines:
            field, value, *_ = line.split()
            if "-" in field:
                is_index = ".skset" in line
            elif is_index and field[:-1] in found:
                found[field[:-1]] += int(value) * 1024
    return found

def read(loader):
    batches = iter(loader)
    for _ in range(50):
        next(batches)
    return batches

small, large = sys.argv[1:]
open_batches = [read(Loader(small, batch_size=64, world=World(), shuffle="global"))]
before = own_bytes()
loader = Loader(large, batch_size=64, world=World(), shuffle="global")
open_batches.append(read(loader))
ctypes.CDLL(None).malloc_trim(0)  # what a scan has used and freed
grown = own_bytes() - before
loader._source.shards.positions.packed()
print("ready", flush=True)
sys.stdin.readline()
print(json.dumps({"grown": grown, **mapped_bytes()}), flush=True)
sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("shared")
    with Writer(folder / "small") as w:
        for i in range(5000):
            w.write(b"x" * (i % 50))
    content = (folder / "small").read_bytes()
    with (folder / "large").open("wb") as file:
        for _ in range(RECORDS // 5000):
            file.write(content)
    return str(folder / "small"), str(folder / "large")


def measured(paths: tuple[str, str], mode: str, cache: Path) -> list[dict[str, int]]:
    """Read in two processes at once, the second after the first has its index; return what each needs."""
    environment = {**os.environ, "SHARDKEEP_INDEX": mode, "SHARDKEEP_INDEX_DIR": str(cache)}
    children = []
    try:
        for _ in range(2):
            command = [sys.executable, "-c", SCRIPT, *paths]
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
            )
            children.append(child)
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        found = []
        for child in children:
            assert child.stdin is not None and child.stdout is not None
            child.stdin.write("\n")
            child.stdin.flush()
            found.append(json.loads(child.stdout.readline()))
        return found
    finally:
        for child in children:
            child.communicate("\n", timeout=PATIENCE_S)


def test_processes_share_the_index(paths: tuple[str, str], tmp_path: Path) -> None:
    found = measured(paths, "cache", tmp_path)
    for one in found:
        assert RECORDS < one["Rss"] < 3 * RECORDS
        assert one["grown"] < RECORDS  # batches, and no offsets
    assert sum(one["Pss"] for one in found) < 3 * RECORDS


def test_without_an_index_file_a_process_has_a_few_bytes_a_record(
    paths: tuple[str, str], tmp_path: Path
) -> None:
    for one in measured(paths, "off", tmp_path):
        assert (one["Rss"], one["Pss"]) == (0, 0)
        assert one["grown"] < 3 * RECORDS
