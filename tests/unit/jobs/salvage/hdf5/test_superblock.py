"""Superblocks of damaged HDF5 files."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import pytest

from shardkeep._core import lookup3
from shardkeep.jobs.salvage.hdf5.superblock import superblocks

_EARLIEST, _LATEST = "earliest", "latest"


def _file(folder: Path, libver: str, user_block: int = 0) -> Path:
    path = folder / "file.h5"
    with h5py.File(path, "w", libver=libver, userblock_size=user_block) as file:
        file["x"] = range(1000)
    return path


def _first(path: Path) -> tuple[bytes, tuple[str, ...]]:
    fd = os.open(path, os.O_RDONLY)
    try:
        found = next(superblocks(fd, path.stat().st_size))
    finally:
        os.close(fd)
    return found.data, found.changes


@pytest.mark.parametrize("libver", [_EARLIEST, _LATEST])
@pytest.mark.parametrize("user_block", [0, 512, 2048])
def test_undamaged_superblock_is_not_changed(libver: str, user_block: int, tmp_path: Path) -> None:
    path = _file(tmp_path, libver, user_block)
    data, changes = _first(path)
    assert changes == ()
    assert path.read_bytes()[user_block:].startswith(data)


def test_every_flipped_bit_after_the_signature_is_restored(tmp_path: Path) -> None:
    path = _file(tmp_path, _LATEST)
    good = path.read_bytes()
    for bit in range(8 * 8, 8 * 48):
        damaged = bytearray(good)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        data, changes = _first(path)
        assert data == good[:48]
        assert len(changes) == 1


@pytest.mark.parametrize("flags", [1, 4, 5])
def test_flags_are_cleared_and_the_end_of_address_is_that_of_the_file(flags: int, tmp_path: Path) -> None:
    path = _file(tmp_path, _LATEST)
    good = path.read_bytes()
    block = bytearray(good[:44])
    block[11] = flags
    block[28:36] = (100).to_bytes(8, "little")
    path.write_bytes(bytes(block) + lookup3(bytes(block)).to_bytes(4, "little") + good[48:])
    data, changes = _first(path)
    assert data == good[:48]
    assert changes == (
        f"the consistency flags {flags} cleared",
        f"the end of address set from 100 to the size of the file, {len(good):,}",
    )


@pytest.mark.parametrize("libver", [_EARLIEST, _LATEST])
@pytest.mark.parametrize("end", [0, 1 << 40])
def test_end_of_address_that_cannot_be_is_set(libver: str, end: int, tmp_path: Path) -> None:
    path = _file(tmp_path, libver)
    good = path.read_bytes()
    at = 40 if libver == _EARLIEST else 28
    damaged = bytearray(good)
    damaged[at : at + 8] = end.to_bytes(8, "little")
    damaged[44:48] = damaged[44:48] if libver == _EARLIEST else _checksum(damaged)
    path.write_bytes(damaged)
    data, changes = _first(path)
    assert data[at : at + 8] == len(good).to_bytes(8, "little")
    assert len(changes) == 1


def _checksum(block: bytearray) -> bytes:
    return lookup3(bytes(block[:44])).to_bytes(4, "little")


@pytest.mark.parametrize("libver", [_EARLIEST, _LATEST])
@pytest.mark.parametrize("user_block", [0, 1024])
def test_damaged_signature_is_restored(libver: str, user_block: int, tmp_path: Path) -> None:
    path = _file(tmp_path, libver, user_block)
    good = path.read_bytes()
    damaged = bytearray(good)
    damaged[user_block + 1 : user_block + 4] = b"hdf"
    path.write_bytes(damaged)
    data, changes = _first(path)
    assert good[user_block:].startswith(data)
    assert changes == ("the signature",)


@pytest.mark.parametrize("libver", [_EARLIEST, _LATEST])
def test_zeroed_superblock_is_made_again(libver: str, tmp_path: Path) -> None:
    path = _file(tmp_path, libver)
    good = path.read_bytes()
    data, _ = _first(path)
    path.write_bytes(bytes(len(data)) + good[len(data) :])
    made, changes = _first(path)
    assert changes == ("the superblock was made again from the root group after it",)
    path.write_bytes(made + good[len(made) :])
    with h5py.File(path) as file:
        assert file["x"][:].tolist() == list(range(1000))


def test_other_file_has_no_superblock(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"no HDF5 " * 1000)
    with pytest.raises(StopIteration):
        _first(path)
