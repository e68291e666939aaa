"""Rewriting a file in place while other processes read it: the case that needs a lock or a rename.

One process repeatedly writes a new version of a shard, and two processes read it. A pass of a reader is
correct if it sees every record of one version. There are three ways to write the new version:

* into the file itself: readers see parts of two versions;
* into the file itself with `shardkeep.files.lock`, and readers use ``Reader(path, lock=True)``;
* into a temporary file that is renamed, as ``Writer(path, exists="replace")`` does: readers of the old
version
  keep it, and no process waits.

    python examples/rewritten_in_place.py
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable

from shardkeep import files
from shardkeep.errors import ShardkeepError
from shardkeep.tfrecord import Reader, Writer

SECONDS = 1.0
LONGEST_S = 60.0  # on a busy machine a fault may take time to appear
RECORDS = 400
FORK = multiprocessing.get_context("fork")


class Over:
    """Signal, shared by all processes, that an experiment has taken long enough."""

    def __init__(self, fails: bool) -> None:
        self.seen = FORK.Event()
        self._begin_s = time.monotonic()
        self._fails = fails

    def __call__(self) -> bool:
        passed_s = time.monotonic() - self._begin_s
        return passed_s > SECONDS and (not self._fails or self.seen.is_set() or passed_s > LONGEST_S)


def write_version(path: str, version: int, *, exists: str = "fail") -> None:
    with Writer(path, exists=exists) as writer:
        for number in range(RECORDS):
            writer.write(b"%d:%d:" % (version, number) + b"." * (500 + version % 2 * 300))


@functools.cache
def content(path: str, version: int) -> bytes:
    write_version(path + ".new", version, exists="replace")
    with open(path + ".new", "rb") as file:
        return file.read()


def in_place(path: str, version: int) -> None:
    new = content(path, version % 2)
    # As `cp`, `open(path, "wb")` and a tf.io.TFRecordWriter write to an existing path: in pieces.
    with open(path, "wb") as file:
        for start in range(0, len(new), 8192):
            file.write(new[start : start + 8192])


def in_place_locked(path: str, version: int) -> None:
    content(path, version % 2)  # made before the lock, so that readers wait only for the copy
    with files.lock(path, timeout_s=LONGEST_S):
        in_place(path, version)


def by_rename(path: str, version: int) -> None:
    write_version(path, version, exists="replace")


def keep_writing(write: Callable[[str, int], None], path: str, over: Over, result: object) -> None:
    version = 0
    while not over():
        version += 1
        write(path, version)
        time.sleep(0.002)  # a lock is not fair: without a pause other processes might not get it
    result.send((version, 0))  # type: ignore[attr-defined]


def keep_reading(lock: bool, path: str, over: Over, result: object) -> None:
    passes = failed = 0
    while not over() or not passes:
        passes += 1
        if not is_one_version(path, lock):
            failed += 1
            over.seen.set()
        time.sleep(0.002)
    result.send((passes, failed))  # type: ignore[attr-defined]


def is_one_version(path: str, lock: bool) -> bool:
    try:
        records = [record.split(b":", 2) for record in Reader(path, lock=lock, lock_timeout_s=LONGEST_S)]
    except ShardkeepError:
        return False
    numbers = [int(number) for _, number, _ in records]
    return numbers == list(range(RECORDS)) and len({version for version, _, _ in records}) == 1


def experiment(
    title: str, write: Callable[[str, int], None], *, lock: bool, fails: bool = False
) -> tuple[int, int]:
    """Run one writer and two readers for `SECONDS`, or until it fails; return passes and failed passes."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "train.tfrecord")
        write_version(path, 0)
        over = Over(fails)
        jobs = [(keep_writing, write), (keep_reading, lock), (keep_reading, lock)]
        children = []
        results = []
        for target, what in jobs:
            end, mine = FORK.Pipe(duplex=False)
            children.append(FORK.Process(target=target, args=(what, path, over, mine)))
            children[-1].start()
            mine.close()
            results.append(end)
        versions, *seen = [end.recv() for end in results]
        for child in children:
            child.join()
    passes, failed = sum(one[0] for one in seen), sum(one[1] for one in seen)
    print(f"{title:<46} {versions[0]:>8} {passes:>8} {failed:>8}")
    return passes, failed


def main() -> int:
    print(f"{'':<46} {'versions':>8} {'passes':>8} {'failed':>8}")
    torn = experiment("in place, no lock", in_place, lock=False, fails=True)
    half = experiment("in place, only the writer locks", in_place_locked, lock=False, fails=True)
    locked = experiment("in place, writer and readers lock", in_place_locked, lock=True)
    renamed = experiment("replaced by rename, no lock", by_rename, lock=False)
    as_documented = (
        torn[1] > 0 and half[1] > 0 and locked[1] == 0 and renamed[1] == 0 and min(locked[0], renamed[0]) > 0
    )
    print("\nas documented" if as_documented else "\nNOT as documented: see docs/locking.md")
    return 0 if as_documented else 1


if __name__ == "__main__":
    sys.exit(main())
