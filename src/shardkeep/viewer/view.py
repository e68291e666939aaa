"""Views: the interface between the server and the code that shows one aspect of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shardkeep.errors import PlanError
from shardkeep.viewer.locations import Location

__all__ = ["Answer", "Data", "Json", "Page", "Paging", "Query", "View", "Visit"]

_Text = TypeVar("_Text", bound=str)


@dataclass(frozen=True)
class Page:
    """An answer in HTML: a template and its values.

    Attributes
    ----------
    template : str
        Name of the template below ``templates``.
    values : mapping
        Values of the template. It also has ``location``, ``view`` and ``tabs``.
    """

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Json:
    """An answer as JSON, for a chart."""

    value: Any


@dataclass(frozen=True)
class Data:
    """An answer of bytes, such as an image."""

    content: bytes
    media_type: str


Answer = Page | Json | Data


@dataclass(frozen=True)
class Paging:
    """The part of a table that a page shows: its first row, the rows of a page, and those of the table."""

    first: int
    rows: int
    total: int

    @property
    def here(self) -> slice:
        """The rows of the part."""
        return slice(self.first, self.first + self.rows)


class Query:
    """Parameters of an address.

    A parameter that is out of its range is set to the nearest valid value, because such an address is
    typically a bookmark of a file that has changed since.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def text(self, name: str) -> str:
        """Return a text of at most 4,096 characters."""
        return self._values.get(name, "")[:4096]

    def integer(self, name: str, default: int, low: int = 0, high: int = 1 << 62) -> int:
        """Return a whole number in ``[low, high]``.

        Raises
        ------
        PlanError
            The text is not a number.
        """
        text = self._values.get(name, "").strip().replace(",", "").replace("_", "")
        if not text:
            return max(low, min(default, high))
        try:
            value = int(text[:40])
        except ValueError:
            raise PlanError(f"{name} must be a whole number, not {text[:40]!r}") from None
        return max(low, min(value, high))

    def paging(self, rows: int, total: int, *, name: str = "first", default: int = 0) -> Paging:
        """Return the part of a table of `total` rows that has the row of a parameter."""
        return Paging(self.integer(name, default, 0, max(0, total - 1)) // rows * rows, rows, total)

    def choice(self, name: str, values: Sequence[_Text]) -> _Text:
        """Return one of some values; the first one by default."""
        text = self._values.get(name, "")
        return next((one for one in values if one == text), values[0])


@dataclass(frozen=True)
class Visit:
    """One request.

    Attributes
    ----------
    location : Location
    query : Query
    part : str
        Name of the part of the view that is requested, such as "image"; empty for the page.
    roots : sequence of Location
        All files and folders that the command names.
    """

    location: Location
    query: Query
    part: str
    roots: Sequence[Location]


def _is_always_a_tab(location: Location) -> bool:
    """Return True."""
    return True


@dataclass(frozen=True)
class View:
    """One aspect of a file or folder, shown as a tab.

    Attributes
    ----------
    name : str
        Name in the address, ``?view=<name>``.
    title : str
        Text of the tab.
    fits : callable
        Returns True for the locations that have this view. It may read a few kilobytes.
    show : callable
        Returns the answer. It runs in a thread, several at once.
    is_tab : callable
        Returns False for the locations where only a link of another view leads to this one.
    """

    name: str
    title: str
    fits: Callable[[Location], bool]
    show: Callable[[Visit], Answer]
    is_tab: Callable[[Location], bool] = _is_always_a_tab
