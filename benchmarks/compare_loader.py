"""Comparison of loaders: orders, first batch, memory, many shards with few descriptors."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

from benchmarks.comparison import Comparison, Job
from benchmarks.jobs import TABLE, first_batch, loaded
from shardkeep.tfrecord import FixedLen, Image, Writer

_GLOBAL = loaded(features=TABLE, batch_size=1024, shuffle="global")
_BLOCKS = loaded(features=TABLE, batch_size=1024, shuffle="blocks")
_FILES = loaded(features=TABLE, batch_size=1024, shuffle="blocks", shard_by="files")
_FIRST = first_batch(features=TABLE, batch_size=1024, shuffle="global")
_FIRST_IN_ORDER = first_batch(features=TABLE, batch_size=1024)
_PNG = loaded(features={"image_raw": Image(), "label": FixedLen()}, batch_size=256, shuffle="blocks")
_FULL = "40 features, {}, beside a full shuffle buffer"

_SHARDS = 10_000
_A_SHARD = 6

_EPOCH = """
import sys, time
from shardkeep.loader import Loader
from shardkeep.world import World
loader = Loader(sys.argv[1] + "/*.tfrecord", batch_size=256, world=World(), shuffle=sys.argv[2] or False)
start_s = time.perf_counter()
print(sum(int(batch["valid"].sum()) for batch in loader), time.perf_counter() - start_s)
"""


def _many_shards(folder: Path) -> list[str]:
    """Make 10,000 shards of six records of 1.7 KB."""
    here = folder / f"many-{_SHARDS}"
    if not here.exists():
        here.mkdir(parents=True)
        with Writer(here / "first") as writer:
            for number in range(_A_SHARD):
                writer.write(bytes([number]) * 1700)
        whole = (here / "first").read_bytes()
        (here / "first").unlink()
        for number in range(_SHARDS):
            (here / f"{number:05d}.tfrecord").write_bytes(whole)
    return [str(here / f"{number:05d}.tfrecord") for number in range(_SHARDS)]


def _in_child(shuffle: str, limit: int | None) -> Job:
    """Return a job that reads an epoch in a new process with at most `limit` open files."""
    return partial(_epoch, shuffle, limit)


def _epoch(shuffle: str, limit: int | None, paths: list[str]) -> tuple[float, int]:
    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    command = [sys.executable, "-c", _EPOCH, os.path.dirname(paths[0]), shuffle]
    done = subprocess.run(command, preexec_fn=limited, capture_output=True, text=True, check=True)
    records, seconds = done.stdout.split()
    return float(seconds), int(records)


COMPARISONS = [
    *(
        Comparison(
            f"10,000 shards, {name}, ulimit -n 64 beside no limit",
            _many_shards,
            _in_child(shuffle, 64),
            _in_child(shuffle, None),
            0.5,
        )
        for name, shuffle in (("in order", ""), ("global shuffle", "global"))
    ),
    Comparison(_FULL.format("global shuffle"), "table", _GLOBAL, "table shuffled", 3, 1024),
    Comparison(_FULL.format("shuffled blocks"), "table", _BLOCKS, "table shuffled", 4, 1024),
    Comparison(
        _FULL.format("global shuffle, memory at the peak"),
        "table",
        _GLOBAL,
        "table shuffled",
        10,
        1024,
        of="memory",
    ),
    # The usual interleave in TensorFlow: whole files, shuffled or not, without a shuffle buffer.
    Comparison("40 features, whole files interleaved", "table", _FILES, "table usual", 3, 1024),
    Comparison(
        "first batch of 400,000, shuffled: beside filling the buffer",
        "table",
        _FIRST,
        "first table shuffled",
        10,
        1024,
        of="latency",
    ),
    Comparison(
        "first batch of 400,000, not shuffled",
        "table",
        _FIRST_IN_ORDER,
        "first table best",
        10,
        1024,
        of="latency",
    ),
    Comparison("PNG to float32, beside PyTorch's DataLoader and Pillow", "small", _PNG, "torch png", 5, 256),
]
