from __future__ import annotations

import itertools
import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep._core import crc32c
from shardkeep.tfrecord.index.binary import decode, encode, read_frame_lengths, read_index_file
from shardkeep.tfrecord.index.fingerprint import SAMPLES, Fingerprint

HEAD_BYTES = 72


def starts_of(lengths: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.array(lengths, dtype=np.uint64))]).astype(np.uint64)


def made(lengths: list[int], *, mtime_ns: int = 5, samples: tuple[int, ...] = (1, 2)) -> bytes:
    starts = starts_of(lengths)
    return encode(starts, Fingerprint(int(starts[-1]), mtime_ns, samples))


def sealed(data: bytes) -> bytes:
    """Return changed bytes with a correct checksum."""
    return data[:-4] + struct.pack("<I", crc32c(data[:-4]))


@given(
    st.lists(st.integers(16, 100_000) | st.integers(16, 2**40), max_size=50),
    st.integers(-(2**63), 2**63 - 1),
    st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=SAMPLES).map(tuple),
)
def test_encoded_index_is_decoded_again(lengths: list[int], mtime_ns: int, samples: tuple[int, ...]) -> None:
    starts = starts_of(lengths)
    fingerprint = Fingerprint(int(starts[-1]), mtime_ns, samples)
    found = decode(encode(starts, fingerprint), shard_bytes=fingerprint.size_bytes)
    assert found is not None
    assert found[0].dtype == np.uint64
    assert found[0].tolist() == starts.tolist()
    assert found[1] == fingerprint


def test_bytes_follow_the_documented_format() -> None:
    data = made([16, 20], mtime_ns=-7, samples=(3, 4))
    head = b"\x89SKIDX\r\n" + bytes.fromhex("0100 02 02 00000000")
    head += struct.pack("<QQq8I", 2, 36, -7, 3, 4, 0, 0, 0, 0, 0, 0)
    body = head + struct.pack("<HH", 16, 20)
    assert data == body + struct.pack("<I", crc32c(body))
    assert len(head) == HEAD_BYTES


@pytest.mark.parametrize(("longest", "width"), [(65_535, 2), (65_536, 4), (2**32 - 1, 4), (2**32, 8)])
def test_lengths_have_the_smallest_sufficient_width(longest: int, width: int) -> None:
    assert len(made([16, longest])) == HEAD_BYTES + 2 * width + 4


def test_every_flipped_bit_every_cut_and_every_addition_is_refused() -> None:
    data = made([16, 70, 33])
    assert decode(data, shard_bytes=10_000) is not None
    for bit in range(len(data) * 8):
        bad = bytearray(data)
        bad[bit // 8] ^= 1 << bit % 8
        assert decode(bytes(bad), shard_bytes=2**62) is None, bit
    for cut in range(len(data)):
        assert decode(data[:cut], shard_bytes=2**62) is None
    assert decode(data + b"\0", shard_bytes=2**62) is None


def test_other_versions_widths_and_counts_are_refused() -> None:
    data = made([16, 70, 33])
    for at, value in [(8, 2), (8, 0), (10, 0), (10, 1), (10, 3), (10, 16), (11, 0), (11, SAMPLES + 1)]:
        bad = sealed(data[:at] + bytes([value]) + data[at + 1 :])
        assert decode(bad, shard_bytes=2**62) is None, (at, value)


@given(st.data())
def test_manipulated_index_is_refused_or_still_valid(draw: st.DataObject) -> None:
    """With a correct checksum, only the checks of the bounds protect a reader from a hostile file."""
    lengths = draw.draw(st.lists(st.integers(16, 2**40), min_size=1, max_size=8))
    data = bytearray(made(lengths))
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(8, len(data) - 5))
        data[at] = draw.draw(st.sampled_from([0, 1, 15, 16, 0x7F, 0xFF]) | st.integers(0, 255))
    found = decode(sealed(bytes(data)), shard_bytes=2**50)
    if found is not None:
        starts, fingerprint = [int(start) for start in found[0]], found[1]
        assert starts[0] == 0
        assert starts[-1] == fingerprint.size_bytes <= 2**50
        assert all(b - a >= 16 for a, b in itertools.pairwise(starts))


@pytest.mark.parametrize(
    "lengths",
    [
        [2**63, 2**63, 36],  # add up to 36 in 64 bits
        [2**64 - 20, 20 + 36],
        [15, 21],
        [0, 36],
    ],
)
def test_lengths_that_overflow_or_are_shorter_than_a_frame_are_refused(lengths: list[int]) -> None:
    data = made([2**33] * len(lengths))
    head = bytearray(data[:HEAD_BYTES])
    head[24:32] = struct.pack("<Q", 36)
    bad = sealed(bytes(head) + struct.pack(f"<{len(lengths)}Q", *lengths) + b"\0" * 4)
    assert decode(bad, shard_bytes=2**62) is None
    head[24:32] = struct.pack("<Q", 48)  # so that the number of records is possible
    assert decode(sealed(bytes(head) + bad[HEAD_BYTES:]), shard_bytes=2**62) is None


def test_lengths_that_do_not_add_up_to_the_size_are_refused() -> None:
    data = bytearray(made([16, 20]))
    data[24:32] = struct.pack("<Q", 37)
    assert decode(sealed(bytes(data)), shard_bytes=1000) is None


def test_index_of_more_bytes_than_the_shard_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.skidx"
    path.write_bytes(made([16, 20]))
    assert read_index_file(str(path), shard_bytes=36) is not None
    assert read_index_file(str(path), shard_bytes=35) is None


def test_a_claim_of_many_records_allocates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.skidx"
    head = bytearray(made([16])[:HEAD_BYTES])
    head[16:24] = struct.pack("<Q", 2**31)
    head[24:32] = struct.pack("<Q", 2**36)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(HEAD_BYTES + 2 * 2**31 + 4)  # a file with a hole: as long as it claims
    tracemalloc.start()
    try:
        assert read_index_file(str(path), shard_bytes=2**30) is None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.filterwarnings("ignore:the index:RuntimeWarning")
def test_non_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert read_index_file(str(path), shard_bytes=100) is None
    path.mkdir()
    assert read_index_file(str(path), shard_bytes=100) is None
    os.mkfifo(tmp_path / "fifo")
    assert read_index_file(str(tmp_path / "fifo"), shard_bytes=100) is None
    (tmp_path / "loop").symlink_to("loop")
    assert read_index_file(str(tmp_path / "loop"), shard_bytes=100) is None
    assert read_index_file("/dev/zero", shard_bytes=100) is None
    (tmp_path / "empty").touch()
    assert read_index_file(str(tmp_path / "empty"), shard_bytes=100) is None


def test_a_part_of_the_lengths_is_read(tmp_path: Path) -> None:
    shard, index = tmp_path / "a", tmp_path / "a.skidx"
    shard.write_bytes(bytes(16 + 20 + 30))
    index.write_bytes(made([16, 20, 30]))
    status = os.stat(shard)
    assert read_frame_lengths(str(index), status, 1, 2).tolist() == [20]
    assert read_frame_lengths(str(index), status, 1, 9).tolist() == [20, 30]
    assert read_frame_lengths(str(index), status, 9, 12).tolist() == []
    index.write_bytes(made([16, 20, 30])[:-1])
    with pytest.raises(OSError, match="was replaced or is damaged"):
        read_frame_lengths(str(index), status, 0, 1)
