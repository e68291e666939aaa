from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

import shardkeep as sk
from shardkeep.hdf5.storage.matlab import empty_shape


def write(path: Path, dimensions: list[int], *, flag: int = 1) -> Path:
    with h5py.File(path, "w") as file:
        file["x"] = np.array(dimensions, "u8")
        file["x"].attrs["MATLAB_class"] = np.bytes_(b"double")
        file["x"].attrs["MATLAB_empty"] = np.uint8(flag)
        file["y"] = [[1.0], [2.0]]
    return path


def test_the_shape_of_an_empty_array(tmp_path: Path) -> None:
    with h5py.File(write(tmp_path / "a.mat", [0, 3])) as file:
        assert empty_shape(file["x"].id) == (3, 0)
        assert empty_shape(file["y"].id) is None
    with h5py.File(write(tmp_path / "b.mat", [0, 3], flag=0)) as file:
        assert empty_shape(file["x"].id) is None


def test_an_empty_array_has_no_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mat", [0, 3])
    assert list(sk.cat(path, dataset="x")) == []
    assert [one.shape for one in sk.info(path).datasets] == [(3, 0), (2, 1)]


def test_dimensions_are_not_merged_as_rows(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{name}.mat", [0, 3]) for name in "abc"]
    assert sk.hdf5.merge(paths, tmp_path / "m.h5").rows == {"y": 6}
    with h5py.File(tmp_path / "m.h5") as file:
        assert file["x"][:].tolist() == [0, 3]
        assert file["x"].attrs["MATLAB_empty"] == 1
        assert empty_shape(file["x"].id) == (3, 0)
    assert sk.hdf5.verify(tmp_path / "m.h5").ok
    write(tmp_path / "b.mat", [0, 4])
    with pytest.raises(sk.SchemaError, match=r"'x' differs .* no row axis"):
        sk.hdf5.merge(paths, tmp_path / "n.h5")
