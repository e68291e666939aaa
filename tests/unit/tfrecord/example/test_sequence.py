from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.errors import CorruptRecordError, FormatError, SchemaError
from shardkeep.tfrecord import decode_sequence_example, encode_example, encode_sequence_example
from tests.messages import OTHER_MESSAGES

INT64 = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(lambda x: np.array(x, np.int64))
FLOAT = st.lists(st.floats(width=32), max_size=4).map(lambda x: np.array(x, np.float32))
BYTES = st.lists(st.binary(max_size=5), max_size=4)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return bool(one == other)


@given(
    st.dictionaries(NAMES, INT64 | FLOAT | BYTES.filter(bool), max_size=4),
    st.dictionaries(
        NAMES,
        st.lists(st.none() | INT64, max_size=4)
        | st.lists(st.none() | FLOAT, max_size=4)
        # A list of nothing but empty lists would have no kind.
        | st.lists(st.none() | BYTES, max_size=4).filter(lambda steps: any(steps) or [] not in steps),
        max_size=4,
    ),
)
def test_values_round_trip(context: dict[str, Any], feature_lists: dict[str, list[Any]]) -> None:
    record = encode_sequence_example(context, feature_lists)
    got_context, got_lists = decode_sequence_example(record)
    assert list(got_context) == sorted(context, key=str.encode)
    assert all(same(context[name], got) for name, got in got_context.items())
    assert list(got_lists) == sorted(feature_lists, key=str.encode)
    for name, steps in got_lists.items():
        assert len(steps) == len(feature_lists[name])
        assert all(map(same, feature_lists[name], steps))
    assert encode_sequence_example(got_context, got_lists) == record


def test_an_empty_step_has_the_kind_of_the_others() -> None:
    record = encode_sequence_example({}, {"x": [[], [1, 2], None]})
    (steps,) = decode_sequence_example(record)[1].values()
    assert steps[0].dtype == np.int64
    assert steps[2] is None
    assert record == encode_sequence_example({}, {"x": [np.array([], "int64"), [1, 2], None]})
    assert record != encode_sequence_example({}, {"x": [None, [1, 2], None]})
    assert decode_sequence_example(encode_sequence_example({}, {"x": [[], [b"a"]]}))[1] == {"x": [[], [b"a"]]}


def test_absent_kindless_and_empty_steps_survive() -> None:
    # context "n" without a kind; the list "b" has two empty steps of bytes and one without a kind.
    record = bytes.fromhex("0a070a050a016e120012110a0f0a0162120a0a020a000a020a000a00")
    context, feature_lists = decode_sequence_example(record)
    assert (context, feature_lists) == ({"n": None}, {"b": [[], [], None]})
    assert encode_sequence_example(context, feature_lists) == record


def test_an_array_is_a_list_of_its_rows() -> None:
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    steps = decode_sequence_example(encode_sequence_example({}, {"x": rows}))[1]["x"]  # type: ignore[dict-item]
    np.testing.assert_array_equal(np.stack(steps), rows)


def test_empty_sequence_sets_both_fields() -> None:
    assert encode_sequence_example({}, {}) == b"\x0a\x00\x12\x00"
    assert decode_sequence_example(b"") == ({}, {})
    assert decode_sequence_example(encode_sequence_example({}, {"x": []})) == ({}, {"x": []})


def test_an_example_is_a_context_alone() -> None:
    assert decode_sequence_example(encode_example({"a": b"x"})) == ({"a": [b"x"]}, {})


@pytest.mark.parametrize(
    ("context", "feature_lists", "message"),
    [
        ({"x": []}, {}, "feature 'x': an empty list has no kind"),
        ({3: 1}, {}, "name of a feature must be a str, not 3"),
        ({}, {3: [1]}, "name of a feature must be a str, not 3"),
        ({}, {"x": b"abc"}, "feature list 'x': expected a list of steps, found bytes"),
        ({}, {"x": 3}, "feature list 'x': expected a list of steps, found int"),
        ({}, {"x": [[1], 2.5]}, "feature list 'x': step 1 holds float32, step 0 int64"),
        ({}, {"x": [None, [b"a"], [1]]}, "step 2 holds int64, step 1 bytes"),
        ({}, {"x": [[], None]}, "feature list 'x': empty steps alone have no kind"),
        ({}, {"x": [[1], [2j]]}, "feature list 'x', step 1: list cannot be stored"),
        ({}, {"x": [[2**63]]}, "feature list 'x', step 0: 9223372036854775808 cannot be stored"),
        ({}, {"x": [[b"a", 1]]}, "feature list 'x', step 0: int among bytes"),
    ],
)
def test_invalid_value_names_the_step(context: Any, feature_lists: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        encode_sequence_example(context, feature_lists)


@pytest.mark.parametrize("record", [b"\x0a", b"\x0a\x05\x0a", b"\x12\x04\x0a\x02\x0a", b"\xff" * 11])
def test_non_message_is_refused(record: bytes) -> None:
    with pytest.raises(CorruptRecordError, match=r"not a tf\.train\.SequenceExample"):
        decode_sequence_example(record)


@pytest.mark.parametrize("name", [name for name in OTHER_MESSAGES if name != "tf.train.SequenceExample"])
def test_other_messages_are_named(name: str) -> None:
    with pytest.raises(FormatError, match=rf"not a tf\.train\.SequenceExample: it is a {name}; "):
        decode_sequence_example(OTHER_MESSAGES[name])
