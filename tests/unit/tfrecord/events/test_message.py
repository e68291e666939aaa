from __future__ import annotations

import contextlib
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep._core import WireError, protobuf_fields, protobuf_varint
from shardkeep.tfrecord.events import message
from shardkeep.tfrecord.events.message import EventParser


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
    return protobuf_fields(data, 0, len(data))


def event(wall_time: float, step: int, *values: bytes) -> bytes:
    head = field(1, struct.pack("<d", wall_time), 1) + (field(2, step) if step else b"")
    return head + (field(5, b"".join(field(1, value) for value in values)) if values else b"")


def version_event(wall_time: float = 1.0) -> bytes:
    return event(wall_time, 0) + field(3, "brain.Event:2")


def simple(tag: str, value: float) -> bytes:
    return field(1, tag) + field(2, struct.pack("<f", value), 5)


def metadata(plugin: str) -> bytes:
    return field(9, field(1, field(1, plugin) + field(2, b"content")) + field(2, "display name"))


def tensor(tag: str, dtype: int, *parts: bytes, plugin: str | None = "scalars") -> bytes:
    inner = field(1, dtype) + b"".join(parts)
    return field(1, tag) + field(8, inner) + (b"" if plugin is None else metadata(plugin))


def scalars(*values: bytes) -> list[tuple[str, float]]:
    return EventParser().parse(event(1.0, 1, *values)).scalars


SCALAR_SHAPE = field(2, b"")


def test_version_event_has_no_scalar() -> None:
    assert EventParser().parse(version_event(1.5)) == (1.5, 0, "brain.Event:2", [])


def test_simple_values_are_scalars() -> None:
    got = EventParser().parse(event(12.25, 2**40, simple("a", 0.5), simple("größe", -math.inf)))
    assert got == (12.25, 2**40, "", [("a", 0.5), ("größe", -math.inf)])


def test_negative_steps_are_signed() -> None:
    assert EventParser().parse(event(1.0, -3)).step == -3


CONTENT = [
    (1, "<f", 0.5), (2, "<d", 0.1), (3, "<i", -7), (4, "<B", 200), (5, "<h", -300), (6, "<b", -3),
    (9, "<q", -(2**40)), (10, "<?", True), (17, "<H", 60_000), (19, "<e", 0.25), (22, "<I", 2**32 - 1),
    (23, "<Q", 2**63),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "code", "value"), CONTENT)
def test_tensor_content_is_decoded(dtype: int, code: str, value: float) -> None:
    part = field(4, struct.pack(code, value))
    assert scalars(tensor("x", dtype, SCALAR_SHAPE, part)) == [("x", float(value))]


def packed(number: int, value: int) -> bytes:
    return field(number, field(1, value)[1:])


VALUES = [
    (1, field(5, struct.pack("<f", 0.5)), 0.5),
    (1, field(5, struct.pack("<f", 0.5), 5), 0.5),
    (2, field(6, struct.pack("<d", 0.1)), 0.1),
    (2, field(6, struct.pack("<d", 0.1), 1), 0.1),
    (3, packed(7, -5), -5.0),
    (3, field(7, -5), -5.0),
    (5, packed(7, -5), -5.0),
    (4, packed(7, 200), 200.0),
    (9, packed(10, 2**40), float(2**40)),
    (9, field(10, -(2**40)), -float(2**40)),
    (10, packed(11, 1), 1.0),
    (14, packed(13, 0x4040), 3.0),
    (19, packed(13, 0x4200), 3.0),
    (22, packed(16, 2**32 - 1), 2.0**32 - 1),
    (23, packed(17, 2**64 - 1), 2.0**64),
    (1, b"", 0.0),
    (9, field(10, b""), 0.0),
]


@pytest.mark.parametrize(("dtype", "part", "value"), VALUES)
def test_tensor_values_are_decoded(dtype: int, part: bytes, value: float) -> None:
    assert scalars(tensor("x", dtype, SCALAR_SHAPE, part)) == [("x", value)]


def test_the_order_of_fields_does_not_matter() -> None:
    inner = field(4, struct.pack("<d", 0.1)) + field(2, b"") + field(1, 2)
    assert scalars(metadata("scalars") + field(8, inner) + field(1, "x")) == [("x", 0.1)]


def test_bfloat16_content_is_decoded() -> None:
    assert scalars(tensor("x", 14, SCALAR_SHAPE, field(4, b"\x40\x40"))) == [("x", 3.0)]


def dims(*sizes: int) -> bytes:
    return field(2, b"".join(field(2, field(1, size)) for size in sizes))


