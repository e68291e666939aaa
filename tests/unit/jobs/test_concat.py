from __future__ import annotations

import os
from pathlib import Path

import pytest

from shardkeep.errors import CorruptRecordError, ExistsError, FormatError, NotFoundError
from shardkeep.jobs import concat
from shardkeep.tfrecord import Reader
from tests.unit.jobs.test_split import write


def test_files_of_every_compression_become_one(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / f"in{i}", [b"%d-%d" % (i, k) for k in range(i * 3)], compression)
        for i, compression in enumerate([None, "gzip", "zlib", None])
    ]
    for compression in (None, "gzip", "zlib"):
        report = concat(paths, tmp_path / f"out-{compression}", compression=compression)
        (output,) = report.outputs
        assert Reader(output.path).compression == compression
        assert list(Reader(output.path)) == [b"%d-%d" % (i, k) for i in range(4) for k in range(i * 3)]
        assert (output.records, report.records, report.mode) == (18, 18, "concat")
        assert output.bytes == report.bytes == os.path.getsize(output.path)


def test_it_is_cat_for_whole_files(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, [name.encode() * k for k in range(9)]) for name in "ba"]
    report = concat(paths, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == paths[0].read_bytes() + paths[1].read_bytes()
    assert report.sources == tuple(map(str, paths))


def test_braces_in_the_name_are_only_braces(tmp_path: Path) -> None:
    concat(write(tmp_path / "in", [b"a"]), tmp_path / "out-{shard}")
    assert sorted(os.listdir(tmp_path)) == ["in", "out-{shard}"]


def test_what_cat_would_join_and_must_not(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole", [b"abc"])
    other = tmp_path / "other"
    for content, kind in (
        (b"<!DOCTYPE html>", FormatError),
        (whole.read_bytes()[:-3] + b"xxx", CorruptRecordError),
    ):
        other.write_bytes(content)
        with pytest.raises(kind, match="other"):
            concat([whole, other], tmp_path / "out")
    with pytest.raises(NotFoundError, match="gone"):
        concat([whole, tmp_path / "gone"], tmp_path / "out")
    with pytest.raises(ExistsError):
        concat(whole, other)
    assert sorted(os.listdir(tmp_path)) == ["other", "whole"]
