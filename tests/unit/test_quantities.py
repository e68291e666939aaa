"""Texts of sizes."""

import pytest

from shardkeep.quantities import human_bytes


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
