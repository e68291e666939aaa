import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.collector.protocol.messages import (
    BadMessage,
    Kind,
    Part,
    pack,
    pack_parts,
    unpack,
    unpack_parts,
    unpack_table,
)

_PARTS = st.builds(
    Part,
    st.text(max_size=20),
    st.integers(0, 1 << 31),
    st.integers(0, 50),
    st.none() | st.integers(1, 1 << 40),
    st.booleans(),
)


@given(st.lists(_PARTS, max_size=5), st.integers(0, 1 << 63))
def test_a_batch_is_the_same_after_pack_and_unpack(parts, sequence):
    frames = [*pack(Kind.BATCH, sequence=sequence, value=5, parts=len(parts)), pack_parts(parts)]
    frames += [bytes(part.bytes) for part in parts if part.offset is None]
    message = unpack(frames)
    assert (message.kind, message.sequence, message.value) == (Kind.BATCH, sequence, 5)
    assert [part for part, _ in unpack_parts(message)] == parts
    assert all((frame is None) == (part.offset is not None) for part, frame in unpack_parts(message))


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_random_bytes_are_refused(frames):
    with pytest.raises(BadMessage):
        unpack_parts(unpack([b"SK", *frames]))


@given(st.binary(max_size=100), st.integers(0, 3))
def test_a_random_table_is_refused_or_small(table, count):
    with contextlib.suppress(BadMessage):
        assert len(unpack_table(table, count)) == count


@given(st.data())
def test_a_changed_batch_is_refused_or_consistent(data):
    frames = [*pack(Kind.BATCH, sequence=1, parts=1), pack_parts([Part("x", 2, 16)]), bytes(16)]
    one = data.draw(st.integers(0, 2))
    changed = bytearray(frames[one])
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    frames[one] = bytes(changed)
    with contextlib.suppress(BadMessage):
        for part, frame in unpack_parts(unpack(frames)):
            assert frame is None or len(frame) == part.bytes


@pytest.mark.parametrize("body", [b"", b"[1]", b"{", b"[" * 100_000, b"\xff"])
def test_invalid_json_is_refused(body):
    header = pack(Kind.HELLO)
    with pytest.raises(BadMessage):
        unpack([*header, body]).json()


def test_another_version_is_refused():
    header = bytearray(pack(Kind.PING)[0])
    header[2] = 9
    with pytest.raises(BadMessage, match="version 9"):
        unpack([bytes(header)])
