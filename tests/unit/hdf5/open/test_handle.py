"""A file that was opened before: HDF5 need not read its mapping again, and what changed is seen."""

from __future__ import annotations

import os

import h5py
import numpy as np
import pytest

from shardkeep.errors import NotFoundError
from shardkeep.hdf5 import open as hopen
from shardkeep.hdf5.locking.file_version import FileVersion
from shardkeep.hdf5.open import handle
from shardkeep.hdf5.open.dataset import Dataset
from shardkeep.hdf5.open.handle import RecentFiles
from shardkeep.hdf5.virtual.layout import find_virtual


@pytest.fixture
def path(tmp_path):
    with h5py.File(tmp_path / "all.h5", "w", libver="latest") as file:
        for name in ("a", "g/b"):
            layout = h5py.VirtualLayout((2, 2), "i4")
            for row in range(2):
                with h5py.File(tmp_path / f"{name[-1]}{row}.h5", "w") as source:
                    source["x"] = np.full((1, 2), row + 1, "i4")
                    layout[row] = h5py.VirtualSource(source["x"])[0]
            file.create_virtual_dataset(name, layout)
            file[name].attrs["unit"] = "m"
    return tmp_path / "all.h5"


@pytest.fixture
def looks(monkeypatch):
    """Return which files were looked through for virtual datasets."""
    seen: list[str] = []

    def find(file_id):
        seen.append(os.path.basename(file_id.name.decode()))
        return find_virtual(file_id)

    monkeypatch.setattr(handle, "find_virtual", find)
    return seen


def test_file_is_searched_for_virtual_datasets_once(path, looks):
    for _ in range(3):
        with hopen(path) as file:
            assert file["a"][:].tolist() == [[1, 1], [2, 2]]
            assert file["g"]["b"][1].tolist() == [2, 2]
    assert looks.count("all.h5") == 1


def test_known_virtual_dataset_has_all_of_h5py(path, looks):
    hopen(path).close()
    with hopen(path) as file:
        a = file["a"]
        assert isinstance(a, h5py.Dataset)
        assert a[1, 0] == 2
        assert (a.shape, a.dtype, len(a), a.is_virtual) == ((2, 2), np.dtype("i4"), 2, True)
        assert dict(a.attrs) == {"unit": "m"}
        assert a == file["/a"]
        assert a.file is file
        assert file["a"].name == "/a"
        assert [source.dset_name for source in file["g/b"].virtual_sources()] == ["/x", "/x"]
        for kept in (file["a"], a):
            file.suspend()
            assert kept[0].tolist() == [1, 1]
            file.suspend()
            assert kept.attrs["unit"] == "m"
        kept = file["g/b"]
    with pytest.raises(Exception, match="is closed"):
        kept[0]
    with pytest.raises(Exception, match="is closed"):
        a[0]
    assert looks.count("all.h5") == 1


@pytest.mark.parametrize("known", [False, True])
def test_reading_a_known_dataset_does_not_open_it(path, monkeypatch, known):
    if not hasattr(Dataset, "_dcpl"):
        pytest.skip("h5py 3.12 opens every dataset")
    if known:
        hopen(path).close()
    with hopen(path) as file:
        with monkeypatch.context() as patch:
            patch.setattr(Dataset, "_resolve", None)
            a, b = file["a"], file["g/b"]
            assert (a.shape, a.dtype, len(a)) == ((2, 2), np.dtype("i4"), 2)
            assert b[1].tolist() == [2, 2]
        file.suspend()
        with h5py.File(path, "r+") as other:
            del other["a"]
            other["a"] = [7.5]
        assert (a.shape, a.dtype, a[0]) == ((1,), np.dtype("f8"), 7.5)
        assert (b.shape, b.dtype) == ((2, 2), np.dtype("i4"))


def test_missing_source_is_an_error_at_every_open(path):
    hopen(path).close()
    os.rename(path.parent / "b1.h5", path.parent / "away.h5")
    for _ in range(2):
        with pytest.raises(NotFoundError, match=r"b1\.h5"):
            hopen(path)
    os.rename(path.parent / "away.h5", path.parent / "b1.h5")
    with hopen(path) as file:
        assert file["g/b"][:].tolist() == [[1, 1], [2, 2]]


def test_changed_file_is_searched_again(path, looks):
    hopen(path).close()
    with h5py.File(path, "r+") as file:
        del file["a"]
        file["a"] = [7, 8]
    with hopen(path) as file:
        assert file["a"][:].tolist() == [7, 8]
        assert file["g/b"][1, 1] == 2
    assert looks.count("all.h5") == 2


def test_a_forked_child_reads_on(path):
    hopen(path).close()
    with hopen(path) as file:
        a = file["a"]
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = 0 if a[1, 1] == 2 and a.shape == (2, 2) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_only_the_files_used_last_are_kept():
    known = RecentFiles()
    version = FileVersion(0, 0, 0, 0)
    first = known.add("0", version)
    assert known.add("0", version) is first
    assert known.get("0", FileVersion(0, 0, 0, 1)) is None
    for number in range(1, 8):
        known.add(str(number), version)
    assert known.get("0", version) is first
    known.add("8", version)
    assert known.get("0", version) is first
    assert known.get("1", version) is None
