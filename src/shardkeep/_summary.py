"""The `repr` of dataclasses that may hold many or long values.

The one of `dataclass` prints all of them: that of a plan with a thousand sources fills the screen.
"""

from __future__ import annotations

import reprlib
from dataclasses import fields
from typing import Any

__all__ = ["summary"]

_MOST_CHARACTERS = 200
_MOST_OF_A_VALUE = 60
_MOST_ITEMS = 4

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = _MOST_OF_A_VALUE
_short.maxlevel = 3


def summary(self: Any) -> str:
    """Return the name of a dataclass and its values in one line; set it as ``__repr__``.

    Empty values are left out, the items of a container of more than four are only counted, and long texts
    are cut in the middle.

    Returns
    -------
    str
        At most 200 characters; it ends with "…>" if values are left out.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Report:
    ...     path: str
    ...     rows: dict[str, int]
    ...     findings: tuple[str, ...] = ()
    ...     seconds: float = 0.0
    ...     __repr__ = summary
    >>> Report("all.h5", {"loss": 3}, seconds=1 / 3)
    <Report path='all.h5', rows={'loss': 3}, seconds=0.333>
    >>> Report("all.h5", {str(i): i for i in range(9)}, findings=("short",))
    <Report path='all.h5', rows: 9 items, findings=('short',), seconds=0>
    """
    text, separator = f"<{type(self).__name__}", " "
    for field in fields(self):
        value = getattr(self, field.name)
        if not field.repr or value is None or _length(value) == 0:
            continue
        part = f"{separator}{field.name}{_value(value)}"
        if len(text) + len(part) > _MOST_CHARACTERS - 4:
            return f"{text}{separator}…>"
        text, separator = text + part, ", "
    return f"{text}>"


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"={value:.3g}"
    if isinstance(value, bytes) and len(value) > _MOST_OF_A_VALUE:
        return f": {len(value):,} bytes"
    if not isinstance(value, (str, bytes)) and _length(value) > _MOST_ITEMS:
        return f": {_length(value):,} items"
    return "=" + " ".join(_short.repr(value).split())


def _length(value: Any) -> int:
    """Return the number of items of a container; 1 for others, such as a NumPy array without dimensions."""
    try:
        return len(value)
    except TypeError:
        return 1
