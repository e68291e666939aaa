from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from shardkeep.jobs.json_values import plain


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (np.bool_(True), True),
        (2**70, 2**70),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (0.1, 0.1),
        (np.float64(0.1), 0.1),
        (np.float32(0.1), 0.1),
        (np.float16(0.1), 0.1),
        (float("nan"), "NaN"),
        (np.float32("inf"), "Infinity"),
        (-np.inf, "-Infinity"),
        (b"\x00\xff", "AP8="),
        ("é", "é"),
        (np.str_("é"), "é"),
        (np.bytes_(b"ab"), "ab"),
        (np.array([b"ab", b"c\xff"]), ["ab", "c\\xff"]),
        (np.array(b"ab"), "ab"),
        ([b"a", b"b"], ["YQ==", "Yg=="]),
        (np.arange(6).reshape(2, 3), [[0, 1, 2], [3, 4, 5]]),
        (np.array(7), 7),
        (np.array(["a", None], object), ["a", None]),
        ({"a": np.int8(1), 2: (1, 2)}, {"a": 1, "2": [1, 2]}),
        (np.array([(1, 2.5)], [("a", "i4"), ("b", "f4")]), [{"a": 1, "b": 2.5}]),
        (np.datetime64("2026-11-27"), "2026-11-27"),
        (1 + 2j, "(1+2j)"),
        (np.longdouble("0.5"), "0.5"),
    ],
)
def test_plain(value: Any, expected: Any) -> None:
    found = plain(value)
    assert found == expected
    assert type(found) is type(expected)
    json.dumps(found, allow_nan=False)
