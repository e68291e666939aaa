"""A remote store in the memory of the test process and of its forks, for tests of reading."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from shardkeep import World
from shardkeep.tfrecord import Writer

MEMORY = fsspec.filesystem("memory")
ALONE = World()


def record_reads(
    monkeypatch: pytest.MonkeyPatch, log: Path, fault: Callable[[str], None] | None = None
) -> None:
    """Append the name of each object that any process reads to a file, after which `fault` may raise."""
    original = MemoryFileSystem.cat_file

    def cat_file(self: Any, path: str, **kwargs: Any) -> bytes:
        with log.open("a") as file:
            file.write(path + "\n")
        if fault is not None:
            fault(path)
        return bytes(original(self, path, **kwargs))

    monkeypatch.setattr(MemoryFileSystem, "cat_file", cat_file)


def reads(log: Path) -> list[str]:
    """Return the names of the objects that were read."""
    return log.read_text().split() if log.exists() else []


def write_shards(folder: Path, url: str, shards: int = 4, records: int = 50, padding: int = 0) -> None:
    """Write shards with the numbers 0, 1, … as feature "x", to a local folder and to the store."""
    folder.mkdir(exist_ok=True)
    for shard in range(shards):
        name = f"t-{shard:05d}-of-{shards:05d}.tfrecord"
        with Writer(folder / name, exists="replace") as w:
            for record in range(records):
                w.write_example({"x": shard * records + record, "pad": b"." * padding})
        MEMORY.pipe_file(f"{url.removeprefix('memory:/')}/{name}", (folder / name).read_bytes())
