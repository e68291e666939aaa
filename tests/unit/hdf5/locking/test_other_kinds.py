"""Files of other kinds in place of HDF5 files.

Covers `shardkeep.hdf5.locking.open_errors`.
"""

from __future__ import annotations

import gzip
import io
import os
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

import shardkeep as sk


def _npz() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("x", b"x")
    return data.getvalue()


def _npy() -> bytes:
    data = io.BytesIO()
    np.save(data, np.arange(3))
    return data.getvalue()


def _tfrecord(folder: Path) -> bytes:
    with sk.tfrecord.Writer(folder / "t") as writer:
        writer.write(b"one")
    return (folder / "t").read_bytes()


def _hdf5(folder: Path) -> bytes:
    with h5py.File(folder / "h", "w") as file:
        file["x"] = [1]
    return (folder / "h").read_bytes()


KINDS = {
    "a TFRecord file": _tfrecord,
    "gzip-compressed data; inside is an HDF5 file; unpack it first": lambda folder: gzip.compress(
        _hdf5(folder)
    ),
    r"a zip archive \(or .npz, .pt\); unpack it first": lambda _: _npz(),
    "a NumPy .npy file": lambda _: _npy(),
    "an HTML page": lambda _: b"<!DOCTYPE html><title>Sign in</title>",
    "a git-lfs pointer: .*; run `git lfs pull`": lambda _: b"version https://git-lfs.github.com/spec/v1\noid",
    "a netCDF-3 file": lambda _: b"CDF\x01" + bytes(100),
    "an HDF4 file; convert it to HDF5": lambda _: b"\x0e\x03\x13\x01" + bytes(100),
    "a MATLAB file": lambda _: b"MATLAB 5.0 MAT-file" + bytes(200),
    "plain text that begins 'hello'": lambda _: b"hello",
    "zero bytes": lambda _: bytes(9000),
}


@pytest.mark.parametrize("found", KINDS)
def test_open_and_merge_name_the_kind(found: str, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    path.write_bytes(KINDS[found](tmp_path))
    for call in (
        lambda: sk.hdf5.open(path),
        lambda: sk.hdf5.merge([path], tmp_path / "m.h5"),
        lambda: sk.hdf5.verify(path),
        lambda: sk.hdf5.open(path, "r+"),
    ):
        with pytest.raises(sk.FormatError, match=f"a.h5' is not an HDF5 file: it is {found}") as caught:
            call()
        assert caught.value.path == os.fspath(path)


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.h5").touch()
    with pytest.raises(sk.FormatError, match=r"it is an empty file; its writer was killed, .*fetch it again"):
        sk.hdf5.merge([tmp_path / "a.h5"], tmp_path / "m.h5")
