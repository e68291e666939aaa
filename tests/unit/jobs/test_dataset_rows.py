"""Tests of the dataset rows.

Covers `shardkeep.hdf5.sources.source`.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from shardkeep.errors import CorruptDataError, SchemaError
from shardkeep.hdf5.sources.source import open_source
from shardkeep.jobs.dataset_rows import pick_dataset, rows_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(10)
        file["deep/er/y"] = np.zeros((3, 2))
        file["z"] = h5py.Empty("f4")
        file["elsewhere"] = h5py.ExternalLink("gone.h5", "/q")
    return path


def test_pick(path: Path) -> None:
    with open_source(str(path)) as source:
        assert pick_dataset(source, "deep/er/y").shape == (3, 2)
        assert pick_dataset(source, "/x").shape == (10,)
        with pytest.raises(SchemaError, match="one of its datasets as dataset=: deep/er/y, x, z"):
            pick_dataset(source, None)
        with pytest.raises(SchemaError, match="no dataset 'q'; it has deep/er/y, x, z"):
            pick_dataset(source, "q")
        with pytest.raises(SchemaError, match="no dataset 'deep'"):
            pick_dataset(source, "deep")


def test_pick_from_nothing(tmp_path: Path) -> None:
    h5py.File(tmp_path / "none.h5", "w").close()
    with open_source(str(tmp_path / "none.h5")) as source, pytest.raises(SchemaError, match="no dataset"):
        pick_dataset(source, None)


@pytest.mark.parametrize(
    ("skip", "limit", "expected"),
    [(0, None, range(10)), (3, None, range(3, 10)), (3, 2, (3, 4)), (0, 0, ()), (12, 5, ()), (8, 99, (8, 9))],
)
def test_rows(path: Path, skip: int, limit: int | None, expected: range) -> None:
    with h5py.File(path) as file:
        rows = list(rows_of(file["x"], skip=skip, limit=limit))
    assert rows == [(number, number) for number in expected]


def test_rows_of_more_than_one_block(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        wide = file.create_dataset("wide", data=np.arange(30 * 50_000).reshape(30, 50_000))
        rows = list(rows_of(wide, skip=1))
    assert [number for number, _ in rows] == list(range(1, 30))
    assert all(value[0] == number * 50_000 for number, value in rows)


def test_rows_of_special_shapes(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["scalar"] = 3
        file["null"] = h5py.Empty("f4")
        file["none"] = np.zeros((0, 4))
        file["text"] = ["a", "é"]
        file["flat"] = np.zeros((2, 0))
        assert list(rows_of(file["scalar"])) == [(0, 3)]
        assert list(rows_of(file["scalar"], skip=1)) == []
        assert list(rows_of(file["null"])) == list(rows_of(file["none"])) == []
        assert [value for _, value in rows_of(file["text"])] == ["a", "é"]
        assert len(list(rows_of(file["flat"]))) == 2


def test_damaged_chunk(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        chunk = file.create_dataset("x", data=np.arange(100), chunks=(100,), compression="gzip")
        where = chunk.id.get_chunk_info(0).byte_offset
    content = bytearray(path.read_bytes())
    content[where : where + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(content)
    with (
        h5py.File(path) as file,
        pytest.raises(CorruptDataError, match=r"rows of .x. in .*a.h5. cannot be read .*restore"),
    ):
        list(rows_of(file["x"]))
