from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.plan.proof.sealed_json import check_seal, check_sealed_text, seal, sealed_text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=5).filter(lambda key: key != "crc32c"), JSON, min_size=1, max_size=4))
def test_what_was_sealed_is_read_in_any_layout(values: dict[str, object]) -> None:
    text = sealed_text(values)
    check_sealed_text(text)
    assert json.loads(text) == {**values, "crc32c": json.loads(text)["crc32c"]}
    again = json.loads(json.dumps(seal(values), indent=3, sort_keys=True, ensure_ascii=False))
    check_seal(again)
    assert {**values, "crc32c": again["crc32c"]} == again


def test_no_flipped_bit_of_a_text_is_accepted() -> None:
    text = sealed_text({"name": "Größe/\u202e\x00", "rows": [10, -0.5, 1e300, None, True], "one": {"a": "é"}})
    for bit in range(8 * len(text)):
        damaged = bytearray(text)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match="it ends with"):
            check_sealed_text(bytes(damaged))


@pytest.mark.parametrize("stored", [None, 5, "", "6DEA8974"])
def test_the_checksum_must_be_there(stored: object) -> None:
    check_seal({"rank": 3, "crc32c": "6dea8974"})
    with pytest.raises(ValueError, match="checksum"):
        check_seal({"rank": 3, "crc32c": stored})
    with pytest.raises(ValueError, match="checksum is missing"):
        check_seal({"rank": 3})
