"""The processes of a recipe, its files, and the table that it prints."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import struct
import textwrap
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.synchronize import Barrier
from typing import Any

import shardkeep as sk

_barrier: Barrier


def together() -> None:
    """Wait until all processes are here."""
    _barrier.wait()


def _begin(barrier: Barrier) -> None:
    global _barrier
    _barrier = barrier
    # The default of programs on Linux, but not of their spawned processes.
    multiprocessing.set_start_method("fork", force=True)


def _call(work: Callable[..., Any], rank: int, arguments: tuple[Any, ...]) -> Any:
    together()
    return work(rank, *arguments)


class Processes:
    """Processes that work at the same time, each started once."""

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._count = count
        self._pool = ProcessPoolExecutor(count, context, _begin, (context.Barrier(count),))

    def run(self, work: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return the results of ``work(rank, *arguments)``, or the exceptions."""
        running = [self._pool.submit(_call, work, rank, arguments) for rank in range(self._count)]
        return [one.exception() or one.result() for one in running]

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown()


def show(title: str, expected: Iterable[int], results: Iterable[Any]) -> bool:
    """Print what became of the records; return True if each was there once."""
    found: Counter[int] = Counter()
    errors = []
    for one in results:
        if isinstance(one, BaseException):
            errors.append(f"{type(one).__name__}: {one}".splitlines()[0])
        else:
            found.update(one)
    wanted = Counter(expected)
    lost, more = (wanted - found).total(), (found - wanted).total()
    right = not (lost or more or errors)
    print(f"{title:<52} {lost:>5} {more:>9}   {'right' if right else 'WRONG'}", flush=True)
    for text, count in Counter(errors).items():
        print(textwrap.indent(textwrap.fill(f"{count} of the processes: {text}", 84), "    "), flush=True)
    return right


def heading(what: str) -> None:
    print(f"{what:<52} {'lost':>5} {'repeated':>9}", flush=True)


def finish(outcomes: list[bool], documented: list[bool]) -> int:
    """Print whether the outcomes are those of the documentation; return the exit code."""
    print("\nas documented" if outcomes == documented else "\nNOT AS DOCUMENTED")
    return int(outcomes != documented)


def write_shards(folder: str, counts: Iterable[int], **features: Callable[[int], Any]) -> list[str]:
    """Write TFRecord files of Examples with their number, and features of it; return the paths."""
    paths, numbers = [], itertools.count()
    for shard, count in enumerate(counts):
        paths.append(os.path.join(folder, f"{shard}.tfrecord"))
        with sk.tfrecord.Writer(paths[-1]) as writer:
            for number in itertools.islice(numbers, count):
                example = {name: feature(number) for name, feature in features.items()}
                writer.write_example({"number": number, **example})
    return paths


def png(size: int, color: int) -> bytes:
    """Return a grey image."""

    def part(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = zlib.compress((b"\0" + bytes([color]) * size) * size)
    head = struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", rows) + part(b"IEND", b"")
