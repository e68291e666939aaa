from __future__ import annotations

import struct
from pathlib import Path

import h5py
import numpy as np
import pytest

import shardkeep as sk
from shardkeep.errors import CorruptDataError, SchemaError
from shardkeep.hdf5.read_errors import is_of_hdf5, reading


def test_errors_of_h5py_become_errors_of_the_tree(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "f.h5", "w") as file:
        for call in (
            lambda: file["nothing"],
            lambda: file.create_dataset("x", data=object()),
            lambda: file["\ud800"],
            lambda: h5py.h5d.open(file.id, b"nothing"),
        ):
            with (
                pytest.raises(CorruptDataError, match=r"rows of 'x' in 'p' cannot be read \(.+restore"),
                reading("p", "x"),
            ):
                call()  # fmt: skip


@pytest.mark.parametrize("error", [OSError("EIO"), MemoryError("2 PiB")])
def test_system_errors_become_errors_of_the_tree(error: Exception) -> None:
    with pytest.raises(CorruptDataError, match="HDF5 cannot read 'p'") as found, reading("p"):
        raise error
    assert found.value.path == "p"
    assert found.value.__cause__ is error


@pytest.mark.parametrize(
    "error", [TypeError(), KeyError("k"), PermissionError(13, "no"), SchemaError("s"), KeyboardInterrupt()]
)
def test_errors_of_other_code_are_unchanged(error: BaseException) -> None:
    with pytest.raises(type(error)) as found, reading("p"):
        raise error
    assert found.value is error
    assert not is_of_hdf5(error)


def test_a_dataset_that_claims_more_than_memory_holds(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (3, 1 << 45), "u1", chunks=(1, 4096))
    with pytest.raises(CorruptDataError, match=r"'x'.*more than memory holds"):
        list(sk.cat(path))


def test_damage_of_an_attribute_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3)
        file["x"].attrs["unit"] = "m"
    data = bytearray(path.read_bytes())
    heap = data.index(b"GCOL")
    data[heap + 16 : heap + 18] = struct.pack("<H", 9)  # the object has another number
    path.write_bytes(data)
    with pytest.raises(sk.ShardkeepError) as error:
        sk.hdf5.merge([path], tmp_path / "out.h5")
    assert error.value.path == str(path)
