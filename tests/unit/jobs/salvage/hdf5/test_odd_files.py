"""Odd HDF5 files: the verdict of `verify`, and the rows that a repair keeps and loses.

Covers `shardkeep.jobs.salvage.hdf5.salvage`.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import shardkeep as sk
from shardkeep._core import lookup3
from shardkeep.jobs.salvage.hdf5.salvage import salvage_hdf5

_WORDS = [f"word {number}" for number in range(60)]
_ROWS = {"/packed": 1000, "/plain": 4000, "/words": 60, "/group/inner": 30}
_ALL = sum(_ROWS.values())

_Damage = Callable[[bytearray], bytes | bytearray]


def _write(file: h5py.File) -> None:
    rows = np.random.default_rng(2).integers(0, 1 << 40, (1000, 4))
    file.create_dataset("packed", data=rows, chunks=(100, 4), compression="gzip")
    file["words"] = _WORDS
    file["group/inner"] = np.arange(30)
    file["plain"] = np.arange(4000.0)


def _place(data: bytes, name: str, chunk: int | None = None) -> tuple[int, int]:
    """Return offset and size of a chunk, of contiguous rows, or (with chunk -1) of an object header."""
    with h5py.File(io.BytesIO(bytes(data)), "r") as file:
        item = file[name].id
        if chunk == -1:
            return file.userblock_size + h5py.h5o.get_info(item).addr, 0
        if chunk is None:
            return item.get_offset(), item.get_storage_size()
        info = item.get_chunk_info(chunk)
        return info.byte_offset, info.size


def _superblock(**fields: int) -> _Damage:
    """Return a change of a superblock of version 3 with a right checksum."""

    def change(data: bytearray) -> bytearray:
        if "flags" in fields:
            data[11] = fields["flags"]
        if "end" in fields:
            data[28:36] = fields["end"].to_bytes(8, "little")
        data[44:48] = lookup3(bytes(data[:44])).to_bytes(4, "little")
        return data

    return change


def _zero(start: int, size: int) -> _Damage:
    def change(data: bytearray) -> bytearray:
        data[start : start + size] = bytes(size)
        return data

    return change


def _hole(data: bytearray) -> bytearray:
    offset, size = _place(data, "packed", 4)
    return bytearray(_zero(offset + 10, size - 20)(data))


def _cut_in_rows(data: bytearray) -> bytearray:
    offset, _ = _place(data, "plain")
    return data[: offset + 8 * 1500 + 3]


def _cut_at_a_block(data: bytearray) -> bytearray:
    offset, size = _place(data, "plain")
    return data[: (offset + size) // 4096 * 4096]


def _heap(data: bytearray) -> bytearray:
    at = data.index(b"word 41")
    data[at - 16 : at - 8] = b"\xff" * 8  # the number of the object in its heap
    return data


def _object_header(data: bytearray) -> bytearray:
    at, _ = _place(data, "group/inner", -1)
    data[at + 12 : at + 40] = bytes(28)
    return data


def _tree(data: bytearray) -> bytearray:
    at = data.index(b"TREE\0")
    data[at : at + 24] = bytes(24)
    return data


def _chunk_tree(data: bytearray) -> bytearray:
    at = data.index(b"TREE\1")
    data[at : at + 24] = bytes(24)
    return data


def _symbol_table(data: bytearray) -> bytearray:
    at = data.index(b"SNOD")
    data[at : at + 8] = bytes(8)
    return data


def _signature(data: bytearray) -> bytearray:
    data[:4] = b"\0\0\0\0"
    return data


def _checksum(data: bytearray) -> bytearray:
    data[44:48] = b"\1\2\3\4"
    return data


_LATEST, _EARLIEST, _BLOCK = (
    {"libver": "latest"},
    {"libver": "earliest"},
    {"libver": "latest", "userblock_size": 512},
)
_PLAIN_LOST = _ALL - 2500
# Options of the file, damage, whether `verify` finds it, rows in the output.
_CASES: dict[str, tuple[dict[str, Any], _Damage, bool, int]] = {
    "flag of a writer": (_LATEST, _superblock(flags=1), False, _ALL),
    "flag of SWMR": (_LATEST, _superblock(flags=4), False, _ALL),
    "both flags, stale end": (_LATEST, _superblock(flags=5, end=4096), False, _ALL),
    "end of address beyond the file": (_LATEST, _superblock(end=1 << 40), False, _ALL),
    "end of address 0": (_LATEST, _superblock(end=0), False, _ALL),
    "cut within rows": (_LATEST, _cut_in_rows, False, _PLAIN_LOST),
    "cut within rows, old": (_EARLIEST, _cut_in_rows, False, _PLAIN_LOST),
    "hole of NULs": (_LATEST, _hole, False, _ALL - 100),
    "hole of NULs, user block": (_BLOCK, _hole, False, _ALL - 100),
    "superblock zeroed": (_LATEST, _zero(0, 48), False, _ALL),
    "superblock zeroed, old": (_EARLIEST, _zero(0, 96), False, _ALL),
    "signature damaged": (_LATEST, _signature, False, _ALL),
    "checksum of the superblock": (_LATEST, _checksum, False, _ALL),
    "garbage appended": (_LATEST, lambda data: data + b"garbage" * 100, True, _ALL),
    "global heap": (_LATEST, _heap, False, _ALL - 1),
    "B-tree of chunks": (_EARLIEST, _chunk_tree, False, _ALL - 1000),
}


def _is_ok(path: Path) -> bool:
    try:
        return sk.hdf5.verify(path).ok
    except sk.ShardkeepError:
        return False


def _kept(output: Path) -> int:
    """Return how many rows of the output are those that were written."""
    expected = _expected()
    count = 0
    with h5py.File(output) as file:

        def visit(_: str, item: Any) -> None:
            nonlocal count
            if isinstance(item, h5py.Dataset):
                for values in expected.values():
                    if item.shape == values.shape and item.dtype == values.dtype:
                        same = item[()] == values
                        count += int(np.sum(same if same.ndim == 1 else same.all(axis=1)))

        file.visititems(visit)
    return count


def _expected() -> dict[str, Any]:
    with h5py.File("expected", "w", driver="core", backing_store=False) as file:
        _write(file)
        return {name: file[name][()] for name in _ROWS}


@pytest.mark.parametrize("case", _CASES)
def test_rows_that_are_kept(case: str, tmp_path: Path) -> None:
    options, damage, is_ok, rows = _CASES[case]
    path, output = tmp_path / "bad.h5", tmp_path / "out.h5"
    with h5py.File(path, "w", **options) as file:
        _write(file)
    path.write_bytes(damage(bytearray(path.read_bytes())))
    assert _is_ok(path) is is_ok
    found = salvage_hdf5(str(path), str(output), tick=lambda size: None)
    assert found.ok is (rows == _ALL)
    assert found.items("lost") == _ALL - rows
    assert _kept(output) >= rows
    assert _is_ok(output)


def test_dataset_of_a_damaged_object_header_is_lost(tmp_path: Path) -> None:
    path, output = tmp_path / "bad.h5", tmp_path / "out.h5"
    with h5py.File(path, "w", libver="latest") as file:
        _write(file)
    path.write_bytes(_object_header(bytearray(path.read_bytes())))
    assert not _is_ok(path)
    found = salvage_hdf5(str(path), str(output), tick=lambda size: None)
    lost = [(part.dataset, part.items) for part in found.parts if part.outcome == "lost"]
    assert lost == [("/group/inner", 0)]
    assert _kept(output) == _ALL - 30
    assert _is_ok(output)


@pytest.mark.parametrize("damage", [_tree, _symbol_table], ids=["B-tree", "symbol table"])
def test_objects_of_a_damaged_old_group_are_found(damage: _Damage, tmp_path: Path) -> None:
    path, output = tmp_path / "bad.h5", tmp_path / "out.h5"
    with h5py.File(path, "w") as file:
        _write(file)
    path.write_bytes(damage(bytearray(path.read_bytes())))
    assert not _is_ok(path)
    found = salvage_hdf5(str(path), str(output), tick=lambda size: None)
    assert not found.ok
    assert _kept(output) == _ALL
    assert _is_ok(output)


def test_file_that_a_killed_swmr_writer_left(tmp_path: Path) -> None:
    path, output = tmp_path / "live.h5", tmp_path / "out.h5"
    with h5py.File(path, "w", libver="latest") as file:
        rows = file.create_dataset("x", (0,), "i8", maxshape=(None,), chunks=(100,))
        file.swmr_mode = True
        rows.resize((1000,))
        rows[:] = np.arange(1000)
        rows.flush()
        left = path.read_bytes()
    bad = tmp_path / "bad.h5"
    bad.write_bytes(left)
    assert not _is_ok(bad)
    found = salvage_hdf5(str(bad), str(output), tick=lambda size: None)
    assert found.ok
    assert found.parts[0].outcome == "repaired"
    with h5py.File(output) as file:
        assert (file["x"][:] == np.arange(1000)).all()


def test_mappings_of_a_virtual_dataset_are_kept_without_its_sources(tmp_path: Path) -> None:
    path, output = tmp_path / "virtual.h5", tmp_path / "out.h5"
    layout = h5py.VirtualLayout((20,), "i4")
    layout[:] = h5py.VirtualSource("absent.h5", "x", (20,))
    with h5py.File(path, "w", libver="latest") as file:
        file.create_virtual_dataset("v", layout)
    assert not _is_ok(path)
    found = salvage_hdf5(str(path), str(output), tick=lambda size: None)
    assert found.ok
    assert output.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("size_bytes", [8, 47, 96, 800])
def test_stub_of_a_file_that_was_never_flushed_has_nothing_to_keep(size_bytes: int, tmp_path: Path) -> None:
    path, output = tmp_path / "stub.h5", tmp_path / "out.h5"
    with h5py.File(path, "w") as file:
        _write(file)
    path.write_bytes(path.read_bytes()[:size_bytes])
    found = salvage_hdf5(str(path), str(output), tick=lambda size: None)
    assert not found.ok
    if found.output is None:
        assert not output.exists()


@pytest.mark.parametrize("layout", ["contiguous", "chunks", "compact"])
def test_only_references_to_lost_objects_are_lost(layout: str, tmp_path: Path) -> None:
    path, output = tmp_path / "bad.h5", tmp_path / "out.h5"
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if layout == "compact":
        properties.set_layout(h5py.h5d.COMPACT)
    with h5py.File(path, "w", libver="latest") as file:
        _write(file)
        references = np.array([[file[name].ref] * 2 for name in (*_ROWS, "/group", "/plain")], h5py.ref_dtype)
        options = {"chunks": (2, 1), "compression": "gzip"} if layout == "chunks" else {"dcpl": properties}
        file.create_dataset("pointers", data=references, dtype=h5py.ref_dtype, **options)
        file.create_dataset("pointer", data=references[1, 1], dtype=h5py.ref_dtype)
    path.write_bytes(_object_header(bytearray(path.read_bytes())))
    found = salvage_hdf5(str(path), str(output), tick=lambda size: None)
    counts = {part.outcome: part.items for part in found.parts if part.dataset == "/pointers"}
    assert counts == {"lost": 1, "unchecked": 5}
    with h5py.File(output) as file:
        names = [[file[one].name if one else "" for one in row] for row in file["pointers"][:]]
        assert names == [[name] * 2 for name in ("/packed", "/plain", "/words", "", "/group", "/plain")]
        assert file[file["pointer"][()]].name == "/plain"
