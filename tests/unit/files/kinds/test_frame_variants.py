from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.files.kinds.frame_variants import find_variant, is_frame_header
from tests.odd_files import OddFile, frame, header, odd_files

NEARLY = [
    case for case in odd_files() if case.said in {"byte-swapped", "not masked", "CRC-32 instead", "line ends"}
]


@pytest.mark.parametrize("case", NEARLY, ids=lambda case: case.name)
def test_fault_is_named_only_if_its_checksum_matches(case: OddFile) -> None:
    assert not is_frame_header(case.data)
    found = find_variant(case.data)
    assert found is not None and case.said in found[0] and found[1]
    damaged = bytearray(case.data)
    damaged[9] ^= 4
    assert find_variant(bytes(damaged)) is None


@given(st.integers(0, 2**40))
def test_correct_header_is_recognised(length: int) -> None:
    assert is_frame_header(header(length))
    assert not is_frame_header(header(length)[:11])


@given(st.binary(max_size=100))
def test_other_bytes_have_no_variant(data: bytes) -> None:
    assert find_variant(b"\x00\x01" + data) is None or len(data) >= 5


def test_length_of_256_tib_is_a_byte_swapped_one() -> None:
    assert not is_frame_header(header(200 << 56))
    found = find_variant(header(200 << 56))
    assert found is not None and "byte-swapped" in found[0]


def test_too_few_bytes_have_no_variant() -> None:
    for cut in range(12):
        assert find_variant(frame(b"0123456789")[:cut]) is None
