from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from shardkeep.errors import CorruptRecordError, FormatError, NotFoundError, TruncatedFileError
from shardkeep.tfrecord import Writer
from shardkeep.tfrecord.index import frame_starts


def files(folder: Path, counts: list[int]) -> list[Path]:
    paths = []
    for i, count in enumerate(counts):
        paths.append(folder / f"{i}.tfrecord")
        with Writer(paths[-1]) as w:
            for j in range(count):
                w.write(b"x" * j)
    return paths


@pytest.mark.parametrize("threads", [1, 4, None])
def test_starts_of_several_files(threads: int | None, tmp_path: Path) -> None:
    found = frame_starts(files(tmp_path, [3, 0, 50]), threads=threads)
    assert [len(starts) - 1 for starts in found] == [3, 0, 50]
    assert found[0].tolist() == [0, 16, 33, 51]
    assert frame_starts([]) == []


def test_only_verify_sees_damaged_payloads_but_headers_are_always_checked(tmp_path: Path) -> None:
    (path,) = files(tmp_path, [10])
    content = bytearray(path.read_bytes())
    content[16 + 12] ^= 1  # the payload of record 1
    path.write_bytes(content)
    assert len(frame_starts([path])[0]) == 11
    with pytest.raises(CorruptRecordError, match="record 1 at byte 16"):
        frame_starts([path], verify=True)
    content[16] ^= 1  # its length
    path.write_bytes(content)
    with pytest.raises(CorruptRecordError, match="header"):
        frame_starts([path])


def test_the_first_bad_file_is_named(tmp_path: Path) -> None:
    paths = files(tmp_path, [3, 3, 3])
    for path in paths[1:]:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(TruncatedFileError) as caught:
        frame_starts(paths, threads=2)
    assert caught.value.path == str(paths[1])


def test_other_kinds(tmp_path: Path) -> None:
    (path,) = files(tmp_path, [3])
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(FormatError, match="gzip-compressed as a whole"):
        frame_starts([packed])
    packed.write_bytes(b"<html>" + b" " * 100)
    with pytest.raises(FormatError, match="HTML"):
        frame_starts([packed])
    with pytest.raises(NotFoundError):
        frame_starts([tmp_path / "nothing"])
