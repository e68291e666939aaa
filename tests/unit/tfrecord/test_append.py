"""Tests of the append.

Covers `shardkeep.tfrecord.format.frame`.
"""

from __future__ import annotations

import gzip
import os
import random
import tempfile
import zlib
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep._core import masked_crc32c
from shardkeep.errors import CorruptDataError, FormatError, RepairRefusedError, ShardkeepError
from shardkeep.tfrecord import Reader, Writer
from shardkeep.tfrecord.append import cut_torn_tail
from shardkeep.tfrecord.format.frame import HEADER
from shardkeep.tfrecord.index.damaged import index_around_damage
from tests.unit.tfrecord.test_reader import frame


def header(length: int) -> bytes:
    return HEADER.pack(length, masked_crc32c(HEADER.pack(length, 0)[:8]))


def overrunning(payload: bytes, length: int) -> bytes:
    """Return a frame with a wrong length and the correct checksum of it."""
    return header(length) + frame(payload)[12:]


@pytest.mark.parametrize("length", [200, 2**40, 2**64 - 1])
@pytest.mark.parametrize("tail", [b"", frame(b"torn")[:-3], frame(b"torn")[:7], bytes(3)])
def test_record_that_overlaps_whole_ones_is_damage(length: int, tail: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x"
    content = frame(b"first") + overrunning(b"abc", length) + frame(b"second") + frame(b"") + tail
    path.write_bytes(content)
    with pytest.raises(RepairRefusedError, match=r"record 1 at byte 21 .* follows at byte 40") as caught:
        Writer(path, exists="append")
    assert (caught.value.record, caught.value.offset_bytes) == (1, 21)
    assert caught.value.path == os.fspath(path)
    assert "shardkeep verify" in str(caught.value)
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["x"]


def test_a_lost_block_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "x"
    content = frame(b"first") + frame(b"x" * 300)[:100] + frame(b"second")
    path.write_bytes(content)
    with pytest.raises(RepairRefusedError):
        Writer(path, exists="append")
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "tail",
    [
        frame(b"x" * 300)[:100] + frame(b"y" * 50)[:40],  # of two writers that were killed
        frame(b"x" * 300)[:100] + bytes(150),
        header(2**63),
    ],
)
def test_torn_pieces_without_a_whole_record_are_cut_off(tail: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(frame(b"first") + tail)
    with Writer(path, exists="append") as w:
        w.write(b"next")
    assert list(Reader(path)) == [b"first", b"next"]


@pytest.mark.parametrize("bit", [0, 5, 37, 63, 64, 95])
def test_a_flipped_bit_of_a_length_is_damage(bit: int, tmp_path: Path) -> None:
    path = tmp_path / "x"
    for rest in (b"", frame(b"more")):
        damaged = bytearray(frame(b"first") + frame(b"last") + rest)
        damaged[21 + bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(CorruptDataError):
            Writer(path, exists="append")
        assert path.read_bytes() == damaged


def stored_member(payload: bytes) -> bytes:
    """Return a gzip member of one stored block; truncated, it includes the following bytes."""
    packer = zlib.compressobj(0, zlib.DEFLATED, 31)
    return packer.compress(payload) + packer.flush()


def test_whole_gzip_members_after_a_torn_one_stay(tmp_path: Path) -> None:
    path = tmp_path / "x"
    first = gzip.compress(frame(b"first"))
    torn = stored_member(frame(bytes(20_000)))[:5000]
    content = first + torn + gzip.compress(frame(b"second"))
    path.write_bytes(content)
    with pytest.raises(RepairRefusedError, match=f"at byte {len(first)} .* at byte {len(first) + 5000}"):
        Writer(path, exists="append", compression="gzip")
    assert path.read_bytes() == content
    path.write_bytes(first + torn + gzip.compress(frame(b"second"))[:-1])
    with Writer(path, exists="append", compression="gzip") as w:
        w.write(b"next")
    assert list(Reader(path)) == [b"first", b"next"]


def test_another_compressed_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(b"a log of something else"))
    with pytest.raises(FormatError, match="gzip-compressed data; inside is plain text"):
        Writer(path, exists="append", compression="gzip")


def damaged(content: bytes, chance: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(data) + 1)
        more = chance.choice([1, 4, 12, 30, 200])
        kind = chance.randrange(7)
        if kind == 0:
            del data[at:]
        elif kind == 1:
            del data[at : at + more]
        elif kind == 2:
            data[at : at + more] = bytes(len(data[at : at + more]))
        elif kind == 3 and data:
            data[at % len(data)] ^= 1 << chance.randrange(8)
        elif kind == 4:
            data[at:at] = chance.randbytes(more)
        elif kind == 5:
            data += frame(chance.randbytes(more))[: chance.randint(1, more + 16)]
        else:
            data[at:at] = header(chance.choice([more, 2**20, 2**62]))
    return bytes(data)


def readable(path: Path) -> list[bytes] | None:
    """Return the records of a reader that skips damaged ones; None if the file has another kind."""
    if not path.stat().st_size:
        return []
    try:
        index = index_around_damage(os.fspath(path))
    except FormatError:
        return None
    data, starts = path.read_bytes(), index.starts.tolist()
    frames = [data[start:end] for start, end in pairwise(starts)]
    return [one[12:-4] for one in frames if len(one) >= 16 and one == frame(one[12:-4])]


@given(sizes=st.lists(st.integers(0, 60), max_size=6), seed=st.integers(0, 2**32))
def test_append_loses_no_record_that_can_be_read(sizes: list[int], seed: int) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        content = damaged(b"".join(frame(chance.randbytes(size)) for size in sizes), chance)
        path.write_bytes(content)
        before = readable(path)
        try:
            with Writer(path, exists="append") as w:
                w.write(b"next")
        except ShardkeepError:
            assert path.read_bytes() == content
        else:
            assert before is not None
            assert list(Reader(path)) == [*before, b"next"]


def test_writer_removes_its_own_torn_record_with_any_content(tmp_path: Path) -> None:
    path = tmp_path / "x"
    torn = frame(frame(b"a TFRecord file in a record") * 3)[:-5]
    path.write_bytes(frame(b"first") + torn)
    with open(path, "r+b") as file:
        with pytest.raises(RepairRefusedError):
            cut_torn_tail(file.fileno(), os.fspath(path), written_from=22)
        cut_torn_tail(file.fileno(), os.fspath(path), written_from=21)
    assert path.read_bytes() == frame(b"first")
