from __future__ import annotations

import pytest

from shardkeep.files.kinds.signatures import _SIGNATURES, find_signature


@pytest.mark.parametrize("number", range(len(_SIGNATURES)))
def test_each_is_found_and_none_hides_another(number: int) -> None:
    signature = _SIGNATURES[number]
    head = b"\x7e" * signature.offset_bytes + signature.magic + b"\x01" * 100
    assert find_signature(head) == signature
    assert find_signature(head[: signature.offset_bytes + len(signature.magic) - 1]) != signature


def test_descriptions_fit_into_a_sentence() -> None:
    for signature in _SIGNATURES:
        assert signature.described.isprintable() and not signature.described.endswith(".")
        # These beginnings are reserved for files that may be damaged TFRecords.
        assert not signature.described.startswith(("binary data", "zero bytes", "damaged"))


def test_short_signature_is_ignored_in_a_possible_record() -> None:
    found = find_signature(b"\x80\x03}q\x00.")
    assert found is not None and found.described == "a Python pickle"
    assert find_signature(b"\x80\x03" + bytes(6) + b"\x01\x02\x03\x04") is None
    assert find_signature(b"ORC" + bytes(5) + b"\x01\x02\x03\x04") is None
