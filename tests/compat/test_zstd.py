"""A whole file in zstd, as the reference implementation compressed it (see make_zstd_file.py)."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from shardkeep.errors import CorruptDataError, FormatError, PlanError, TruncatedFileError
from shardkeep.jobs import cat, info
from shardkeep.tfrecord import Reader, Writer, build_index

FILE = Path(__file__).parent / "data" / "records.tfrecord.zst"
RECORDS = [bytes([i]) * (i * 37) for i in range(60)]


def test_zstd_file_is_read_record_by_record() -> None:
    reader = Reader(FILE)
    assert reader.compression == "zstd"
    assert list(reader) == RECORDS
    assert len(reader) == 60
    assert list(Reader(FILE, compression="zstd")) == RECORDS


def test_commands_read_zstd_files() -> None:
    assert info(FILE).to_dict()["compression"] == "zstd"
    assert len(list(cat(FILE))) == 60


def test_truncated_zstd_file_is_an_error(tmp_path: Path) -> None:
    content = FILE.read_bytes()
    for cut in range(1, len(content), 7):
        path = tmp_path / "cut"
        path.write_bytes(content[:cut])
        with pytest.raises((TruncatedFileError, FormatError)):
            list(Reader(path))


def test_damage_and_trailing_garbage_are_errors(tmp_path: Path) -> None:
    content = bytearray(FILE.read_bytes())
    path = tmp_path / "bad"
    path.write_bytes(bytes(content) + b"garbage")
    with pytest.raises(CorruptDataError, match="followed by other bytes"):
        list(Reader(path))
    # Every flipped byte is noticed: by zstd, by its checksum, or by the record's.
    for at in range(6, len(content), 11):
        content[at] ^= 0x10
        path.write_bytes(content)
        # Some bits mean nothing: in the frame that is skipped, or the unused one of a header.
        with contextlib.suppress(CorruptDataError):
            assert list(Reader(path)) == RECORDS
        content[at] ^= 0x10


def test_random_access_and_writing_of_zstd_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no random access"):
        Reader(FILE)[0]
    with pytest.raises(FormatError):
        build_index(FILE)
    with pytest.raises(PlanError, match="read, not written"):
        Writer(tmp_path / "x", compression="zstd")