def test_non_scalars_are_skipped() -> None:
    content = field(4, struct.pack("<ff", 1, 2))
    assert scalars(tensor("vector", 1, dims(2), content)) == []
    assert scalars(tensor("text", 7, SCALAR_SHAPE, field(8, b"hello"))) == []
    assert scalars(tensor("complex", 8, SCALAR_SHAPE, field(4, bytes(8)))) == []
    one = field(4, struct.pack("<f", 1))
    assert scalars(tensor("histogram", 1, SCALAR_SHAPE, one, plugin="histograms")) == []
    assert scalars(field(1, "old histogram") + field(5, b"")) == []


def test_one_number_of_any_rank_is_a_scalar_if_its_plugin_says_so() -> None:
    one = field(4, struct.pack("<f", 1))
    assert scalars(tensor("x", 1, dims(1, 1), one)) == [("x", 1.0)]
    assert scalars(tensor("x", 1, dims(1, 1), one, plugin=None)) == []
    assert scalars(tensor("x", 1, SCALAR_SHAPE, one, plugin=None)) == [("x", 1.0)]


def test_metadata_of_the_first_value_holds_for_the_tag() -> None:
    parser = EventParser()
    one = field(4, struct.pack("<f", 1))
    for plugin in ("mine", None):
        assert parser.parse(event(1, 1, tensor("x", 1, SCALAR_SHAPE, one, plugin=plugin))).scalars == []
    assert parser.parse(event(1, 1, tensor("x", 1, SCALAR_SHAPE, one))).scalars == [("x", 1.0)]


def test_unknown_fields_are_ignored() -> None:
    more = field(4, b"a graph") + field(7, field(1, 2)) + field(99, b"?") + field(98, 5)
    value = simple("a", 1.0) + field(7, "node") + field(77, bytes(8), 1)
    assert EventParser().parse(more + event(1.0, 2, value) + more).scalars == [("a", 1.0)]


def test_a_field_of_another_type_is_unknown() -> None:
    assert EventParser().parse(field(1, 5) + field(2, b"x") + field(3, 1)) == (0.0, 0, "", [])


@pytest.mark.parametrize(
    "part",
    [
        field(4, bytes(3)),
        field(4, bytes(8)),
        field(5, bytes(8)),
        field(5, bytes(3)),
        field(5, 7),
    ],
)
def test_contradictory_tensor_is_refused(part: bytes) -> None:
    with pytest.raises(WireError):
        scalars(tensor("x", 1, SCALAR_SHAPE, part))


def test_several_packed_integers_are_refused() -> None:
    with pytest.raises(WireError, match="several"):
        scalars(tensor("x", 9, SCALAR_SHAPE, field(10, b"\x01\x02")))
    with pytest.raises(WireError):
        EventParser().parse(event(1, 1, tensor("x", 9, SCALAR_SHAPE, field(10, b"\x80"), plugin=None)))


WHOLE = event(1.5, 300, simple("loss", 0.5), tensor("x", 9, SCALAR_SHAPE, packed(10, 2**40)))


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255), st.integers(0, len(WHOLE)))
def test_any_bytes_are_an_event_or_a_wire_error(at: int, byte: int, cut: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[at] = byte
    for data in (bytes(damaged), WHOLE[:cut], bytes(damaged[:cut])):
        with contextlib.suppress(WireError):
            EventParser().parse(data)


@given(st.integers(0, 2**64 - 1))
def test_varints_round_trip(value: int) -> None:
    assert protobuf_varint(b"?" + put_varint(value), 1) == (value, 1 + len(put_varint(value)))


def test_numbers_are_signed_by_twos_complement() -> None:
    assert [message._signed(n) for n in (0, 2**63 - 1, 2**63, 2**64 - 1)] == [0, 2**63 - 1, -(2**63), -1]


def test_fields_of_every_wire_type_are_read() -> None:
    data = field(1, 300) + field(2, b"ab") + field(3, bytes(8), 1) + field(4, bytes(4), 5) + field(2000, b"")
    found = walk(data)
    assert found[0] == (1 << 3, 300, 0)
    assert [data[a:b] for _, a, b in found[1:]] == [b"ab", bytes(8), bytes(4), b""]
    assert [tag >> 3 for tag, _, _ in found] == [1, 2, 3, 4, 2000]


def test_long_field_is_read() -> None:
    data = field(2, b"x" * 1000)
    assert walk(data) == [(2 << 3 | 2, 3, 1003)]


@pytest.mark.parametrize(
    "group",
    [b"", field(1, 300), field(2, b"abc") + field(3, bytes(8), 1) + field(4, bytes(4), 5), b"\x23\x24"],
)
def test_groups_are_skipped(group: bytes) -> None:
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
            protobuf_fields(data, 0, end)
    with pytest.raises(WireError):
        protobuf_fields(b"\x08\x80\x01", 0, 2)


@given(st.binary(max_size=60))
def test_any_bytes_are_fields_or_a_wire_error(data: bytes) -> None:
    try:
        found = walk(data)
    except WireError:
        return
    assert all(b <= len(data) for tag, _, b in found)
