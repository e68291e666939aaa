from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import Any

import pytest

from shardkeep.errors import CorruptRecordError, FormatError, PlanError, TruncatedFileError
from shardkeep.tfrecord import Reader
from tests.unit.tfrecord.test_reader import frame

RECORDS = [b"", b"a", b"x" * 700_000, b"last"]
PLAIN = b"".join(map(frame, RECORDS))


class Pipe(io.RawIOBase):
    """Bytes that are read once, in pieces, without seek."""

    def __init__(self, content: bytes) -> None:
        self._rest = content

    def readable(self) -> bool:
        return True

    def read(self, count: int = -1) -> bytes:
        part, self._rest = self._rest[: min(count, 1000)], self._rest[min(count, 1000) :]
        return part


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zlib.compress])
def test_file_object_yields_the_same_as_a_path(pack: Any) -> None:
    reader = Reader(io.BytesIO(pack(PLAIN)))
    assert list(reader) == RECORDS
    assert len(reader) == 4
    assert list(Reader(Pipe(pack(PLAIN)))) == RECORDS  # type: ignore[arg-type]


def test_random_access_returns_single_records() -> None:
    reader = Reader(io.BytesIO(PLAIN))
    assert reader[-1] == b"last"
    assert reader.read_many([2, 0, 2]) == [RECORDS[2], b"", RECORDS[2]]
    with pytest.raises(IndexError):
        reader[4]
    with pytest.raises(FormatError, match="no random access"):
        Reader(io.BytesIO(gzip.compress(PLAIN)))[0]


def test_iterations_do_not_disturb_each_other() -> None:
    reader = Reader(io.BytesIO(PLAIN * 3))
    first, second = iter(reader), iter(reader)
    pairs = []
    for one in first:
        pairs.append((one, next(second)))
        assert reader[1] == b"a"
    assert pairs == [(record, record) for record in RECORDS * 3]


def test_errors_have_the_name_of_an_open_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(PLAIN[:-1])
    with path.open("rb") as file, pytest.raises(TruncatedFileError) as caught:
        list(Reader(file))
    assert caught.value.path == str(path)
    assert caught.value.record == 3


def test_damage_names_object_record_and_offset() -> None:
    content = bytearray(frame(b"abc") + frame(b"def"))
    content[-6] ^= 1
    reader = Reader(io.BytesIO(bytes(content)))
    with pytest.raises(CorruptRecordError, match="record 1 at byte 19"):
        list(reader)
    with pytest.raises(CorruptRecordError, match="record 1"):
        reader[0]
    unverified = Reader(io.BytesIO(bytes(content)), verify=False)
    assert len(unverified[1]) == 3


def test_changed_object_is_an_error() -> None:
    file = io.BytesIO(PLAIN)
    reader = Reader(file)
    assert reader[1] == b"a"
    file.seek(17 + 11)
    file.truncate()
    with pytest.raises(TruncatedFileError):
        reader[3]


def test_other_kind_is_named() -> None:
    with pytest.raises(FormatError, match="HTML"):
        Reader(io.BytesIO(b"<!DOCTYPE html><html>" + b" " * 100))


def test_invalid_arguments_are_refused() -> None:
    once = Reader(Pipe(PLAIN))  # type: ignore[arg-type]
    assert list(once) == RECORDS
    with pytest.raises(PlanError, match="has no seek, so its records are read in order and once"):
        list(once)
    with pytest.raises(PlanError, match="only a local file has a lock"):
        Reader(io.BytesIO(PLAIN), lock=True)


def test_error_of_the_object_is_raised() -> None:
    class Broken(io.BytesIO):
        def read(self, count: int | None = -1, /) -> bytes:
            if self.tell() > 100_000:
                raise OSError("the network is gone")
            return super().read(50_000)

    with pytest.raises(OSError, match="the network is gone"):
        list(Reader(Broken(PLAIN)))
