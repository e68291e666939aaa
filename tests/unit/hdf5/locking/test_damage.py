from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

import shardkeep as sk
from shardkeep._core import hdf5_damage
from shardkeep.errors import CorruptDataError
from shardkeep.hdf5.locking.damage import refuse_damage
from tests.hdf5_makers import MAKERS, make


def found(path: Path, *, rows: bool = True, most: int = 1 << 20) -> tuple[str, int | None] | None:
    """Return the damage that is found in a file that can be read."""
    is_read, damage = hdf5_damage(str(path), lock=True, most_structures=most, rows=rows)
    assert is_read
    return damage


def free_part(data: bytes, heap: int) -> int:
    """Return where the free part of a global heap is."""
    at = heap + 16
    while data[at : at + 2] != b"\0\0":
        (size,) = struct.unpack("<Q", data[at + 8 : at + 16])
        at += 16 + (size + 7) // 8 * 8
    return at


def overwritten(path: Path, at: int, value: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + len(value)] = value
    path.write_bytes(data)


@pytest.mark.parametrize("kind", MAKERS)
def test_undamaged_files_pass(kind: str, tmp_path: Path) -> None:
    assert found(make(kind, tmp_path / "f")) is None


@pytest.mark.parametrize("libver", ["earliest", "v108", "v110", "latest"])
@pytest.mark.parametrize("userblock", [0, 512, 2048])
def test_undamaged_layouts_of_all_formats_pass(libver: str, userblock: int, tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    chance = np.random.default_rng(1)
    with h5py.File(path, "w", libver=libver, userblock_size=userblock, track_order=True) as file:
        for number in range(400):  # several nodes of every tree, several rows of every heap
            group = file.require_group(f"g{number % 3}")
            dataset = group.create_dataset(f"d{number}", data=chance.random(number % 7))
            dataset.attrs["text"] = f"text {number}" * (number % 40)
        for number in range(200):
            file.attrs[f"attribute {number}"] = [f"one {number}", "two"]
        file.create_dataset("tree", (4000,), "i2", maxshape=(None,), chunks=(1,))[:] = 3
        file.create_dataset("both", (60, 50), "i2", maxshape=(None, None), chunks=(1, 1), fletcher32=True)[
            :
        ] = 3
        file["strings"] = [f"row {number}" * (number % 90) for number in range(2000)]
        for options in ({"compression": "gzip"}, {"shuffle": True}, {"shuffle": True, "compression": 9}):
            name = "strings " + " ".join(options)
            kind = file["strings"].dtype
            file.create_dataset(name, data=file["strings"][:], dtype=kind, chunks=(300,), **options)
        ragged = file.create_dataset("ragged", (3,), h5py.vlen_dtype("i8"))
        ragged[:] = [np.arange(number) for number in range(3)]
        file["region"] = np.array([file["tree"].regionref[:3]], h5py.regionref_dtype)
        del file["g1/d1"], file["strings"]
    assert found(path) is None


def _ragged(file: h5py.File) -> None:
    values = np.empty(1, object)
    values[0] = np.arange(3, dtype="i4")
    file.attrs.create("ragged", values, dtype=h5py.vlen_dtype("i4"))


def _pairs(file: h5py.File) -> None:
    file.attrs["pairs"] = np.array([(1, "x")], [("n", "i4"), ("t", h5py.string_dtype())])


# What points to a global heap, and whether from rows.
POINTERS: dict[str, tuple[Callable[[h5py.File], object], bool]] = {
    "attribute": (lambda file: file.attrs.update(unit="m"), False),
    "attributes in a heap": (
        lambda file: file.require_group("a/b").attrs.update({f"n{i}": f"text {i}" for i in range(20)}),
        False,
    ),
    "links in a heap": (
        lambda file: [file.create_group(f"g/{i}").attrs.update(t="x") for i in range(30)],
        False,
    ),
    "compound": (_pairs, False),
    "ragged": (_ragged, False),
    "contiguous": (lambda file: file.create_dataset("s", data=["one", "two"]), True),
    "chunks": (lambda file: file.create_dataset("s", data=["one"] * 50, chunks=(7,)), True),
    "compressed": (
        lambda file: file.create_dataset("s", data=["one"] * 50, compression=1, chunks=(7,)),
        True,
    ),
    "shuffled": (
        lambda file: file.create_dataset("s", data=["one"] * 50, compression=1, shuffle=True, chunks=(7,)),
        True,
    ),
}


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("what", POINTERS)
def test_a_free_part_of_size_0_in_a_global_heap(libver: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    write, rows = POINTERS[what]
    with h5py.File(path, "w", libver=libver) as file:
        write(file)
    data = path.read_bytes()
    heap = data.index(b"GCOL")
    overwritten(path, free_part(data, heap) + 8, bytes(8))
    assert found(path, rows=rows) == ("a free part shorter than its head", heap)
    if rows:
        assert found(path, rows=False) is None
    with pytest.raises(CorruptDataError, match=f"damaged at byte {heap:,}") as error:
        list(sk.cat(path, dataset="s")) if rows else sk.info(path)
    assert (error.value.path, error.value.offset_bytes) == (str(path), heap)
    if rows:
        with sk.hdf5.open(path) as file, pytest.raises(CorruptDataError, match="free part"):
            file["s"][0]
    else:
        with pytest.raises(CorruptDataError, match="free part"):
            sk.hdf5.open(path)


def test_circle_in_a_tree_is_found(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (200,), "i2", maxshape=(None,), chunks=(1,))[:] = 3
    data = path.read_bytes()
    # A node of chunks above others; its first child comes after two neighbours and a key.
    root = data.index(b"TREE\1\1")
    overwritten(path, root + 24 + 24, struct.pack("<Q", root))
    assert found(path) == ("a tree with another height", root)


def test_circle_of_free_blocks_in_a_name_heap_is_found(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file["x"] = 1
    heap = path.read_bytes().index(b"HEAP")
    (free,) = struct.unpack("<Q", path.read_bytes()[heap + 16 : heap + 24])
    (names,) = struct.unpack("<Q", path.read_bytes()[heap + 24 : heap + 32])
    overwritten(path, names + free, struct.pack("<Q", free))
    assert found(path) == ("free parts in a circle", heap)


def test_header_continued_in_itself_is_found(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", data=1)
        for number in range(6):
            dataset.attrs[f"attribute {number}"] = number
        address = h5py.h5o.get_info(dataset.id).addr
    data = path.read_bytes()
    at = address + 16
    while data[at] != 0x10:
        at += 8 + struct.unpack("<H", data[at + 2 : at + 4])[0]
    overwritten(path, at + 8, struct.pack("<Q", address))
    assert found(path) in (("a header that continues in a circle", address),)


def test_files_that_hdf5_must_report_pass(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    refuse_damage(str(path))
    path.write_bytes(b"not HDF5" * 300)
    refuse_damage(str(path))
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(1000)
        is_read, damage = hdf5_damage(str(path), lock=True, most_structures=9, rows=False)
        assert (is_read, damage) == (False, None)  # its writer has the lock
    path.write_bytes(path.read_bytes()[:-100])
    refuse_damage(str(path))
    os.mkfifo(tmp_path / "pipe")
    refuse_damage(str(tmp_path / "pipe"))


def test_each_file_version_is_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file["x"] = 1
    calls = []

    def counted(path: str, **options: object) -> tuple[bool, None]:
        calls.append(options["rows"])
        return True, None

    monkeypatch.setattr("shardkeep.hdf5.locking.damage.hdf5_damage", counted)
    for rows in (False, False, True, True, False):
        refuse_damage(str(path), rows=rows)
    assert calls == [False, True]
    os.utime(path)
    refuse_damage(str(path))
    assert calls == [False, True, False]


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_damaged_header_of_a_tree_of_chunks_is_found(compression: str | None, tmp_path: Path) -> None:
    """HDF5 2.0 crashes on most of them."""
    path = tmp_path / "f.h5"
    with h5py.File(path, "w", libver="latest") as file:
        options = {"maxshape": (None, None), "chunks": (3, 2), "compression": compression}
        file.create_dataset("x", data=np.ones((10, 4)), **options)
    assert found(path) is None
    whole = path.read_bytes()
    start = whole.index(b"BTHD")
    for at in range(start, start + 38):
        path.write_bytes(whole)
        overwritten(path, at, bytes([whole[at] ^ 2]))
        what, offset = found(path) or ("whole", None)
        assert (what in ("a wrong checksum", "not a tree of chunks"), offset) == (True, start), at


# A change of a datatype: its first bytes in a file, the place and the new value of a byte, what is found.
TYPES = {
    "bits of a float": ("f4", b"\x11\x20\x1f\0\4\0\0\0", 9, 95, "a number of more bits than its bytes have"),
    "bits of an integer": (
        "i4",
        b"\x10\x08\0\0\4\0\0\0",
        10,
        33,
        "a number of more bits than its bytes have",
    ),
    "kind of variable length": (
        h5py.string_dtype(),
        b"\x19\1\1\0\x10\0\0\0",
        1,
        255,
        "a type of variable length that is not text or a sequence",
    ),
}


@pytest.mark.parametrize("place", ["dataset", "attribute", "named"])
@pytest.mark.parametrize("change", TYPES)
def test_a_type_whose_values_hdf5_would_write_beyond_its_bytes_is_found(
    change: str, place: str, tmp_path: Path
) -> None:
    path = tmp_path / "f.h5"
    dtype, head, at, value, what = TYPES[change]
    with h5py.File(path, "w") as file:
        if place == "dataset":
            owner = file.create_dataset("x", (3,), dtype)
        elif place == "attribute":
            owner = file.create_group("x")
            owner.attrs.create("x", "1", dtype=dtype)
        else:
            file["x"] = np.dtype(dtype)
            owner = file["x"]
        address = h5py.h5o.get_info(owner.id).addr
    assert found(path) is None
    overwritten(path, path.read_bytes().rindex(head) + at, bytes([value]))
    assert found(path, rows=False) == (what, address)
