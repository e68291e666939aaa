from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardkeep.errors import (
    FormatError,
    SchemaError,
    TruncatedFileError,
)
from shardkeep.jobs import pack
from tests.unit.jobs.packing import PATTERN, examples, left


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy(order: Any, tmp_path: Path) -> None:
    data = np.asarray(np.arange(3000 * 6).reshape(3000, 2, 3), order=order)
    np.save(tmp_path / "x.npy", data)
    found = examples(pack(tmp_path / "x.npy", tmp_path / PATTERN))
    assert [one["data"] for one in found] == data.reshape(3000, 6).tolist()


def test_npz_and_arrays_in_memory(tmp_path: Path) -> None:
    arrays = {
        "x": np.linspace(0, 1, 8).reshape(4, 2),
        "y": np.array([True, False, True, True]),
        "name": np.array(["a", "bc", "", "é"]),
        "u": np.arange(4, dtype="u1"),
    }
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    for i, source in enumerate([tmp_path / "x.npz", arrays]):
        report = pack(source, tmp_path / f"{i}-{{shard}}")
        assert report.features == {"x": "float32", "y": "int64", "name": "bytes", "u": "int64"}
        assert "float64 is stored as float32" in report.notes[0]
        found = examples(report)
        assert [one["y"] for one in found] == [[1], [0], [1], [1]]
        assert [one["name"] for one in found] == [[b"a"], [b"bc"], [b""], ["é".encode()]]
        np.testing.assert_array_equal([one["x"] for one in found], arrays["x"].astype("f4"))


def test_fields_of_a_structured_array(tmp_path: Path) -> None:
    data = np.array([(1, 0.5, (1, 2)), (2, 1.5, (3, 4))], [("a", "i4"), ("b", "f4"), ("c", "i8", (2,))])
    np.save(tmp_path / "x.npy", data)
    for i, source in enumerate([tmp_path / "x.npy", data]):
        found = examples(pack(source, tmp_path / f"{i}{{shard}}"))
        assert found == [{"a": [1], "b": [0.5], "c": [1, 2]}, {"a": [2], "b": [1.5], "c": [3, 4]}]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": np.zeros(3), "b": np.zeros(4)}, "must have the same length: 'a' 3, 'b' 4"),
        ({"a": np.zeros(3, complex)}, "complex128"),
        ({"a": np.array([object()])}, "object"),
        ({"a": np.array(3)}, "single value"),
        ({}, "no array"),
    ],
)
def test_arrays_that_do_not_fit(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=message):
        pack(arrays, tmp_path / PATTERN)
    assert left(tmp_path) == []


def test_damaged_numpy_files(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(1000))
    content = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(content[:-8])
    with pytest.raises(TruncatedFileError, match="8,120 of 8,128"):
        pack(tmp_path / "x.npy", tmp_path / PATTERN)
    (tmp_path / "x.npy").write_bytes(content[:70])
    with pytest.raises(FormatError, match="NumPy cannot read it"):
        pack(tmp_path / "x.npy", tmp_path / PATTERN)
    np.save(tmp_path / "o.npy", np.array([{}], object))
    with pytest.raises(FormatError, match="pickles"):
        pack(tmp_path / "o.npy", tmp_path / PATTERN)
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 and nothing")
    with pytest.raises(FormatError, match="NumPy cannot read it"):
        pack(tmp_path / "x.npz", tmp_path / PATTERN)
    assert left(tmp_path) == []
