"""``python -m benchmarks.compare [part of a name]``: this library beside its peers, on the same files.

Each row is a target: a ratio that is wanted, both sides taking turns, the medians, and the ratio that was
reached. The table goes to ``benchmarks/RESULTS.md`` with machine, versions and date. TensorFlow runs in the
interpreter that SHARDKEEP_TF_PYTHON names, or in ``.venv-tf`` (``make frameworks``; add the package
``tfrecord`` to it by hand).
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import workloads
from benchmarks.harness import HERE, machine
from shardkeep.loader import Loader
from shardkeep.tfrecord import FixedLen, Image, Reader, Writer, build_index, read_columns
from shardkeep.world import World

RESULTS = HERE / "RESULTS.md"
TABLE: dict[str, Any] = {f"f{i:02d}": FixedLen((1,), "float32") for i in range(13)}
TABLE |= {f"i{i:02d}": FixedLen((1,)) for i in range(26)} | {"label": FixedLen()}

Job = Callable[[list[str]], int]


@dataclass(frozen=True)
class Comparison:
    """One row: our job and a peer's on one workload; `wanted` is how many times faster ours has to be."""

    name: str
    workload: str
    ours: Job
    peer: str
    peer_argument: int
    wanted: float


def _loader(**options: Any) -> Job:
    def run(paths: list[str]) -> int:
        return sum(int(batch["valid"].sum()) for batch in Loader(paths, world=World(), **options))

    return run


def _iterated(paths: list[str]) -> int:
    return sum(1 for path in paths for _ in Reader(path))


def _plain_read(paths: list[str]) -> int:
    """Read everything on all cores and do nothing with it: the limit for whoever must read."""
    from concurrent.futures import ThreadPoolExecutor

    def one(path: str) -> int:
        buffer = bytearray(1 << 20)
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
        return 0

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return sum(pool.map(one, paths))


def _columns(paths: list[str]) -> int:
    return len(read_columns(paths, TABLE)["label"])


def _indexed(paths: list[str], *, verify: bool) -> int:
    # Without storing it: the scan is what is measured.
    os.environ["SHARDKEEP_INDEX"] = "off"
    try:
        return sum(index.records for index in build_index(paths, verify=verify))
    finally:
        del os.environ["SHARDKEEP_INDEX"]


def _random(paths: list[str]) -> int:
    reader = Reader(paths[0])
    return len(reader.read_many(np.random.default_rng(0).integers(0, len(reader), 10_000)))


