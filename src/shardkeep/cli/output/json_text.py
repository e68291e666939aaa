"""Values as JSON that a terminal can show."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["json_text"]


def json_text(value: Any, *, indent: int | None = None) -> str:
    r"""Return a value as JSON in which all characters that are not printable are escaped.

    JSON requires this for the first 32 only. A terminal also obeys U+0080 to U+009F, marks of the direction
    of writing, and line separators (CWE-150, CVE-2021-42574). Bytes of a name that are not UTF-8 are lone
    surrogates in Python, which strict parsers refuse (RFC 8259, section 8.2): the byte 255 becomes the four
    characters ``\xff``.

    Examples
    --------
    >>> print(json_text({"a\x9b31m": "é\u202e"}))
    {"a\u009b31m": "é\u202e"}
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    if indent is None and text.isprintable():
        return text
    return re.sub(r"[^ -~\n]", _escaped, text)


def _escaped(found: re.Match[str]) -> str:
    char = found[0]
    if "\udc80" <= char <= "\udcff":
        return rf"\\x{ord(char) - 0xDC00:02x}"
    if char.isprintable():
        return char
    escaped = json.dumps(char)[1:-1]
    return rf"\{escaped}" if "\ud800" <= char <= "\udfff" else escaped
