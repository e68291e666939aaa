from __future__ import annotations

import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest

from shardkeep.errors import CorruptDataError
from shardkeep.hdf5 import merge, verify
from shardkeep.hdf5 import open as open_hdf5
from shardkeep.jobs import info

NAMES = ["..", "g/..", "g/a/../b", "x", "..."]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for number, name in enumerate(NAMES):
            file.create_dataset(name, data=np.arange(number + 1))
    return tmp_path / "x.h5"


@pytest.mark.parametrize("name", [*NAMES, "/..", "./..", "g//..", "g/./a/../b", "//x"])
def test_two_dots_are_an_ordinary_name(name: str, path: Path) -> None:
    with h5py.File(path) as file:
        shape = file[name].shape
    with open_hdf5(path) as file:
        item = file[name]
        assert item.shape == file.get(name).shape == shape
        again = pickle.loads(pickle.dumps(item))
        assert (again.name, again.shape) == (item.name, shape)
        assert file[item.name] == item
    with open_hdf5(path) as file:
        assert file["g"][".."].parent.name == "/g"
        assert file["g/a"][".."]["b"].shape == (3,)


@pytest.mark.parametrize("mode", ["copy", "virtual"])
def test_names_of_dots_are_merged(mode: str, path: Path, tmp_path: Path) -> None:
    merge(path, tmp_path / "all.h5", mode=mode)  # type: ignore[call-overload]
    assert verify(tmp_path / "all.h5").ok
    with open_hdf5(tmp_path / "all.h5") as file:
        for number, name in enumerate(NAMES):
            assert pickle.loads(pickle.dumps(file[name]))[:].tolist() == list(range(number + 1))


@pytest.mark.parametrize("name", ["a/b", "a/", "/ab"])
def test_a_damaged_name_that_is_a_path_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    whole = name.replace("/", "X")
    with h5py.File(path, "w") as file:
        file[whole], file["a/b"], file["ab"] = 1, [2], [3]
    content = path.read_bytes()
    assert content.count(whole.encode() + b"\0") == 1
    path.write_bytes(content.replace(whole.encode() + b"\0", name.encode() + b"\0"))
    for refused in (lambda: merge(path, tmp_path / "all.h5"), lambda: info(path)):
        with pytest.raises(CorruptDataError, match=f"has the name '{name}'") as caught:
            refused()
        assert caught.value.path == str(path)
    (finding,) = verify(path).findings
    assert f"has the name '{name}'" in finding
    with open_hdf5(path) as file, pytest.raises(CorruptDataError, match=f"has the name '{name}'"):
        list(file)
