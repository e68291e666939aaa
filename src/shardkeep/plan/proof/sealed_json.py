"""JSON objects with a CRC32C of their content, for receipts and commit records.

An object (`seal`) has the checksum of its canonical text: ASCII, no white space, sorted keys. The checksum
stays valid when a program loads the object and dumps it in another layout. A text that Shardkeep stores
(`sealed_text`) has the checksum of all bytes before it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from shardkeep._core import crc32c

__all__ = ["CRC_KEY", "check_seal", "check_sealed_text", "seal", "sealed_crc", "sealed_text"]

CRC_KEY = "crc32c"
_END_BYTES = len(f',"{CRC_KEY}":"00000000"}}')


def seal(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with the checksum of its content as its last key.

    Examples
    --------
    >>> seal({"rank": 3})
    {'rank': 3, 'crc32c': '6dea8974'}
    """
    return {**values, CRC_KEY: f"{crc32c(_canonical(values)):08x}"}


def check_seal(values: Mapping[str, Any]) -> bytes:
    """Return the canonical text of a JSON object; raise a `ValueError` if its checksum is not that of it."""
    stored = values.get(CRC_KEY)
    if stored is None:
        raise ValueError("its checksum is missing")
    text = _canonical({key: value for key, value in values.items() if key != CRC_KEY})
    computed = f"{crc32c(text):08x}"
    if stored != computed:
        raise ValueError(f"its checksum is {stored!r:.40}, expected {computed!r}")
    return text


def sealed_text(values: Mapping[str, Any]) -> bytes:
    """Return the text of a JSON object with its checksum; keys keep their order.

    Examples
    --------
    >>> sealed_text({"rank": 3})
    b'{"rank":3,"crc32c":"6dea8974"}'
    """
    body = json.dumps(values, separators=(",", ":"), allow_nan=False)[:-1].encode()
    return body + _end_of(body)


def sealed_crc(text: bytes) -> str:
    """Return the checksum that a `sealed_text` ends with."""
    return text[-10:-2].decode()


def check_sealed_text(text: bytes) -> None:
    """Raise a `ValueError` if a text does not have the checksum of its bytes."""
    body, stored = text[:-_END_BYTES], text[-_END_BYTES:]
    computed = _end_of(body)
    if stored != computed:
        raise ValueError(f"it ends with {stored.decode('ascii', 'replace')}, expected {computed.decode()}")


def _end_of(body: bytes) -> bytes:
    crc = crc32c(b"}", crc32c(body))
    return f',"{CRC_KEY}":"{crc:08x}"}}'.encode()


def _canonical(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()
