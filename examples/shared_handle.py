"""Sharing a handle that was opened before `fork`, and a reader that works instead.

Four processes read the same TFRecord file. The wrong way opens it first and forks afterwards: the handle has
one position, which all four move. The right way uses a `shardkeep.tfrecord.Reader` in the children: it reads
by offset and has no shared position.

    python examples/shared_handle.py
"""

from __future__ import annotations

import json
import os
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from shardkeep.tfrecord import Reader, Writer

PROCESSES = 4
RECORDS = [b"%05d:" % number + os.urandom(500 + number % 700) for number in range(3000)]


def frames(handle: BinaryIO) -> Iterator[bytes]:
    """Read frames as a small script does: a length, its CRC, the data, its CRC, without checks."""
    while len(header := handle.read(12)) == 12:
        size = struct.unpack("<Q", header[:8])[0]
        if size > 1 << 30:
            raise ValueError("a length of garbage")
        yield handle.read(size + 4)[:-4]


def in_children(work: Callable[[], Iterator[bytes]]) -> list[dict[str, int]]:
    """Fork `PROCESSES` children that run `work` at the same time; return their results."""
    pipes = []
    start, go = os.pipe()
    for _ in range(PROCESSES):
        end, mine = os.pipe()
        if os.fork() == 0:
            os.close(go)
            os.read(start, 1)  # returns in all children at the moment when the parent closes its end
            os.write(mine, json.dumps(count(work)).encode())
            os._exit(0)
        os.close(mine)
        pipes.append(end)
    os.close(start)
    os.close(go)
    results = []
    for end in pipes:
        with os.fdopen(end, "rb") as file:
            results.append(json.loads(file.read()))
        os.wait()
    return results


def count(work: Callable[[], Iterator[bytes]]) -> dict[str, int]:
    seen = {"whole": 0, "garbage": 0}
    known = set(RECORDS)
    try:
        for record in work():
            seen["whole" if record in known else "garbage"] += 1
    except (ValueError, OverflowError, MemoryError):
        seen["garbage"] += 1
    return seen


def show(title: str, results: list[dict[str, Any]]) -> bool:
    """Print one row; return True if every process got exactly the records of the file."""
    right = all(seen == {"whole": len(RECORDS), "garbage": 0} for seen in results)
    whole = " ".join(f"{seen['whole']:>5}" for seen in results)
    garbage = " ".join(f"{seen['garbage']:>4}" for seen in results)
    print(f"{title:<42} {whole}   {garbage}   {'right' if right else 'WRONG'}")
    return right


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "train.tfrecord")
        with Writer(path) as writer:
            for record in RECORDS:
                writer.write(record)

        print(f"{len(RECORDS)} records, {PROCESSES} processes that each want all of them\n")
        print(f"{'':<42} {'whole records':<23}   {'garbage':<19}")

        with open(path, "rb") as buffered:
            next(frames(buffered))  # reading the first record fills a buffer that every child inherits
            shared_buffered = show("a handle opened before fork", in_children(lambda: frames(buffered)))

        with open(path, "rb", buffering=0) as raw:
            shared_raw = show("the same without a buffer", in_children(lambda: frames(raw)))

        def own_handle() -> Iterator[bytes]:
            with open(path, "rb") as handle:
                yield from frames(handle)

        own = show("a handle opened by each process", in_children(own_handle))

        reader = Reader(path)
        next(iter(reader))
        carried = show("shardkeep.tfrecord.Reader across fork", in_children(lambda: iter(reader)))

    as_documented = not shared_buffered and not shared_raw and own and carried
    print("\nas documented" if as_documented else "\nNOT as documented: see docs/locking.md")
    return 0 if as_documented else 1


if __name__ == "__main__":
    sys.exit(main())
