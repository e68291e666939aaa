"""Memory of a loader: bounded by `prefetch` batches and a fixed amount, for any number of records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from shardkeep.tfrecord import Writer
from tests.waiting import PATIENCE_S

RECORD_BYTES = 100_000
BATCH = 16
BATCH_BYTES = RECORD_BYTES * BATCH

SCRIPT = """
import json, os, resource, sys, time
from shardkeep.loader import Loader
from shardkeep.tfrecord import FixedLen
from shardkeep.world import World

def kilobytes(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name + ":"))

path, features, prefetch, epochs, spare = json.loads(sys.argv[1])
features = {name: FixedLen(shape, dtype) for name, (shape, dtype) in features.items()} if features else None
loader = Loader(
    path, features, 16, World(), "global", epochs=epochs, prefetch=prefetch, threads=2, on_corrupt="skip"
)
before = kilobytes("VmHWM")
if spare:
    limit = kilobytes("VmSize") * 1024 + spare
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

def wait_for_prefetch():
    # Wait until the threads are idle, so that all batches are read ahead.
    quiet = 0
    while quiet < 5:
        states = [open(f"/proc/self/task/{task}/stat").read().rpartition(")")[2].split()[0]
                  for task in os.listdir("/proc/self/task") if int(task) != os.getpid()]
        quiet = quiet + 1 if set(states) <= {"S"} else 0
        time.sleep(0.02)

batches, early = 0, 0
for batch in loader:
    batches += 1
    if batches == 1:
        wait_for_prefetch()
    if batches == 6:
        early = kilobytes("VmHWM")
print(json.dumps({"batches": batches, "early": early - before, "whole": kilobytes("VmHWM") - before}))
"""


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("memory")
    for name, records in (("few", 100), ("many", 600)):
        with Writer(folder / f"{name}.raw") as w:
            for i in range(records):
                w.write(bytes([i % 251]) * RECORD_BYTES)
    with Writer(folder / "examples") as w:
        for i in range(100):
            w.write_example({"b": bytes([i]) * (RECORD_BYTES // 2), "f": [float(i)] * (RECORD_BYTES // 8)})
    return {path.stem: str(path) for path in folder.iterdir()}


def run(
    path: str, *, prefetch: int = 2, epochs: int = 1, features: Any = None, spare: int = 0
) -> dict[str, int]:
    """Read in a child; return batches and growth in KiB after a few of them and at the end."""
    # Arenas are address space for threads, not memory that is used.
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(SCRIPT),
            json.dumps([path, features, prefetch, epochs, spare]),
        ],
        env={**os.environ, "MALLOC_ARENA_MAX": "2"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


def bound(prefetch: int) -> int:
    """Return the bound in KiB: batches read ahead, two batches at the caller, and a fixed amount."""
    return ((prefetch + 2) * BATCH_BYTES + (16 << 20)) // 1024


def test_memory_does_not_grow_with_the_number_of_records(paths: dict[str, str]) -> None:
    few, many = run(paths["few"]), run(paths["many"])
    assert (few["batches"], many["batches"]) == (7, 38)
    assert max(few["whole"], many["whole"]) < bound(2)
    assert many["whole"] - few["whole"] < 12 << 10


def test_memory_does_not_grow_with_the_number_of_batches(paths: dict[str, str]) -> None:
    found = run(paths["few"], epochs=30)
    assert found["batches"] == 7 * 30
    assert found["whole"] < bound(2)
    assert found["whole"] - found["early"] < 12 << 10


def test_memory_is_bounded_by_the_batches_read_ahead(paths: dict[str, str]) -> None:
    less, more = run(paths["many"], prefetch=1), run(paths["many"], prefetch=12)
    assert less["whole"] < bound(1)
    assert (more["whole"] - less["whole"]) * 1024 > 8 * BATCH_BYTES
    assert more["whole"] < bound(12)


def test_memory_of_columns_is_bounded(paths: dict[str, str]) -> None:
    features = {"b": ([], "bytes"), "f": ([RECORD_BYTES // 8], "float32")}
    found = run(paths["examples"], features=features, epochs=20)
    assert found["batches"] == 7 * 20
    # Strings become bytes objects, so there are two copies for a moment.
    assert found["whole"] < bound(3)
    assert found["whole"] - found["early"] < 12 << 10


def test_loader_works_within_a_limit_of_address_space(paths: dict[str, str]) -> None:
    # The file is 60 MB, two threads' stacks 4 MB.
    assert run(paths["many"], epochs=3, spare=(2 + 2) * BATCH_BYTES + (24 << 20))["batches"] == 38 * 3
