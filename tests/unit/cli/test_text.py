from __future__ import annotations

import pytest

from shardkeep.cli.text import human_bytes, printable


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (1024**2 - 1, "1024.0 KiB"),
        (1024**3, "1.0 GiB"),
        (5 * 1024**6, "5120.0 PiB"),
    ],
)
def test_human_bytes(count: int, text: str) -> None:
    assert human_bytes(count) == text


@pytest.mark.parametrize(
    ("text", "expected"), [("größe", "größe"), ("a\nb\x1b\u202e", "a\\nb\\x1b\\u202e"), ("", "")]
)
def test_printable(text: str, expected: str) -> None:
    assert printable(text) == expected
