"""Reading of records in order and by number.

Covers `shardkeep.tfrecord.format.compression` and `shardkeep.tfrecord.format.file_kind`.
"""

from __future__ import annotations

import gzip
import pickle
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep._core import masked_crc32c
from shardkeep.errors import (
    CorruptRecordError,
    FormatError,
    NotFoundError,
    PlanError,
    ShardkeepError,
    TruncatedFileError,
)
from shardkeep.tfrecord import Reader, Writer
from tests.descriptors import open_descriptors


def frame(payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    return (
        length
        + struct.pack("<I", masked_crc32c(length))
        + payload
        + struct.pack("<I", masked_crc32c(payload))
    )


def file_of(folder: Path, content: bytes, name: str = "x.tfrecord") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


PACKED = {
    "plain": lambda b: b,
    "gzip": gzip.compress,
    "zlib": zlib.compress,
    "two gzip members": lambda b: gzip.compress(b[: len(b) // 2]) + gzip.compress(b[len(b) // 2 :]),
    "two zlib streams": lambda b: zlib.compress(b[: len(b) // 2]) + zlib.compress(b[len(b) // 2 :]),
}


@pytest.mark.parametrize("packing", PACKED)
@given(records=st.lists(st.binary(max_size=300), max_size=20))
def test_framed_records_are_read(
    packing: str, records: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("r")
    path = file_of(folder, PACKED[packing](b"".join(map(frame, records))))
    assert list(Reader(path)) == records
    assert len(Reader(path)) == len(records)


@given(records=st.lists(st.binary(max_size=50), min_size=1, max_size=9), data=st.data())
def test_read_many_is_indexing(
    records: list[bytes], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = file_of(tmp_path_factory.mktemp("r"), b"".join(map(frame, records)))
    n = len(records)
    wanted = data.draw(st.lists(st.integers(-n, n - 1)))
    reader = Reader(path)
    assert reader.read_many(wanted) == [records[i] for i in wanted]
    cut = data.draw(st.slices(n))
    assert reader[cut] == records[cut]


def test_records_beyond_the_file_are_index_errors(tmp_path: Path) -> None:
    reader = Reader(file_of(tmp_path, frame(b"a") * 3))
    for index in (3, -4):
        with pytest.raises(IndexError, match="the file has 3"):
            reader[index]
    with pytest.raises(IndexError):
        Reader(file_of(tmp_path, b""))[0]


@pytest.mark.parametrize("packing", ["plain", "gzip", "zlib"])
def test_every_cut_is_truncation_unless_between_records(packing: str, tmp_path: Path) -> None:
    content = PACKED[packing](frame(b"abc") + frame(b""))
    whole = {0, len(frame(b"abc"))} if packing == "plain" else {0}
    for cut in range(len(content)):
        path = file_of(tmp_path, content[:cut])
        if cut in whole:
            list(Reader(path))
            continue
        with pytest.raises((TruncatedFileError, FormatError)) as caught:
            list(Reader(path))
        assert caught.value.path == str(path)


def test_damage_names_record_and_offset_after_whole_records(tmp_path: Path) -> None:
    content = bytearray(frame(b"x" * 100) * 5)
    content[116 * 3 + 50] ^= 1
    path = file_of(tmp_path, bytes(content))
    got = []
    with pytest.raises(CorruptRecordError, match="record 3 at byte 348") as caught:
        got.extend(Reader(path))
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.path, error.record, error.offset_bytes) == (str(path), 3, 348)
    with pytest.raises(CorruptRecordError, match="record 3 "):
        Reader(path).read_many([4, 3])
    assert Reader(path).read_many([4, 2]) == [b"x" * 100] * 2
    assert len(list(Reader(path, verify=False))) == 5


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<!DOCTYPE html><html><title>403 Forbidden</title></html>", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "git-lfs"),
        (b"PK\x03\x04" + b"\0" * 100, "zip"),
        (b"\x89HDF\r\n\x1a\n" + b"\0" * 100, "HDF5"),
        (b"label,path\n3,a.png\n", "text"),
        (gzip.compress(b"<html></html>" * 10, mtime=0), "gzip"),
    ],
)
def test_another_kind_of_file_is_named(content: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=said):
        list(Reader(file_of(tmp_path, content)))


def test_a_damaged_beginning_is_damage_not_another_format(tmp_path: Path) -> None:
    content = bytearray(frame(bytes(range(200))))
    content[8] ^= 0x40
    with pytest.raises(CorruptRecordError, match="record 0 at byte 0"):
        list(Reader(file_of(tmp_path, bytes(content))))
    with pytest.raises(CorruptRecordError, match="NUL"):
        list(Reader(file_of(tmp_path, b"\0" * 4096)))


def test_missing_file_folder_and_unknown_compression_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        Reader(tmp_path / "nothing")
    with pytest.raises(FormatError, match="folder"):
        Reader(tmp_path)
    with pytest.raises(PlanError, match="lz4"):
        Reader(file_of(tmp_path, b""), compression="lz4")


def test_a_compressed_file_refuses_random_access(tmp_path: Path) -> None:
    reader = Reader(file_of(tmp_path, gzip.compress(frame(b"a"))))
    assert reader.compression == "gzip"
    with pytest.raises(FormatError, match="no random access"):
        reader[0]


def test_a_file_that_grew_is_indexed_again(tmp_path: Path) -> None:
    path = file_of(tmp_path, frame(b"a"))
    reader = Reader(path)
    assert len(reader) == 1
    with path.open("ab") as file:
        file.write(frame(b"b"))
    assert len(reader) == 2
    assert reader[1] == b"b"


def test_reader_is_picklable(tmp_path: Path) -> None:
    reader = Reader(file_of(tmp_path, frame(b"a")))
    assert len(reader) == 1
    assert list(pickle.loads(pickle.dumps(reader))) == [b"a"]


def test_deleted_readers_release_their_descriptors(tmp_path: Path) -> None:
    path = file_of(tmp_path, frame(b"a"))
    before = open_descriptors()
    for _ in range(50):
        reader = Reader(path)
        assert reader[0] == b"a"
        del reader
    assert not open_descriptors() - before


def test_compression_names_of_tensorflow_are_accepted(tmp_path: Path) -> None:
    path = file_of(tmp_path, gzip.compress(frame(b"a")))
    assert list(Reader(path, compression="GZIP")) == [b"a"]
    with pytest.raises(ShardkeepError):
        list(Reader(path, compression=""))


def test_records_outlive_their_reader(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with Writer(path) as w:
        for i in range(1000):
            w.write(bytes([i % 256]) * 1000)
    kept = list(Reader(path))
    assert all(record == bytes([i % 256]) * 1000 for i, record in enumerate(kept))
