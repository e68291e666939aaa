"""The `repr` of dataclasses that may hold many or long values, and their tables in a notebook.

The one of `dataclass` prints all of them: that of a plan with a thousand sources fills the screen.
"""

from __future__ import annotations

import reprlib
from dataclasses import fields, is_dataclass
from typing import Any

from shardkeep.html_page import text_table

__all__ = ["facts_html", "summary", "summary_html"]

_MOST_CHARACTERS = 200
_MOST_OF_A_VALUE = 60
_MOST_ITEMS = 4
_MOST_ROWS = 20

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


def summary_html(self: Any) -> str:
    """Return a dataclass as tables for a notebook; set it as ``_repr_html_``.

    One table has the values, and one each those that are sequences of dataclasses, with their first 20 items.
    """
    names = ["ok"] * isinstance(getattr(type(self), "ok", None), property)
    names += [field.name for field in fields(self) if field.repr]
    values = {name: getattr(self, name) for name in names}
    shown = {name: value for name, value in values.items() if value is not None and _length(value)}
    parts = {n: value for n, value in shown.items() if isinstance(value, tuple) and is_dataclass(value[0])}
    tables = [_table_of(name, items) for name, items in parts.items()]
    return "\n".join([facts_html(self, *(name for name in shown if name not in parts)), *tables])


def facts_html(self: Any, *names: str, **facts: str) -> str:
    """Return attributes of an object, and other facts, as a table for a notebook."""
    rows = {**facts, **{name: _value(getattr(self, name)).lstrip("=: ") for name in names}}
    return text_table([type(self).__name__, ""], rows.items())


def _table_of(name: str, items: Any) -> str:
    first = items[:_MOST_ROWS]
    columns = [field.name for field in fields(first[0]) if field.repr]
    used = [name for name in columns if any(getattr(one, name) is not None for one in first)]
    rows = [[_value(getattr(one, name)).lstrip("=: ") for name in used] for one in first]
    more = f" (the first {_MOST_ROWS} of {len(items):,})" if len(items) > _MOST_ROWS else ""
    return f"<p>{name}{more}</p>\n{text_table(used, rows)}"


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
