"""Features of a record as short texts and images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from shardkeep._core import record_content
from shardkeep.errors import ShardkeepError, one_line
from shardkeep.tfrecord.example.example import decode_example
from shardkeep.tfrecord.example.sequence import decode_sequence_example

__all__ = [
    "Content",
    "ShownFeature",
    "ascii_text",
    "content_of",
    "hexadecimal",
    "image_type",
    "is_text",
    "value_of",
    "values_of",
]

_CARD_VALUES = 6
_PAGE_VALUES = 200
_CARD_CHARACTERS = 120
_PAGE_CHARACTERS = 20_000
_CARD_FEATURES = 40
_PAGE_FEATURES = 200
_CARD_IMAGES = 1
_PAGE_IMAGES = 24
_MOST_STEPS = 50

_IMAGES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))


@dataclass(frozen=True)
class ShownFeature:
    """A feature for a card or a page.

    Attributes
    ----------
    name : str
        Name for people.
    address : str
        Name in an address; that of a step of a list has its number after a slash.
    type : str
        "bytes", "int64", "float32" or "none".
    count : int
        Number of its values.
    text : str
        The first values.
    images : tuple of int
        Numbers of the values that are images.
    is_cut : bool
        True if `text` does not have all values.
    """

    name: str
    address: str
    type: str
    count: int
    text: str
    images: tuple[int, ...] = ()
    is_cut: bool = False


@dataclass(frozen=True)
class Content:
    """The content of a record: its form, its first features if it is a message of them, and how many more."""

    form: str
    features: tuple[ShownFeature, ...]
    more: int = 0


def content_of(data: bytes, *, whole: bool) -> Content:
    """Return the content of a record, shortened; with `whole` for a page with this record only."""
    form = record_content(data) or "bytes"
    name = form.removeprefix("tf.train.")
    most = _PAGE_FEATURES if whole else _CARD_FEATURES
    try:
        if form == "tf.train.Example":
            features = decode_example(data)
            shown = tuple(_shown(one, one, features[one], whole) for one in islice(features, most))
            return Content(name, shown, len(features) - len(shown))
        if form == "tf.train.SequenceExample":
            context, lists = decode_sequence_example(data)
            steps = _MOST_STEPS if whole else 2
            shown = tuple(islice(_sequence(context, lists, steps, whole), most))
            count = len(context) + sum(min(len(one), steps) for one in lists.values())
            return Content(name, shown, count - len(shown))
    except ShardkeepError as error:
        form = f"a damaged {name}: {error}"
    return Content(form, (_shown("", "", [data], whole),))


def _sequence(
    context: dict[str, Any], lists: dict[str, Any], most_steps: int, whole: bool
) -> Iterator[ShownFeature]:
    for name, values in context.items():
        yield _shown(name, name, values, whole)
    for name, steps in lists.items():
        for number, values in enumerate(steps[:most_steps]):
            yield _shown(f"{name}, step {number} of {len(steps):,}", f"{name}/{number}", values, whole)


def values_of(data: bytes) -> dict[str, Any] | None:
    """Return the values of a record by the addresses of its features; None if it is not a message of them.

    Raises
    ------
    ShardkeepError
        The message is damaged.
    """
    form = record_content(data)
    if form == "tf.train.Example":
        return decode_example(data)
    if form == "tf.train.SequenceExample":
        context, lists = decode_sequence_example(data)
        steps = {f"{name}/{i}": step for name, steps in lists.items() for i, step in enumerate(steps)}
        return {**steps, **context}
    return None


def value_of(data: bytes, address: str, number: int) -> bytes | None:
    """Return one value of bytes of a record; the record itself for an empty address.

    Parameters
    ----------
    data : bytes
        The record.
    address : str
        As of a `ShownFeature`.
    number : int
        Number of the value.
    """
    if not address:
        return data
    values = (values_of(data) or {}).get(address)
    if not isinstance(values, list) or not 0 <= number < len(values):
        return None
    value: bytes = values[number]
    return value


def image_type(data: bytes) -> str | None:
    """Return the media type of an image that browsers show, from its first bytes."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((name for magic, name in _IMAGES if data.startswith(magic)), None)


def is_text(data: bytes) -> bool:
    """Return True for UTF-8 of characters that can be shown."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return all(one.isprintable() or one in "\t\r\n" for one in text)


def hexadecimal(data: bytes) -> str:
    """Return lines of 16 bytes with offset, hexadecimal digits and text."""
    lines = []
    for first in range(0, len(data), 16):
        part = data[first : first + 16]
        lines.append(f"{first:10x}  {part.hex(' '):<47}  {ascii_text(part)}")
    return "\n".join(lines)


def ascii_text(data: bytes) -> str:
    """Return the characters of bytes in a hex view, with a dot for those that have none."""
    return "".join(chr(one) if 32 <= one < 127 else "." for one in data)


def _shown(name: str, address: str, values: Any, whole: bool) -> ShownFeature:
    label = one_line(name)
    if values is None:
        return ShownFeature(label, address, "none", 0, "no values")
    most = _PAGE_VALUES if whole else _CARD_VALUES
    if isinstance(values, list):
        images = tuple(i for i, one in enumerate(values[:most]) if image_type(one) is not None)
        images = images[: _PAGE_IMAGES if whole else _CARD_IMAGES]
        text, is_cut = _bytes_text([one for i, one in enumerate(values[:most]) if i not in images], whole)
        return ShownFeature(label, address, "bytes", len(values), text, images, is_cut or len(values) > most)
    text = ", ".join(_number(one) for one in values[:most])
    return ShownFeature(label, address, str(values.dtype), len(values), text, (), len(values) > most)


def _number(value: np.generic) -> str:
    return f"{value:.6g}" if isinstance(value, np.floating) else str(value)


def _bytes_text(values: Sequence[bytes], whole: bool) -> tuple[str, bool]:
    most = _PAGE_CHARACTERS if whole else _CARD_CHARACTERS
    parts: list[str] = []
    left, is_cut = most, False
    for one in values:
        if left <= 0:
            return "\n".join(parts), True
        head = one[:left]
        while head and len(head) < len(one) and head[-1] & 0xC0 == 0x80:
            head = head[:-1]  # not within a character
        head = head[:-1] if len(head) < len(one) and head and head[-1] >= 0xC0 else head
        if is_text(head):
            text = head.decode()
        else:
            head = one[: min(left, 1024) if whole else 12]
            text = hexadecimal(head) if whole else f"{head.hex(' ')}… ({len(one):,} bytes)"
        is_cut = is_cut or len(head) < len(one)
        parts.append(text)
        left -= len(text)
    return "\n".join(parts), is_cut