@functools.cache
def _rows(rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {f"f{i:02d}": rng.random((rows, 1), np.float32) for i in range(13)}
    return columns | {f"i{i:02d}": rng.integers(0, 1 << 20, (rows, 1)) for i in range(26)}


def _written(paths: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder, Writer(f"{folder}/x") as writer:
        writer.write_examples(_rows(_WRITTEN))
        return writer.records


_WRITTEN = 20_000
_RAW = _loader(batch_size=256)
# Batches of 800 KB, of which those under way stay in the L2 cache, as the buffer of the plain read() does.
_LARGE = _loader(batch_size=16)
_PNG = _loader(features={"image_raw": Image(), "label": FixedLen()}, batch_size=256)
_JPEG = _loader(features={"image_raw": Image(dtype="uint8"), "label": FixedLen()}, batch_size=64)
_COLUMNS = _loader(features=TABLE, batch_size=1024)

COMPARISONS = [
    Comparison("small records, raw, beside the usual interleave", "small", _RAW, "raw usual", 256, 8),
    Comparison("small records, raw, beside tf.data's best", "small", _RAW, "raw best", 1024, 3),
    Comparison(
        "large records, raw, beside tf.data's best", "large", _loader(batch_size=64), "raw best", 64, 3
    ),
    Comparison("large records, raw, beside plain read()", "large", _LARGE, "", 0, 0.6),
    Comparison(
        "small records, one by one, CRC checked, beside vahidk's without", "small", _iterated, "vahidk", 0, 2
    ),
    Comparison("40 features into columns, beside the usual", "table", _COLUMNS, "table usual", 1024, 20),
    Comparison("40 features into columns, beside tf.data's best", "table", _COLUMNS, "table best", 1024, 4),
    Comparison("40 features by read_columns, beside the usual", "table", _columns, "table usual", 1024, 20),
    Comparison(
        "40 features by read_columns, beside tf.data's best", "table", _columns, "table best", 1024, 4
    ),
    Comparison("40 features written from columns", "table", _written, "write table", _WRITTEN, 10),
    Comparison(
        "index scan, large records, beside plain read()", "large", partial(_indexed, verify=False), "", 0, 0.7
    ),
    Comparison("index scan beside plain read()", "table", partial(_indexed, verify=False), "", 0, 0.7),
    Comparison("verify beside plain read()", "table", partial(_indexed, verify=True), "", 0, 0.7),
    Comparison("10,000 random records, beside skip() to each", "table", _random, "skip", 10, 50),
    Comparison("PNG to float32, beside the usual", "small", _PNG, "png usual", 256, 10),
    Comparison("PNG to float32, beside tf.data's best", "small", _PNG, "png best", 256, 4),
    Comparison("JPEG to uint8, beside tf.data's best", "large", _JPEG, "jpeg best", 64, 1.2),
    Comparison(
        "40 features, global shuffle, beside a full shuffle buffer",
        "table",
        _loader(features=TABLE, batch_size=1024, shuffle="global"),
        "table shuffled",
        1024,
        3,
    ),
    Comparison(
        "40 features, shuffled blocks, beside a full shuffle buffer",
        "table",
        _loader(features=TABLE, batch_size=1024, shuffle="blocks"),
        "table shuffled",
        1024,
        4,
    ),
]


class Peer:
    """The child process in which a peer runs."""

    def __init__(self, python: str, module: str) -> None:
        self._process = subprocess.Popen(
            [python, "-m", f"benchmarks.{module}"],
            cwd=HERE.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.versions: dict[str, str] = self._answer()

    def run(self, job: str, paths: list[str], argument: int) -> tuple[float, int]:
        """Return the seconds that a job took, and its records."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([job, paths, argument]) + "\n")
        self._process.stdin.flush()
        seconds, records, _ = self._answer()
        return float(seconds), int(records)

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=30)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a peer's process died: are TensorFlow and tfrecord installed there?")
        return json.loads(line)


def main() -> None:
    """Run the comparisons and write the table."""
    parser = argparse.ArgumentParser(prog="benchmarks.compare", description="Measure beside the peers.")
    parser.add_argument("name", nargs="?", default="", help="only comparisons whose name contains this")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="a part of the records")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "shardkeep-benchmarks")
    arguments = parser.parse_args()
    named = os.environ.get("SHARDKEEP_TF_PYTHON", str(HERE.parent / ".venv-tf/bin/python"))
    peers = {"vahidk": Peer(named, "vahidk_peer"), "": Peer(named, "tensorflow_peer")}
    rows = []
    for comparison in COMPARISONS:
        if arguments.name in comparison.name:
            paths = workloads.make(arguments.folder, comparison.workload, scale=arguments.scale)
            peer = peers.get(comparison.peer, peers[""])
            rows.append(_measure(comparison, peer, paths, arguments.rounds))
            print(rows[-1], flush=True)
    versions = {name: version for peer in peers.values() for name, version in peer.versions.items()}
    for peer in peers.values():
        peer.close()
    if not arguments.name and arguments.scale == 1.0:
        RESULTS.write_text(_page(rows, versions), encoding="utf-8")


def _measure(comparison: Comparison, peer: Peer, paths: list[str], rounds: int) -> str:
    ours, theirs, ratios = [], [], []
    records = 0
    for turn in range(rounds + 1):
        start = time.perf_counter()
        records = comparison.ours(paths)
        mine = time.perf_counter() - start
        if comparison.peer:
            other, done = peer.run(comparison.peer, _for_peer(comparison, paths), comparison.peer_argument)
            other *= records / done  # a peer that is slow does fewer
        else:
            start = time.perf_counter()
            _plain_read(paths)
            other = time.perf_counter() - start
        if turn:  # the first turn warms the page cache and everybody's code up
            ours.append(mine)
            theirs.append(other)
            ratios.append(other / mine)
    size = sum(os.path.getsize(path) for path in paths)
    speeds = [
        f"{records / statistics.median(side):,.0f}/s ({size / statistics.median(side) / 1e6:,.0f} MB/s)"
        for side in (ours, theirs)
    ]
    ratio = statistics.median(ratios)
    spread = f"{min(ratios):.2f}–{max(ratios):.2f}"
    met = "yes" if ratio >= comparison.wanted else "no"
    cells = [comparison.name, *speeds, f"{ratio:.2f} ({spread})", f"{comparison.wanted:g}", met]
    return f"| {' | '.join(cells)} |"


def _for_peer(comparison: Comparison, paths: list[str]) -> list[str]:
    if comparison.peer == "write table":
        return [f"{tempfile.gettempdir()}/shardkeep-benchmarks/written-by-tensorflow"]
    return paths[:1] if comparison.peer == "skip" else paths


def _page(rows: list[str], versions: dict[str, str]) -> str:
    here = machine()
    told = ", ".join(f"{name} {version}" for name, version in {**here, **versions}.items() if name != "core")
    return "\n".join(
        [
            "# Results",
            "",
            "Written by `python -m benchmarks.compare`. Both sides take turns on the same files in the page",
            "cache; a ratio is the median over the pairs of turns (and its range): more is better.",
            "",
            f"{time.strftime('%Y-%m-%d')}: {told}",
            "",
            "| what | this library | the peer | times as fast | wanted | reached |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    main()
