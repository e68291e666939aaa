from __future__ import annotations

import gzip
import io
import os
import tarfile
import zipfile
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep._core import masked_crc32c
from shardkeep.errors import FormatError, NotFoundError
from shardkeep.files.kinds.kind import identify, identify_bytes, require_kind
from tests.descriptors import open_descriptors


def frame(data: bytes) -> bytes:
    length = len(data).to_bytes(8, "little")
    return b"".join(
        (length, masked_crc32c(length).to_bytes(4, "little"), data, masked_crc32c(data).to_bytes(4, "little"))
    )


def tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.png"))
    return out.getvalue()


def zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.txt", "a")
    return out.getvalue()


def npy() -> bytes:
    out = io.BytesIO()
    np.save(out, np.zeros(3))
    return out.getvalue()


RECORDS = frame(b"") + frame(b"hello" * 1000)


@pytest.mark.parametrize(
    ("content", "compression"),
    [
        (RECORDS, None),
        (gzip.compress(RECORDS, mtime=0), "gzip"),
        *((zlib.compress(RECORDS, n), "zlib") for n in (0, 1, 9)),
    ],
)
def test_tfrecord_files_are_recognised(tmp_path: Path, content: bytes, compression: str | None) -> None:
    path = tmp_path / "misleading.h5"
    path.write_bytes(content)
    kind = identify(path)
    assert (kind.name, kind.compression) == ("tfrecord", compression)


def test_header_alone_is_enough_and_necessary() -> None:
    assert identify_bytes(RECORDS[:12]).name == "tfrecord"
    assert identify_bytes(RECORDS[:11]).name == "other"


@given(st.binary(min_size=12, max_size=64))
def test_random_bytes_are_not_a_tfrecord(data: bytes) -> None:
    found = identify_bytes(data)
    expected = masked_crc32c(data[:8]) == int.from_bytes(data[8:12], "little")
    assert (found.name == "tfrecord") == expected
    assert found.described


@given(st.binary(max_size=300))
def test_any_bytes_have_a_kind(data: bytes) -> None:
    for content in (data, b"\x1f\x8b\x08\x00" + data, b"\x78\x9c" + data, gzip.compress(data)):
        assert identify_bytes(content).described.isprintable()


@pytest.mark.parametrize("offset_bytes", [0, 512, 1024, 4096, 65536])
def test_hdf5_after_a_user_block(tmp_path: Path, offset_bytes: int) -> None:
    path = tmp_path / "a.tfrecord"
    with h5py.File(path, "w", userblock_size=offset_bytes) as file:
        file["x"] = 1
    kind = identify(path)
    assert (kind.name, kind.offset_bytes) == ("hdf5", offset_bytes)


def test_hdf5_signature_at_another_offset_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 768 + b"\x89HDF\r\n\x1a\n" + bytes(100))
    assert identify(path).name == "other"


@pytest.mark.parametrize(
    ("content", "words", "advice"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git-lfs pointer", "git lfs pull"),
        (b"/annex/objects/SHA256E-s1--0.h5\n", "git-annex pointer", "git annex get"),
        (b"\n <!DOCTYPE HTML><html>", "an HTML page", "fetch"),
        (b"<html><body>403", "an HTML page", "fetch"),
        (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code>", "an XML document", "fetch"),
        (b'{"a": 1}', "JSON text", ""),
        (b"PAR1\x15\x04", "a Parquet file", ""),
        (b"\x28\xb5\x2f\xfd\x00", "zstd", "unpack"),
        (b"a,b\n1,2\n", "plain text that begins 'a,b'", ""),
        ("größe\n".encode(), "plain text that begins 'größe'", ""),
        (bytes(200), "zero bytes only", "again"),
        (b"\x01\xff\xfe" * 9, "binary data", "damaged"),
        ((40).to_bytes(8, "little") + b'{"w":{}}', "a safetensors file", ""),
        (b"\x1f\x8b\x08\xff\xff" + b"\xff" * 40, "damaged gzip data", ""),
    ],
)
def test_other_kinds_are_recognised(content: bytes, words: str, advice: str) -> None:
    kind = identify_bytes(content)
    assert kind.name == "other"
    assert words in kind.described
    assert advice in kind.advice


def test_archives_are_named() -> None:
    assert "tar archive" in identify_bytes(tar()).described
    assert "zip archive" in identify_bytes(zipped()).described
    assert "NumPy" in identify_bytes(npy()).described
    assert "inside is a tar archive" in identify_bytes(gzip.compress(tar())).described


def test_text_cut_inside_a_character() -> None:
    assert "plain text" in identify_bytes("aé".encode()[:-1]).described


def test_empty_and_folder(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert identify(tmp_path / "a").name == "empty"
    assert identify(tmp_path).name == "folder"


def test_open_of_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "pipe" in identify(tmp_path / "pipe").described


def test_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such file") as caught:
        identify(tmp_path / "a")
    assert caught.value.path == str(tmp_path / "a")


def test_require_kind_names_the_found_kind(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(RECORDS)
    assert require_kind(path, "hdf5", "tfrecord").name == "tfrecord"
    path.write_text("<html>")
    with pytest.raises(FormatError) as caught:
        require_kind(path, "tfrecord", "empty", "hdf5")
    assert str(caught.value) == (
        f"{path}: expected a TFRecord file or an HDF5 file, found an HTML page, perhaps a sign-in or"
        " error page saved by a download; fetch the file again"
    )
    assert caught.value.path == str(path)


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = open_descriptors()
    identify(tmp_path)
    with pytest.raises(NotFoundError):
        identify(tmp_path / "a")
    assert not open_descriptors() - before
