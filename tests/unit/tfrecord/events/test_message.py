from __future__ import annotations

import contextlib
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.tfrecord.events.message import EventParser
from shardkeep.tfrecord.events.protobuf import WireError
from tests.unit.tfrecord.events.test_protobuf import field


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


def test_the_first_event_of_a_file() -> None:
    assert EventParser().parse(version_event(1.5)) == (1.5, 0, "brain.Event:2", [])


def test_simple_values() -> None:
    got = EventParser().parse(event(12.25, 2**40, simple("a", 0.5), simple("größe", -math.inf)))
    assert got == (12.25, 2**40, "", [("a", 0.5), ("größe", -math.inf)])


def test_negative_steps() -> None:
    assert EventParser().parse(event(1.0, -3)).step == -3


CONTENT = [
    (1, "<f", 0.5), (2, "<d", 0.1), (3, "<i", -7), (4, "<B", 200), (5, "<h", -300), (6, "<b", -3),
    (9, "<q", -(2**40)), (10, "<?", True), (17, "<H", 60_000), (19, "<e", 0.25), (22, "<I", 2**32 - 1),
    (23, "<Q", 2**63),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "code", "value"), CONTENT)
def test_tensor_content(dtype: int, code: str, value: float) -> None:
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
def test_tensor_values(dtype: int, part: bytes, value: float) -> None:
    assert scalars(tensor("x", dtype, SCALAR_SHAPE, part)) == [("x", value)]


def test_the_order_of_fields_does_not_matter() -> None:
    inner = field(4, struct.pack("<d", 0.1)) + field(2, b"") + field(1, 2)
    assert scalars(metadata("scalars") + field(8, inner) + field(1, "x")) == [("x", 0.1)]


def test_bfloat16_content() -> None:
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


def test_unknown_fields_are_passed_over() -> None:
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
def test_a_tensor_that_cannot_be_is_refused(part: bytes) -> None:
    with pytest.raises(WireError):
        scalars(tensor("x", 1, SCALAR_SHAPE, part))


def test_several_packed_integers_are_refused() -> None:
    with pytest.raises(WireError, match="several"):
        scalars(tensor("x", 9, SCALAR_SHAPE, field(10, b"\x01\x02")))
    with pytest.raises(WireError):
        EventParser().parse(event(1, 1, tensor("x", 9, SCALAR_SHAPE, field(10, b"\x80"), plugin=None)))


WHOLE = event(1.5, 300, simple("loss", 0.5), tensor("x", 9, SCALAR_SHAPE, packed(10, 2**40)))


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255), st.integers(0, len(WHOLE)))
def test_no_bytes_raise_anything_else(at: int, byte: int, cut: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[at] = byte
    for data in (bytes(damaged), WHOLE[:cut], bytes(damaged[:cut])):
        with contextlib.suppress(WireError):
            EventParser().parse(data)
