from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardkeep.errors import SchemaError
from shardkeep.tfrecord import FixedLen, Image, VarLen
from shardkeep.tfrecord.example.features import describe


def test_dtypes_go_by_several_names() -> None:
    for dtype in ("bytes", "string", bytes, str, object):
        assert VarLen(dtype).dtype == "bytes"  # type: ignore[arg-type]
    for dtype in ("float32", np.float32, np.dtype("float32")):
        assert FixedLen((), dtype).dtype == "float32"  # type: ignore[arg-type]
    assert FixedLen(3).shape == (3,)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: FixedLen((), "int32"), "int64"),
        (lambda: FixedLen((-1,)), "shape"),
        (lambda: VarLen("complex64"), "complex64"),
        (lambda: Image(channels=2), "channels"),
        (lambda: Image(dtype="float16"), "float16"),
        (lambda: Image(size=(0, 3)), "size"),
        (lambda: describe({"x": FixedLen((2,), "int64", default=[1, 2, 3])}), "shape"),
        (lambda: describe({"x": FixedLen((), "int64", default="no")}), "not int64"),
        (lambda: describe({"x": FixedLen((), "bytes", default=3)}), "bytes or str"),
        (lambda: describe({"x": "int64"}), "expected FixedLen"),  # type: ignore[dict-item]
        (lambda: describe({1: FixedLen()}), "must be a str"),  # type: ignore[dict-item]
    ],
)
def test_invalid_feature_is_an_error_of_one_line(make: Any, said: str) -> None:
    with pytest.raises(SchemaError, match=said) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_defaults_become_flat_arrays() -> None:
    rows = describe(
        {
            "a": FixedLen((2, 2), "float32", default=0.5),
            "b": FixedLen((2,), "bytes", default=["x", b"y"]),
            "c": FixedLen((2,), "int64", default=[1, 2]),
        }
    )
    defaults = [row[4] for row in rows]
    assert defaults[0].tolist() == [0.5]
    assert defaults[1] == [b"x", b"y"]
    assert defaults[2].tolist() == [1, 2]
