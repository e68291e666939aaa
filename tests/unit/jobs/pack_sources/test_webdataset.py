from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from shardkeep.errors import (
    CorruptDataError,
    FormatError,
    NotFoundError,
    ShardkeepError,
    TruncatedFileError,
)
from shardkeep.jobs import pack
from tests.unit.jobs.packing import PATTERN, examples, image, left


def tar_file(path: Path, members: list[tuple[str, bytes]], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


SAMPLES = [
    ("a/001.png", image()),
    ("a/001.cls", b"7\n"),
    ("a/001.json", b"{}"),
    ("a/002.jpg", image("JPEG", size=(8, 9))),
    ("a/002.cls", b"-1"),
    ("a/002.left.png", b"not looked at"),
    ("a/002.TXT", b"hello"),
]


@pytest.mark.parametrize("packing", ["", "gz", "bz2", "xz"])
def test_webdataset(packing: str, tmp_path: Path) -> None:
    path = tar_file(tmp_path / f"x.tar.{packing}".rstrip("."), SAMPLES, f"w:{packing}")
    report = pack(path, tmp_path / PATTERN)
    first, second = examples(report)
    assert (first["key"], first["label"], first["json"]) == ([b"a/001"], [7], [b"{}"])
    assert first["image_raw"] == [SAMPLES[0][1]]
    assert (first["height"], first["width"], first["depth"]) == ([3], [5], [3])
    assert (second["label"], second["txt"], second["left.png"]) == ([-1], [b"hello"], [b"not looked at"])
    assert (report.kind, report.features["label"], report.features["txt"]) == ("webdataset", "int64", "bytes")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("1.png", b"hello")], "1: plain text"),
        ([("1.cls", b"dog")], r"\.cls must be an integer"),
        ([("1.png", image()), ("1.jpg", image("JPEG"))], "two images"),
        ([("1.label", b"")], "name of another feature"),
    ],
)
def test_bad_samples_are_named_or_skipped(
    members: list[tuple[str, bytes]], message: str, tmp_path: Path
) -> None:
    path = tar_file(tmp_path / "x.tar", [*members, ("2.txt", b"fine")])
    with pytest.raises(ShardkeepError, match=message):
        pack(path, tmp_path / PATTERN)
    assert left(tmp_path) == []
    report = pack(path, tmp_path / PATTERN, on_bad="skip")
    assert (report.skipped, [one["key"] for one in examples(report)]) == (1, [[b"2"]])


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("1.txt", b""), ("2.txt", b""), ("1.json", b"")], "are not consecutive"),
        ([("1.txt", b"a"), ("1.txt", b"b")], "twice"),
        ([("readme", b"a")], r"KEY\.EXTENSION"),
    ],
)
def test_archives_that_are_no_webdataset(
    members: list[tuple[str, bytes]], message: str, tmp_path: Path
) -> None:
    with pytest.raises(FormatError, match=message):
        pack(tar_file(tmp_path / "x.tar", members), tmp_path / PATTERN, on_bad="skip")
    assert left(tmp_path) == []


@pytest.mark.parametrize("packing", ["", "gz"])
def test_every_cut_of_an_archive_is_noticed(packing: str, tmp_path: Path) -> None:
    members = [(f"{i}.bin", bytes([i + 1]) * 700) for i in range(4)]
    content = tar_file(tmp_path / "x.tar", members, f"w:{packing}").read_bytes()
    path = tmp_path / "cut.tar"
    # Two blocks of zeros are the end, and GNU tar pads to 10,240 bytes; one of them must do.
    for length in range(30, len(content), 7) if packing else range(256, 4 * 1536 + 1, 256):
        path.write_bytes(content[:length])
        with pytest.raises((CorruptDataError, FormatError)):
            pack(path, tmp_path / PATTERN, kind="webdataset")
    assert left(tmp_path) == []
    if not packing:
        path.write_bytes(content[: 4 * 1536 + 1024])
        assert pack(path, tmp_path / PATTERN).records == 4


def test_an_archive_without_members(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="has no record"):
        pack(tar_file(tmp_path / "x.tar", []), tmp_path / PATTERN, kind="webdataset")


def test_joined_archives_are_not_cut_short(tmp_path: Path) -> None:
    one = tar_file(tmp_path / "a.tar", [("1.txt", b"a")])
    two = tar_file(tmp_path / "b.tar", [("2.txt", b"b")])
    joined = tmp_path / "c.tar"
    joined.write_bytes(one.read_bytes() + two.read_bytes())
    with pytest.raises((FormatError, TruncatedFileError), match="end"):
        pack(joined, tmp_path / PATTERN)
    assert len(examples(pack([one, two], tmp_path / PATTERN))) == 2
