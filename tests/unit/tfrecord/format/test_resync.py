"""Search for the next whole record after damage.

Covers `shardkeep.tfrecord.format.frame`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep._core import masked_crc32c
from shardkeep.tfrecord.format import resync
from shardkeep.tfrecord.format.resync import next_frame
from tests.unit.tfrecord.test_reader import frame


@pytest.fixture(scope="module")
def fd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    descriptor = os.open(tmp_path_factory.mktemp("resync") / "x", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def content(fd: int, data: bytes) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, data, 0)


GOOD = frame(b"good")


@pytest.mark.parametrize(
    ("damage", "lost"),
    [
        (b"?" + frame(b"a")[1:], 17),  # the length
        (frame(b"some payload")[:-1] + b"?", 28),  # the payload
        (frame(b"cut off")[:10], 10),
        (b"\n", 1),
        (bytes(5000), 5000),
        (frame(b"x" * 50)[:40], 40),
        (frame(b"")[:-1] + b"?", 16),
    ],
)
def test_next_whole_record_is_found(fd: int, damage: bytes, lost: int) -> None:
    for behind in (GOOD, frame(b""), frame(bytes(20))):
        content(fd, GOOD + damage + behind + GOOD)
        assert next_frame(fd, len(GOOD)) == len(GOOD) + lost
    content(fd, GOOD + damage)
    assert next_frame(fd, len(GOOD)) is None


def test_record_inside_a_damaged_payload_is_skipped(fd: int) -> None:
    bad = bytearray(frame(b"ab" + frame(b"inside") + b"cd"))
    bad[12] ^= 1
    content(fd, bytes(bad) + GOOD)
    assert next_frame(fd, 0) == len(bad)
    content(fd, bytes(bad))
    assert next_frame(fd, 0) is None


def test_valid_length_before_a_wrong_payload_is_skipped(fd: int) -> None:
    content(fd, b"?" + frame(b"abc")[:-1] + b"?" + GOOD)
    assert next_frame(fd, 0) == 20


@given(size=st.integers(0, 70), noise=st.binary(max_size=70))
def test_record_across_a_block_boundary_is_found(size: int, noise: bytes, fd: int) -> None:
    old, resync._BLOCK_BYTES = resync._BLOCK_BYTES, 16
    try:
        content(fd, b"\xff" * (size + 12) + frame(noise))
        assert next_frame(fd, 0) == size + 12
    finally:
        resync._BLOCK_BYTES = old


@pytest.mark.parametrize("length", [2**63 - 30, 2**63, 2**64 - 1])
def test_length_beyond_any_file_is_skipped(length: int, fd: int) -> None:
    claimed = length.to_bytes(8, "little")
    content(fd, claimed + masked_crc32c(claimed).to_bytes(4, "little") + b"rest" + GOOD)
    assert next_frame(fd, 0) == 16


@given(st.binary(min_size=8, max_size=100))
def test_sums_of_many_places_are_those_of_single_lengths(data: bytes) -> None:
    places = np.arange(len(data) - 7)
    sums = resync._length_sums(np.frombuffer(data, np.uint8), places)
    assert sums.tolist() == [masked_crc32c(data[place : place + 8]) for place in places]


def test_search_ends_at_a_limit(fd: int) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, bytes(range(100, 200)) * 30 + frame(b"whole"), 0)
    assert next_frame(fd, 0) == next_frame(fd, 0, until_bytes=3001) == 3000
    assert next_frame(fd, 0, until_bytes=1000) is None
