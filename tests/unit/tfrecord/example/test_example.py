from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.errors import CorruptRecordError, FormatError, SchemaError
from shardkeep.tfrecord import decode_example, encode_example, encode_sequence_example
from tests.messages import OTHER_MESSAGES

int64s = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20).map(
    lambda values: np.array(values, np.int64)
)
float32s = st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20).map(
    lambda values: np.array(values, np.float32)
)
strings = st.lists(st.binary(max_size=30), min_size=1, max_size=5)


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
        st.one_of(int64s, float32s, strings),
        max_size=8,
    )
)
def test_encoded_values_are_decoded_again(features: dict[str, Any]) -> None:
    record = encode_example(features)
    back = decode_example(record)
    assert back.keys() == features.keys()
    for name, value in features.items():
        np.testing.assert_array_equal(back[name], value)
        assert not isinstance(value, np.ndarray) or back[name].dtype == value.dtype
    assert encode_example(dict(reversed(features.items()))) == record
    assert list(back) == sorted(back, key=lambda name: name.encode())


def test_python_values_are_converted() -> None:
    back = decode_example(
        encode_example(
            {
                "bytes": b"\xff",
                "str": "é",
                "int": 3,
                "bool": True,
                "float": 0.5,
                "list": [1, 2],
                "mixed": [1, 0.5],
                "strs": ["a", b"b"],
                "uint8": np.arange(6, dtype=np.uint8).reshape(2, 3),
                "float64": np.array([0.1]),
                "S": np.array([b"x", b"yy"]),
                "none": np.array([], "int64"),
                "no bytes": np.array([], "S"),
                "views": [memoryview(b"v")],
                "nested": [[b"a\0"], ["b"]],
            }
        )
    )
    assert back["bytes"] == [b"\xff"]
    assert back["str"] == ["é".encode()]
    assert back["int"].tolist() == [3]
    assert back["bool"].tolist() == [1]
    assert back["float"].dtype == np.float32
    assert back["list"].dtype == np.int64
    assert back["mixed"].tolist() == [1.0, 0.5]
    assert back["strs"] == [b"a", b"b"]
    assert back["uint8"].tolist() == [0, 1, 2, 3, 4, 5]
    assert back["float64"].tolist() == [np.float32(0.1)]
    assert back["S"] == [b"x", b"yy"]
    assert len(back["none"]) == 0
    assert back["no bytes"] == []
    assert back["views"] == [b"v"]
    assert back["nested"] == [b"a\0", b"b"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "empty list has no kind"),
        ([b"a", 1], "int among bytes"),
        ([1, b"a"], "int among bytes"),
        ([[1], [2, 3]], "lists of different lengths"),
        ("\udce9", "UTF-8 cannot hold"),
        (1 + 2j, "complex"),
        (2**64 - 1, "cannot be stored"),
        (2**70, "cannot be stored"),
        (object(), "object"),
        (np.array("2020-01-01", "datetime64[D]"), "datetime64"),
    ],
)
def test_invalid_value_names_the_feature(value: Any, said: str) -> None:
    with pytest.raises(SchemaError, match=f"feature 'x': .*{said}"):
        encode_example({"x": value})
    with pytest.raises(SchemaError, match="name of a feature"):
        encode_example({3: 1})  # type: ignore[dict-item]


def test_absent_kindless_and_empty_features_survive() -> None:
    # features "b", "f" and "i": an empty list of each kind; "n" has no kind.
    record = bytes.fromhex("0a220a070a016212020a000a070a0166120212000a070a016912021a000a050a016e1200")
    back = decode_example(record)
    assert back["b"] == []
    assert (back["f"].dtype, back["i"].dtype) == (np.float32, np.int64)
    assert back["n"] is None
    assert "absent" not in back
    for features in (back, copy.deepcopy(back), pickle.loads(pickle.dumps(back))):
        assert encode_example(features) == record
    back["b"].append(b"x")
    assert decode_example(encode_example(back))["b"] == [b"x"]


@pytest.mark.parametrize("name", OTHER_MESSAGES)
def test_other_messages_are_named(name: str) -> None:
    with pytest.raises(FormatError, match=rf"not a tf\.train\.Example: it is a {name}; read .*[Rr]ead"):
        decode_example(OTHER_MESSAGES[name])


def test_a_row_of_pandas_is_a_mapping() -> None:
    class Series:
        def items(self) -> list[tuple[str, Any]]:
            return [("x", 1), ("y", b"a")]

    assert encode_example(Series()) == encode_example({"x": 1, "y": b"a"})  # type: ignore[arg-type]


def test_nan_and_infinity_survive() -> None:
    back = decode_example(encode_example({"x": [math.nan, math.inf]}))["x"]
    assert math.isnan(back[0])
    assert back[1] == math.inf


def test_non_example_is_refused() -> None:
    assert decode_example(b"") == {}
    for bad in (b"\x0a\xff", b"\x0a\x05abc", b"\xff" * 20):
        with pytest.raises(CorruptRecordError, match=r"not a tf\.train\.Example"):
            decode_example(bad)


def test_a_message_beyond_the_limit_of_protobuf_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardkeep.tfrecord.example.example._MOST_BYTES", 99)
    assert len(encode_example({"x": b"x" * 86})) == 99
    with pytest.raises(SchemaError, match=r"an Example of 100 bytes is longer than the 99 .* divide it"):
        encode_example({"x": b"x" * 87})
    with pytest.raises(SchemaError, match="longer than the 99"):
        encode_sequence_example({"x": b"x" * 87}, {})
