"""Attributes and links of a merged file have hashes: what is changed or lost later is found."""

from __future__ import annotations

import re

import h5py
import numpy as np
import pytest

from shardkeep.hdf5 import WorkerFile, merge, verify
from shardkeep.hdf5.storage.attributes import Attributes, attributes_crc, read_attributes
from shardkeep.hdf5.storage.byte_order import read_value
from shardkeep.world import World

BIG = h5py.vlen_dtype(">i4")


def source(path):
    with h5py.File(path, "w") as file:
        file["g/x"] = np.arange(3)
        file["n"] = 7
        file["list"] = np.zeros((0, 2))
        file.attrs["model"] = "m"
        file["g"].attrs["of group"] = np.float16(1.5)
        file["g/x"].attrs["unit"] = "mm"
        file["g/x"].attrs["many"] = np.arange(5, dtype=">i2")
        file["n"].attrs["empty"] = h5py.Empty("f4")
        file["t"] = np.dtype("i4")
        file["t"].attrs["of type"] = True
        file["soft"] = h5py.SoftLink("/g/x")
        file["hard"] = file["g/x"]
    return path


@pytest.fixture
def merged(tmp_path):
    merge([source(tmp_path / "0.h5"), source(tmp_path / "1.h5")], tmp_path / "all.h5")
    assert verify(tmp_path / "all.h5").findings == ()
    return tmp_path / "all.h5"


def _relink(file, name, link):
    del file[name]
    file[name] = link


CHANGES = {
    "a value": (lambda f: f["g/x"].attrs.modify("unit", "cm"), "attributes of 'g/x'"),
    "a type": (lambda f: f["g/x"].attrs.create("many", np.arange(5), dtype="i2"), "attributes of 'g/x'"),
    "a shape": (lambda f: f["g/x"].attrs.create("many", np.arange(5)[None], dtype=">i2"), "of 'g/x'"),
    "one is gone": (lambda f: f["n"].attrs.pop("empty"), "attributes of 'n'"),
    "of a group": (lambda f: f["g"].attrs.pop("of group"), "attributes of 'g'"),
    "of the file": (lambda f: f.attrs.modify("model", "n"), "attributes of '/'"),
    "one more": (lambda f: f["list"].attrs.create("new", 1), "attributes of 'list'"),
    "of a type": (lambda f: f["t"].attrs.pop("of type"), "attributes of 't'"),
    "of the provenance": (lambda f: f["_provenance"].attrs.modify("root", "/"), "of '_provenance'"),
    "a soft link": (lambda f: _relink(f, "soft", h5py.SoftLink("/n")), "the name 'soft'.* leads elsewhere"),
    "a hard link": (lambda f: _relink(f, "hard", np.arange(6)), "the name 'hard'.* is not there"),
    "a link is gone": (lambda f: f.pop("soft"), "the name 'soft'.* is not there"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_later_change_is_found(merged, change):
    make, said = CHANGES[change]
    with h5py.File(merged, "a") as file:
        make(file)
    found = verify(merged)
    assert len(found.findings) == 1
    assert re.search(said, found.findings[0])


@pytest.mark.parametrize("mode", ["copy", "virtual"])
def test_values_and_attributes_of_ranks_have_hashes(tmp_path, mode):
    for rank in range(2):
        with WorkerFile(tmp_path / "run", World(rank=rank, size=2)) as out:
            out.append("x", [rank])
            out.put("same", [1, 2])
            out.put("own", rank)
            out.set_attribute("model", "m")
            out.commit(step=1)
    merge(tmp_path / "run", tmp_path / "all.h5", mode=mode)
    assert verify(tmp_path / "all.h5").findings == ()
    with h5py.File(tmp_path / "all.h5", "a") as file:
        del file["own"].attrs["_ranks"]
        file["same"].attrs["_put"] = False
        del file.attrs["model"]
    wrong = {f"the attributes of {name!r}: the file has other attributes" for name in ("own", "same", "/")}
    assert set(verify(tmp_path / "all.h5").findings) == wrong


def test_a_file_merged_before_attributes_had_hashes_is_still_read(merged):
    with h5py.File(merged, "a") as file:
        table = file["_checks"][:]
        del file["_checks"]
        file["_checks"] = table[~np.isin(table["way"], [b"attributes", b"link"])]
        del file.attrs["model"]
    assert verify(merged).findings == ()


def test_numbers_of_variable_length_keep_their_byte_order(tmp_path):
    pair = np.dtype([("n", "i4"), ("v", BIG)])
    for number in range(2):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file.create_dataset("scalar", (), BIG)[()] = np.array([1, 2], ">i4")
            row = np.zeros(1, pair)
            row["v"][0] = np.array([5, 6], ">i4")
            file.create_dataset("pair", (1,), pair)[:] = row
            values = np.empty(2, object)
            values[:] = [np.array([1, 2, 3], ">i4"), np.array([4], ">i4")]
            file["pair"].attrs.create("a", values, dtype=BIG)
    merge([tmp_path / "0.h5", tmp_path / "1.h5"], tmp_path / "all.h5")
    assert verify(tmp_path / "all.h5").findings == ()
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["scalar"].shape == ()
        assert read_value(file["scalar"]).tolist() == [1, 2]
        assert [row["v"].tolist() for row in read_value(file["pair"])] == [[5, 6], [5, 6]]
        value, dtype = read_attributes(file["pair"])[0].values["a"]
        assert [one.tolist() for one in value] == [[1, 2, 3], [4]]
        assert h5py.check_vlen_dtype(dtype) == np.dtype(">i4")


def test_the_hash_differs_for_types_with_equal_bytes():
    pairs = [
        (np.int32(1), np.dtype("<i4")),
        (np.uint32(1), np.dtype("<u4")),
        (np.int32([1]), np.dtype("<i4")),
        (np.int32(1), h5py.enum_dtype({"a": 1}, "<i4")),
        (np.int32(1), h5py.enum_dtype({"b": 1}, "<i4")),
        ("a", h5py.string_dtype("utf-8")),
        ("a", h5py.string_dtype("ascii")),
        (h5py.Empty("<i4"), np.dtype("<i4")),
    ]
    assert len({attributes_crc(Attributes({"a": pair})) for pair in pairs}) == len(pairs)
