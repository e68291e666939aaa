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
def test_a_mistake_is_named_only_where_its_checksum_fits(case: OddFile) -> None:
    assert not is_frame_header(case.data)
    found = find_variant(case.data)
    assert found is not None and case.said in found[0] and found[1]
    damaged = bytearray(case.data)
    damaged[9] ^= 4
    assert find_variant(bytes(damaged)) is None


@given(st.integers(0, 2**40))
def test_a_right_header_is_one(length: int) -> None:
    assert is_frame_header(header(length))
    assert not is_frame_header(header(length)[:11])


@given(st.binary(max_size=100))
def test_other_bytes_are_nothing(data: bytes) -> None:
    assert find_variant(b"\x00\x01" + data) is None or len(data) >= 5


def test_a_length_that_no_file_can_have_is_one_in_the_wrong_order() -> None:
    assert not is_frame_header(header(200 << 56))
    found = find_variant(header(200 << 56))
    assert found is not None and "byte-swapped" in found[0]


def test_nothing_is_made_of_too_little() -> None:
    for cut in range(12):
        assert find_variant(frame(b"0123456789")[:cut]) is None
