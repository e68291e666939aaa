"""Checked access to a mapping of unknown origin: presence, type and range of each key."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from shardkeep.errors import PlanError

__all__ = ["Fields", "kind_of"]


class Fields:
    """Keys of an untrusted mapping; an error names the key that is wrong, and `what` has it."""

    def __init__(self, data: object, prefix: str, what: str = "receipt") -> None:
        where = prefix.rstrip(".") or what
        if not isinstance(data, Mapping):
            raise PlanError(f"{where} is {kind_of(data)}, not an object: was it written by shardkeep?")
        self._data = data
        self._prefix = prefix
        self.what = what
        self._taken: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def _take(self, key: str) -> object:
        self._taken.add(key)
        if key not in self._data:
            raise PlanError(
                f"{self.what} has no {self._prefix}{key}: is the file complete and written by shardkeep?"
            )
        return self._data[key]

    def _wrong(self, key: str, value: object, expected: str) -> PlanError:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return PlanError(
            f"{self.what} has {self._prefix}{key}={shown}, expected {expected}: was the file edited?"
        )

    def integer(self, key: str, low: int, high: int) -> int:
        """Return an int in ``[low, high]``."""
        value = self._take(key)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self._wrong(key, value, f"an int from {low} to {high}")
        return value

    def text(self, key: str, pattern: str, expected: str) -> str:
        """Return a string that matches `pattern`, which `expected` describes."""
        value = self._take(key)
        if not isinstance(value, str) or re.fullmatch(pattern, value, re.DOTALL) is None:
            raise self._wrong(key, value, expected)
        return value

    def choice(self, key: str, choices: Sequence[object]) -> object:
        """Return the one of `choices` that equals the value in type and value."""
        value = self._take(key)
        for choice in choices:
            if type(value) is type(choice) and value == choice:
                return choice
        raise self._wrong(key, value, "one of " + ", ".join(repr(choice) for choice in choices))

    def mapping(self, key: str) -> Fields:
        """Return the mapping under a key."""
        return Fields(self._take(key), f"{self._prefix}{key}.", self.what)

    def sequence(self, key: str) -> Sequence[object]:
        """Return a list, without a check of its elements."""
        value = self._take(key)
        if not isinstance(value, list | tuple):
            raise self._wrong(key, value, "a list")
        return value

    def nothing_else(self) -> None:
        """Refuse keys that were not read."""
        for key in self._data:
            if key not in self._taken:
                raise PlanError(
                    f"{self.what} has the unknown key {self._prefix}{key!s:.60}: is it from a newer"
                    " shardkeep?"
                )


def kind_of(value: object) -> str:
    """Return the name of the type of a JSON value."""
    return "null" if value is None else f"a {type(value).__name__}"
