from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep._core import find_flipped_bit, masked_crc32c
from shardkeep.tfrecord.format.bit_repair import corrected_frame, corrected_length
from tests.unit.tfrecord.test_reader import frame


def flipped(data: bytes, *bits: int) -> bytes:
    changed = bytearray(data)
    for bit in bits:
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@given(st.binary(max_size=300), st.data())
def test_any_single_flipped_bit_of_a_frame_is_corrected(payload: bytes, data: st.DataObject) -> None:
    good = frame(payload)
    bit = data.draw(st.integers(0, len(good) * 8 - 1))
    found = corrected_frame(flipped(good, bit))
    assert found is not None
    assert found[0] == good
    assert f"bit {bit % 8} of byte" in found[1]


@given(st.binary(max_size=300), st.data())
def test_two_bits_of_a_payload_and_its_checksum_are_left_alone(payload: bytes, data: st.DataObject) -> None:
    good = frame(payload)
    bits = st.integers(12 * 8, len(good) * 8 - 1)
    one, other = data.draw(st.tuples(bits, bits).filter(lambda two: two[0] != two[1]))
    assert corrected_frame(flipped(good, one, other)) is None


def test_intact_and_unrecognisable_frames_are_not_corrected() -> None:
    assert corrected_frame(frame(b"abc")) is None
    assert corrected_frame(b"") is None
    assert corrected_frame(bytes(15)) is None


@pytest.mark.parametrize("length", [0, 1, 51_000, 2**40, 2**64 - 1])
def test_any_single_flipped_bit_of_a_length_is_corrected(length: int) -> None:
    raw = length.to_bytes(8, "little")
    header = raw + masked_crc32c(raw).to_bytes(4, "little")
    for bit in range(96):
        assert corrected_length(flipped(header, bit)) == length
    assert corrected_length(flipped(header, 3, 70)) is None
    assert corrected_length(header) is None
    assert corrected_length(header[:-1]) is None


def test_long_payload_with_an_ambiguous_bit_is_not_corrected() -> None:
    payload = bytes((1 << 20) + 1)
    assert find_flipped_bit(flipped(payload, 9), masked_crc32c(payload)) is None
    less = payload[1:]
    assert find_flipped_bit(flipped(less, 10), masked_crc32c(less)) == ("data", 10)
