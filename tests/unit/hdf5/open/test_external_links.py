"""Objects to which external links lead.

Covers `shardkeep.hdf5.open.file`.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest

import shardkeep as sk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    with h5py.File(tmp_path / "sub/other.h5", "w") as file:
        file["g/x"] = np.arange(3)
        file["g"].attrs["unit"] = "m"
        layout = h5py.VirtualLayout((2,), "i8")
        layout[:] = h5py.VirtualSource("gone.h5", "x", (2,))
        file.create_virtual_dataset("virtual", layout)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["in"] = [1]
        file["x"] = h5py.ExternalLink("sub/other.h5", "/g/x")
        file["g"] = h5py.ExternalLink("sub/other.h5", "/g")
        file["self"] = h5py.ExternalLink("a.h5", "/in")
        file["soft"] = h5py.SoftLink("/in")
        file["virtual"] = h5py.ExternalLink("sub/other.h5", "/virtual")
    return tmp_path / "a.h5"


@pytest.mark.parametrize("name", ["in", "x", "g", "g/x", "self", "soft"])
def test_name_file_and_parent_are_those_of_h5py(path: Path, name: str) -> None:
    with h5py.File(path) as plain, sk.hdf5.open(path) as file:
        mine, theirs = file[name], plain[name]
        assert mine.name == theirs.name
        assert os.path.samefile(mine.file.filename, theirs.file.filename)
        assert mine.parent.name == theirs.parent.name
        assert os.path.samefile(mine.parent.file.filename, theirs.parent.file.filename)


def test_linked_objects_cross_processes_and_outlive_the_file(path: Path) -> None:
    with sk.hdf5.open(path) as file:
        rows = file["x"]
        assert file["g"].file is rows.file
        assert file["g"].attrs["unit"] == "m"
        again = pickle.loads(pickle.dumps(rows))
        assert (again.name, again[:].tolist()) == ("/g/x", [0, 1, 2])
    assert rows[:].tolist() == [0, 1, 2]


def test_sources_of_a_linked_virtual_dataset_are_checked(path: Path) -> None:
    with sk.hdf5.open(path) as file, pytest.raises(sk.NotFoundError, match=r"gone\.h5"):
        file["virtual"][:]


def test_a_writer_follows_links_as_h5py_does(path: Path) -> None:
    with sk.hdf5.open(path, "r+") as file:
        file["x"][0] = 7
        assert file["x"].name == "/g/x"
        assert os.path.samefile(file["x"].file.filename, path.parent / "sub/other.h5")
    with h5py.File(path.parent / "sub/other.h5") as other:
        assert other["g/x"][0] == 7
