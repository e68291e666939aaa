"""Uneven shards, loaders over them, and the audit as judge, for the live tests of every framework."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import shardkeep as sk

COUNTS = (7, 40, 3, 120, 5, 35)
"""Records of each shard."""
RECORDS = sum(COUNTS)


def write_shards(folder: Path) -> list[str]:
    """Write shards of the Example features x (number of the record), s (0 to 2 bytes), v (1 to 4 floats)."""
    number, paths = 0, []
    for i, count in enumerate(COUNTS):
        paths.append(str(folder / f"{i}.tfrecord"))
        with sk.tfrecord.Writer(paths[-1]) as w:
            for _ in range(count):
                w.write_example({"x": number, "s": b"s" * (number % 3), "v": [1.5] * (1 + number % 4)})
                number += 1
    return paths


def make_loader(
    paths: list[str], rank: int = 0, size: int = 1, batch_size: int = 16, **options: Any
) -> sk.Loader:
    """Return a loader of the column x in a global shuffle."""
    return sk.Loader(
        paths, {"x": sk.FixedLen()}, batch_size, sk.World(rank, size), shuffle="global", **options
    )


def rows(batch: Mapping[str, Any]) -> list[int]:
    """Return the numbers of the records in a batch of arrays or tensors, without its padding."""
    return (batch["x"][batch["valid"]] if "valid" in batch else batch["x"]).tolist()


def bare(paths: list[str], epochs: int, **options: Any) -> list[list[list[int]]]:
    """Return what the loader itself delivers: rows by epoch and step."""
    loader = make_loader(paths, **options)
    return [[rows(batch) for batch in loader] for _ in range(epochs)]


def judge(passes: Iterable[Iterable[int]], receipts: Iterable[Mapping[str, Any]]) -> None:
    """Raise AssertionError unless each pass has every record once, and the audit of the receipts agrees.

    Parameters
    ----------
    passes : iterable of iterable of int
        Records of each epoch, of all ranks together.
    receipts : iterable of mapping
        The last receipt of each rank.
    """
    for one in passes:
        assert sorted(one) == list(range(RECORDS))
    audit = sk.plan.audit(list(receipts))
    assert audit.ok, audit
