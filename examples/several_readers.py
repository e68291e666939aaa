"""Reading one file in several processes, without locks and faults, if each process has its own position.

"TFRecord files get corrupted when several processes read them" is a common belief. Reading does not change a
file. Errors come from a handle that several readers share (see shared_handle.py), or from a file that is
rewritten while it is read (see rewritten_in_place.py).

    python examples/several_readers.py
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO

from shardkeep import files
from shardkeep.errors import ShardkeepError
from shardkeep.tfrecord import Reader, Writer

READERS = 4
PASSES = 25
RECORDS = [b"%05d:" % number + b"." * (500 + number % 700) for number in range(2000)]
FORK = multiprocessing.get_context("fork")


def read_by_handle(handle: BinaryIO) -> list[bytes]:
    records = []
    while len(header := handle.read(12)) == 12:
        size = int.from_bytes(header[:8], "little")
        if size > 1 << 30:
            raise ValueError("a length of garbage")
        records.append(handle.read(size + 4)[:-4])
    return records


def own_handle(path: str) -> list[bytes]:
    with open(path, "rb") as handle:
        return read_by_handle(handle)


def own_reader(path: str) -> list[bytes]:
    return list(Reader(path))


def behind_a_lock(path: str) -> list[bytes]:
    with files.lock(path, timeout_s=60):
        return list(Reader(path))


def faults(read: Callable[[], list[bytes]], passes: int) -> int:
    """Return the number of passes that did not read exactly the records of the file."""
    found = 0
    for _ in range(passes):
        try:
            found += read() != RECORDS
        except (ShardkeepError, ValueError, OverflowError):
            found += 1
    return found


def in_processes(read: Callable[[str], list[bytes]], path: str) -> int:
    with FORK.Pool(READERS) as pool:
        jobs = [pool.apply_async(faults, (_Bound(read, path), PASSES)) for _ in range(READERS)]
        return sum(job.get() for job in jobs)


class _Bound:
    def __init__(self, read: Callable[[str], list[bytes]], path: str) -> None:
        self.read, self.path = read, path

    def __call__(self) -> list[bytes]:
        return self.read(self.path)


def in_threads(read: Callable[[], list[bytes]]) -> int:
    together = threading.Barrier(READERS)

    def passes() -> int:
        found = 0
        for _ in range(PASSES):
            together.wait()
            found += faults(read, 1)
        return found

    with ThreadPoolExecutor(READERS) as pool:
        return sum(job.result() for job in [pool.submit(passes) for _ in range(READERS)])


def show(title: str, run: Callable[[], int]) -> int:
    start = time.perf_counter()
    found = run()
    seconds = time.perf_counter() - start
    print(f"{title:<46} {READERS * PASSES:>8} {found:>8} {seconds:>9.2f}")
    return found


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "train.tfrecord")
        with Writer(path) as writer:
            for record in RECORDS:
                writer.write(record)

        print(f"{'':<46} {'passes':>8} {'faults':>8} {'seconds':>9}")
        with open(path, "rb", buffering=0) as shared:

            def rewound() -> list[bytes]:
                shared.seek(0)
                return read_by_handle(shared)

            wrong = show("four threads with one handle", lambda: in_threads(rewound))
        reader = Reader(path)
        right = [
            show("four threads with one Reader", lambda: in_threads(lambda: list(reader))),
            show("four processes, a plain handle each", lambda: in_processes(own_handle, path)),
            show("four processes, a Reader each", lambda: in_processes(own_reader, path)),
            show("four processes, one at a time behind a lock", lambda: in_processes(behind_a_lock, path)),
        ]
    as_documented = wrong > 0 and sum(right) == 0
    print("\nas documented" if as_documented else "\nNOT as documented: see docs/locking.md")
    return 0 if as_documented else 1


if __name__ == "__main__":
    sys.exit(main())
