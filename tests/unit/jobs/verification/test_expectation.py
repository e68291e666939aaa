from __future__ import annotations

from pathlib import Path

import pytest

from shardkeep._core import crc32c
from shardkeep.files.kinds.kind import identify
from shardkeep.jobs.verification.expectation import Member, expected_kinds
from tests.unit.jobs.verification.damage import flip, records, shards


def expected(*paths: Path) -> list[str | None]:
    return list(expected_kinds([Member(str(path), identify(path)) for path in paths]))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.tfrecord", "tfrecord"),
        ("a.TFRecords", "tfrecord"),
        ("a.tfrec", "tfrecord"),
        ("a.tfrecord.gz", "tfrecord"),
        ("mnist-train.tfrecord-00000-of-00001", "tfrecord"),
        ("a.tfrecord-0-of-2.zst", "tfrecord"),
        ("events.out.tfevents.1700000000.node-3.71.0.v2", "tfrecord"),
        ("a.h5", "hdf5"),
        ("a.HDF5", "hdf5"),
        ("a.h5ad", "hdf5"),
        ("a.tfrecord.md5", None),
        ("losses.tfevents.csv", None),
        ("a.tfrecord.json", None),
        ("h5", None),
        ("counts-00000-of-00003", None),
        ("README", None),
    ],
)
def test_extension_of_a_name_decides(name: str, kind: str | None, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("hello")
    assert expected(path) == [kind]
    assert expected(records(tmp_path / "other"), path) == ["tfrecord", kind]


def test_siblings_decide_for_a_name_without_extension(tmp_path: Path) -> None:
    good = [records(tmp_path / f"part{i}.bin") for i in range(3)]
    odd = tmp_path / "part30.bin"
    for content in (b"", b"hello", b"\x89PNG\r\n\x1a\n", bytes(range(256))):
        odd.write_bytes(content)
        assert expected(*good, odd) == ["tfrecord"] * 4
        assert expected(*good, odd)[-1] == "tfrecord"
    images = [tmp_path / f"part{i}.png" for i in range(3)]
    for image in images:
        image.write_bytes(b"\x89PNG\r\n\x1a\n")
    images[0].write_bytes(bytes(range(256)))
    assert expected(*images) == [None, None, None]


def test_siblings_are_of_one_folder(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    good = [records(tmp_path / f"part{i}") for i in range(3)]
    (tmp_path / "other/part9").write_bytes(b"hello")
    assert expected(*good, tmp_path / "other/part9")[-1] is None


def test_extension_of_most_files_decides_for_unknown_content_only(tmp_path: Path) -> None:
    good = [records(tmp_path / "train.bin"), records(tmp_path / "test.bin")]
    odd = tmp_path / "valid.bin"
    for content, kind in ((b"", "tfrecord"), (bytes(range(256)), "tfrecord"), (b"hello", None)):
        odd.write_bytes(content)
        assert expected(*good, odd)[-1] == kind


def test_number_of_a_shard_decides_for_unknown_content_only(tmp_path: Path) -> None:
    path = tmp_path / "train-00000-of-00001"
    for content, kind in ((b"", "tfrecord"), (bytes(range(256)), "tfrecord"), (b"hello", None)):
        path.write_bytes(content)
        assert expected(path) == [kind]
    checkpoint = tmp_path / "model.data-00000-of-00001"
    checkpoint.write_bytes(bytes(range(256)))
    assert expected(checkpoint) == [None]


def test_content_decides_for_a_damaged_start(tmp_path: Path) -> None:
    path = records(tmp_path / "data")
    flip(path)
    assert expected(path) == ["tfrecord"]
    (tmp_path / "h").write_bytes(b"\x89HDF\r\n\x1a\x0b" + bytes(100))
    (tmp_path / "x").write_bytes(bytes(range(256)) * 100)
    assert expected(tmp_path / "h", tmp_path / "x") == ["hdf5", None]


def test_all_shards_are_damaged(tmp_path: Path) -> None:
    paths = shards(tmp_path)
    for path in paths:
        path.write_bytes(bytes(range(256)))
    assert expected(*paths) == ["tfrecord"] * 4


def test_file_of_a_faulty_writer_should_be_a_tfrecord_file(tmp_path: Path) -> None:
    length = (5).to_bytes(8, "little")
    (tmp_path / "x").write_bytes(length + crc32c(length).to_bytes(4, "little") + b"hello" + bytes(4))
    assert expected(tmp_path / "x") == ["tfrecord"]
