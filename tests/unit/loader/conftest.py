from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from shardkeep.tfrecord import Writer

MakeShards = Callable[[Sequence[int]], list[str]]


@pytest.fixture
def shards(tmp_path_factory: pytest.TempPathFactory) -> MakeShards:
    """Make shards of Examples {"x": global record number, "s": b"..."} with these numbers of records."""

    def make(counts: Sequence[int]) -> list[str]:
        folder: Path = tmp_path_factory.mktemp("shards")
        paths, number = [], 0
        for i, count in enumerate(counts):
            paths.append(str(folder / f"{i:03d}.tfrecord"))
            with Writer(paths[-1]) as w:
                for _ in range(count):
                    values = list(range(number % 3)) or [0]
                    w.write_example({"x": number, "s": b"s" * (number % 5), "v": values})
                    number += 1
        return paths

    return make
