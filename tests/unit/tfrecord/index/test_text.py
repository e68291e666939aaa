from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.errors import ExistsError, FormatError, NotFoundError, PlanError, TruncatedFileError
from shardkeep.tfrecord import Writer, build_index, read_text_index, write_text_index


def tfrecord2idx(shard: Path) -> str:
    """Do as the scripts of DALI and vahidk, which do not notice a truncated file."""
    lines = []
    with shard.open("rb") as file:
        while True:
            start = file.tell()
            length = file.read(8)
            if not length:
                return "".join(lines)
            file.read(4 + struct.unpack("q", length)[0] + 4)
            lines.append(f"{start} {file.tell() - start}\n")


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "x.tfrecord"
    with Writer(path) as w:
        for i in range(200):
            w.write(b"x" * (i * 7 % 100))
    return path


def test_text_equals_that_of_the_scripts(shard: Path, tmp_path: Path) -> None:
    output = tmp_path / "x.idx"
    assert write_text_index(shard, output) == build_index(shard)
    assert output.read_text() == tfrecord2idx(shard)
    assert read_text_index(output, shard) == build_index(shard)
    with pytest.raises(ExistsError):
        write_text_index(shard, output)
    write_text_index(shard, output, exists="replace")


def test_text_of_an_empty_shard_is_empty(tmp_path: Path, shard: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    write_text_index(empty, tmp_path / "idx")
    assert (tmp_path / "idx").read_bytes() == b""
    assert read_text_index(tmp_path / "idx", empty).records == 0
    with pytest.raises(PlanError, match="it is empty"):
        read_text_index(tmp_path / "idx", shard)


def test_spaces_and_line_ends_do_not_matter(shard: Path, tmp_path: Path) -> None:
    output = tmp_path / "x.idx"
    output.write_bytes(tfrecord2idx(shard).replace("\n", "\r\n").replace(" ", "\t").encode() + b"\n\n")
    assert read_text_index(output, shard) == build_index(shard)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0 17\n17", "one is missing"),
        ("0 -17\n", "decimal numbers only"),
        ("\x89SKIDX", "decimal numbers only"),
        (f"0 {2**64}\n", "more than 64 bits"),
        ("0 1" + "0" * 5000, "more than 64 bits"),
    ],
)
def test_non_text_index_is_refused(text: str, says: str, shard: Path, tmp_path: Path) -> None:
    output = tmp_path / "x.idx"
    output.write_text(text, encoding="latin-1")
    with pytest.raises(FormatError, match=says):
        read_text_index(output, shard)


def test_text_of_another_shard_is_refused(shard: Path, tmp_path: Path) -> None:
    output = tmp_path / "x.idx"
    lines = tfrecord2idx(shard).splitlines(keepends=True)

    def refused(says: str, *changed: str) -> None:
        output.write_text("".join(changed))
        with pytest.raises(PlanError, match=says) as caught:
            read_text_index(output, shard)
        assert str(shard) in str(caught.value)

    refused("record 198 does not reach", *lines[:-1], "9 16\n")
    refused("record 199 does not reach", *lines[:-1], lines[-1].rstrip() + "0\n")
    refused("record 198 does not reach", *lines[:-1])
    refused("record 0 does not reach", *lines[1:])
    refused("record 3 does not reach", *lines[:4], *lines[5:])
    refused("record 0 does not reach", f"16 {shard.stat().st_size - 16}\n")
    refused("record 1 does not reach", "0 16\n", f"16 {2**64 - 16}\n")
    wraps = f"0 {2**64 - 16}\n", f"{2**64 - 16} {shard.stat().st_size + 16}\n"
    refused("record 0 does not reach", *wraps)
    refused("no frame of 17 bytes at byte 0", "0 17\n", f"17 {shard.stat().st_size - 17}\n")
    refused("record 1 does not reach", "0 16\n", "16 15\n", f"31 {shard.stat().st_size - 31}\n")


@given(draw=st.data())
def test_changed_number_is_refused(draw: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("changed")
    path, output = folder / "x", folder / "x.idx"
    with Writer(path) as w:
        for i in range(5):
            w.write(b"x" * i)
    numbers = tfrecord2idx(path).split()
    at = draw.draw(st.integers(0, len(numbers) - 1))
    other = draw.draw(st.integers(0, 120) | st.integers(0, 2**64 - 1))
    right = str(other) == numbers[at]
    numbers[at] = str(other)
    output.write_text(" ".join(numbers))
    try:
        index = read_text_index(output, path)
    except PlanError:
        assert not right
    else:
        assert right
        assert index == build_index(path)


@pytest.mark.parametrize("cut", [1, 4, 40, 70])
def test_an_index_of_a_cut_shard_says_that_the_shard_is_cut(cut: int, shard: Path, tmp_path: Path) -> None:
    shard.write_bytes(shard.read_bytes()[:-cut])
    output = tmp_path / "x.idx"
    output.write_text(tfrecord2idx(shard))
    with pytest.raises(TruncatedFileError, match="ends inside"):
        read_text_index(output, shard)


def test_missing_text_index_is_not_found(shard: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no-idx"):
        read_text_index(tmp_path / "no-idx", shard)
    (tmp_path / "idx").touch()
    with pytest.raises(NotFoundError, match="no-shard"):
        read_text_index(tmp_path / "idx", tmp_path / "no-shard")
