"""Order, shards and errors of `pack`, whatever the source.

Covers `shardkeep.jobs.pack_sources.source` and `shardkeep.jobs.pack_sources.open`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardkeep.errors import (
    ExistsError,
    FormatError,
    NotFoundError,
    PlanError,
)
from shardkeep.jobs import PackReport, pack
from shardkeep.tfrecord import Reader
from tests.unit.jobs.packing import PATTERN, examples, left


def numbers(report: PackReport) -> list[int]:
    return [one["data"][0] for one in examples(report)]


def test_shuffled_is_a_permutation_by_seed(tmp_path: Path) -> None:
    data = np.arange(1000)
    plain = pack(data, tmp_path / "p{shard}", shard_records=300)
    assert numbers(plain) == list(range(1000))
    orders = []
    for i, seed in enumerate((7, 7, 8)):
        report = pack(data, tmp_path / f"{i}-{{shard}}", shard_records=300, shuffle=seed)
        assert report.shuffle == seed
        orders.append(numbers(report))
        assert sorted(orders[-1]) == list(range(1000))
        # Every shard has something of every part.
        assert max(np.abs(np.array(orders[-1][:300]).mean() - 499.5), 0) < 60
    assert orders[0] == orders[1] != orders[2]
    assert left(tmp_path) == []


def test_dealt_out_and_compressed(tmp_path: Path) -> None:
    report = pack(np.arange(10), tmp_path / PATTERN, shards=3, compression="gzip")
    assert [one.records for one in report.outputs] == [4, 3, 3]
    assert numbers(report) == [0, 3, 6, 9, 1, 4, 7, 2, 5, 8]
    assert Reader(report.outputs[0].path).compression == "gzip"


def test_same_source_produces_the_same_files(pets: Path, tmp_path: Path) -> None:
    for name in "ab":
        pack(pets, tmp_path / f"{name}-{{shard}}", shards=2, shuffle=1)
    for shard in "01":
        assert (tmp_path / f"a-{shard}").read_bytes() == (tmp_path / f"b-{shard}").read_bytes()


def test_progress_ends_at_the_end(pets: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    for shuffle in (None, 3):
        seen.clear()
        pack(
            pets, tmp_path / f"{shuffle}{{shard}}", shuffle=shuffle, progress=lambda *done: seen.append(done)
        )
        assert seen == sorted(seen)
        assert seen[-1][0] == seen[-1][1] > 0


def test_nothing_is_overwritten_unless_asked(pets: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_text("mine")
    with pytest.raises(ExistsError, match=r"labels\.json"):
        pack(pets, tmp_path / PATTERN, labels_path=tmp_path / "labels.json")
    assert left(tmp_path) == []
    pack(pets, tmp_path / PATTERN, labels_path=tmp_path / "labels.json", exists="replace")
    assert "dog" in (tmp_path / "labels.json").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "zip"}, "zip"),
        ({"on_bad": "ignore"}, "on_bad"),
        ({"shards": 2, "shard_bytes": 5}, "one of"),
        ({"dtypes": {"a": "int64"}}, "CSV"),
        ({"shuffle": -1}, "seed"),
    ],
)
def test_contradictions(options: dict[str, Any], message: str, pets: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=message):
        pack(pets, tmp_path / PATTERN, **options)
    assert left(tmp_path) == []


def test_other_sources_are_named(tmp_path: Path, pets: Path) -> None:
    (tmp_path / "x.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    with pytest.raises(FormatError, match="an HDF5 file"):
        pack(tmp_path / "x.h5", tmp_path / PATTERN)
    (tmp_path / "x.csv").write_text("a\n1\n")
    with pytest.raises(PlanError, match="one kind at a time"):
        pack([tmp_path / "x.csv", pets], tmp_path / PATTERN)
    with pytest.raises(PlanError, match="folder of images"):
        pack(tmp_path / "x.csv", tmp_path / PATTERN, labels={})
    with pytest.raises(NotFoundError):
        pack(tmp_path / "gone", tmp_path / PATTERN)
    assert left(tmp_path) == []
