from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.tfrecord.events.protobuf import WireError, fields, signed, varint


def put_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | bytes | str, wire: int | None = None) -> bytes:
    """A varint, a length-delimited field, or with `wire` 1 or 5 a fixed-width one."""
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, int):
        return put_varint(number << 3) + put_varint(value & (1 << 64) - 1)
    if wire is not None:
        return put_varint(number << 3 | wire) + value
    return put_varint(number << 3 | 2) + put_varint(len(value)) + value


def walk(data: bytes) -> list[tuple[int, int, int]]:
    return list(fields(data, 0, len(data)))


@given(st.integers(0, 2**64 - 1))
def test_varints_round_trip(value: int) -> None:
    assert varint(b"?" + put_varint(value), 1) == (value, 1 + len(put_varint(value)))


def test_signed_numbers() -> None:
    assert [signed(n) for n in (0, 2**63 - 1, 2**63, 2**64 - 1)] == [0, 2**63 - 1, -(2**63), -1]


def test_fields_of_every_type() -> None:
    data = field(1, 300) + field(2, b"ab") + field(3, bytes(8), 1) + field(4, bytes(4), 5) + field(2000, b"")
    found = walk(data)
    assert found[0] == (1 << 3, 300, 0)
    assert [data[a:b] for _, a, b in found[1:]] == [b"ab", bytes(8), bytes(4), b""]
    assert [tag >> 3 for tag, _, _ in found] == [1, 2, 3, 4, 2000]


def test_a_long_field() -> None:
    data = field(2, b"x" * 1000)
    assert walk(data) == [(2 << 3 | 2, 3, 1003)]


@pytest.mark.parametrize(
    "group",
    [b"", field(1, 300), field(2, b"abc") + field(3, bytes(8), 1) + field(4, bytes(4), 5), b"\x23\x24"],
)
def test_groups_are_passed_over(group: bytes) -> None:
    assert [tag for tag, _, _ in walk(b"\x1b" + group + b"\x1c" + field(1, 7))] == [8]


@pytest.mark.parametrize(
    "data",
    [
        b"\x08",
        b"\x08\x80",
        b"\x08" + b"\x80" * 11,
        b"\x0a\x05ab",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x09" + bytes(7),
        b"\x0d" + bytes(3),
        b"\x0e",
        b"\x0c",
        b"\x00\x01",
        b"\x1b",
        b"\x1b\x24",
        b"\x1b\x1f",
        b"\x1b" * 200,
    ],
    ids=bytes.hex,
)
def test_broken_messages_are_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        walk(data)


def test_a_field_ends_with_its_message_not_with_the_bytes() -> None:
    data = field(1, b"abc")
    for end in range(1, len(data)):
        with pytest.raises(WireError):
            list(fields(data, 0, end))
    with pytest.raises(WireError):
        list(fields(b"\x08\x80\x01", 0, 2))


@given(st.binary(max_size=60))
def test_any_bytes_end_in_fields_or_in_the_one_error(data: bytes) -> None:
    try:
        found = walk(data)
    except WireError:
        return
    assert all(b <= len(data) for tag, _, b in found)
