from __future__ import annotations

import struct
from pathlib import Path

import h5py
import numpy as np
import pytest

import shardkeep as sk
from shardkeep.errors import CorruptDataError, MissingExtraError, SchemaError
from shardkeep.hdf5.read_errors import is_of_hdf5, reading


def test_errors_of_h5py_become_errors_of_the_tree(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "f.h5", "w") as file:
        for call in (lambda: file["nothing"], lambda: h5py.h5d.open(file.id, b"nothing")):
            with (
                pytest.raises(CorruptDataError, match=r"rows of 'x' in 'p' cannot be read \(.+restore"),
                reading("p", "x"),
            ):
                call()  # fmt: skip


def test_what_h5py_does_not_support_is_not_called_damage(tmp_path: Path) -> None:
    kind = h5py.h5t.create(h5py.h5t.COMPOUND, 4)
    kind.insert(b"\xe9t\xe9", 0, h5py.h5t.STD_I32LE)
    odd = h5py.h5t.STD_I32LE.copy()
    odd.set_precision(24)
    odd.set_size(3)
    with h5py.File(tmp_path / "f.h5", "w") as file:
        bits = h5py.h5d.create(file.id, b"x", h5py.h5t.STD_B8BE, h5py.h5s.create_simple((2,)))
        bits.write(h5py.h5s.ALL, h5py.h5s.ALL, np.zeros(2, "V1"), h5py.h5t.STD_B8BE)
        for call in (
            lambda: h5py.h5t.UNIX_D32LE.dtype,
            lambda: kind.dtype,
            lambda: odd.dtype,
            lambda: h5py.Dataset(bits)[:],
            lambda: file["\ud800"],
        ):
            with (
                pytest.raises(
                    SchemaError, match=r"rows of 'x' in 'p' cannot be read here, .+ leave it out"
                ) as found,
                reading("p", "x"),
            ):
                call()  # fmt: skip
            assert found.value.exit_code == 2


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


@pytest.mark.parametrize(
    ("version", "kind"), [((1, 14, 6), MissingExtraError), ((2, 0, 0), CorruptDataError)]
)
def test_scale_offset_at_full_width_needs_a_later_hdf5(
    version: tuple[int, ...], kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(h5py.version, "hdf5_version_tuple", version)
    with pytest.raises(kind, match="rows of 'x' in 'p' cannot be read"), reading("p", "x"):
        raise OSError("Can't synchronously read data (minimum number of bits exceeds size of type)")
