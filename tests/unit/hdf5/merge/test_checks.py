import os

import h5py
import numpy as np
import pytest

from shardkeep.errors import CorruptDataError
from shardkeep.hdf5 import merge
from shardkeep.hdf5.merge import checks as checks_module
from shardkeep.hdf5.merge.checks import failed_checks, read_checks
from shardkeep.hdf5.sources.raw_file import RawFile
from shardkeep.hdf5.storage.chunk_table import read_chunk_table


@pytest.fixture
def merged(tmp_path):
    """A merged file of two datasets in chunks, six checks each."""
    paths = [str(tmp_path / f"{number}.h5") for number in range(6)]
    for number, path in enumerate(paths):
        with h5py.File(path, "w") as file:
            for name in "xy":
                rows = np.random.default_rng(number).random((8, 100))
                file.create_dataset(name, data=rows, chunks=(4, 100), compression="gzip")
    merge(paths, tmp_path / "all.h5")
    return str(tmp_path / "all.h5")


def outcome(path, size_bytes=None):
    """Return what each check of chunks found, and how many could be answered."""
    found = []
    with h5py.File(path) as file, open(path, "rb") as opened:
        checks = [check for check in read_checks(file, path) if check.kind == "chunks"]
        raw = RawFile(opened.fileno(), path, size_bytes or os.path.getsize(path))
        try:
            for check, wrong in failed_checks(file, raw, checks):
                found.append((check.dataset, check.first_row, wrong))
        except CorruptDataError as error:
            found.append(type(error))
    return found


def addresses(path, name):
    with h5py.File(path) as file:
        return read_chunk_table(file[name].id).addresses.tolist()


@pytest.mark.parametrize("at_once", [1, 5000, 1 << 26])
def test_each_check_is_answered_separately(merged, monkeypatch, at_once):
    monkeypatch.setattr(checks_module, "_AT_ONCE_BYTES", at_once)
    expected = [(name, row, None) for row in range(0, 48, 8) for name in "xy"]
    assert sorted(outcome(merged)) == sorted(expected)
    with open(merged, "r+b") as file:
        file.seek(addresses(merged, "x")[5] + 40)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    wrong = [one for one in outcome(merged) if one[2] is not None]
    assert wrong == [("x", 16, "has other chunks")]


def test_checks_before_an_unreadable_chunk_are_answered(merged):
    """The second half of the file is beyond the end that RawFile was passed."""
    places = sorted(addresses(merged, "x") + addresses(merged, "y"))
    found = outcome(merged, size_bytes=places[len(places) // 2])
    assert found[-1] is CorruptDataError
    assert 0 < len(found) < 12
    assert all(wrong is None for _, _, wrong in found[:-1])
