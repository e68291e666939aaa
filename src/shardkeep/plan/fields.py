"""Reading a mapping that came from anywhere: each key is checked for its presence, type and range."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from shardkeep.errors import PlanError

__all__ = ["Fields", "kind_of"]


class Fields:
    """Takes the keys of an untrusted mapping one by one and says which one is wrong."""

    def __init__(self, data: object, prefix: str) -> None:
        where = prefix.rstrip(".") or "receipt"
        if not isinstance(data, Mapping):
            raise PlanError(f"{where} is {kind_of(data)}, not an object: is this a receipt of shardkeep?")
        self._data = data
        self._prefix = prefix
        self._taken: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def _take(self, key: str) -> object:
        self._taken.add(key)
        if key not in self._data:
            raise PlanError(
                f"receipt has no {self._prefix}{key}: is the file whole and a receipt of shardkeep?"
            )
        return self._data[key]

    def _wrong(self, key: str, value: object, wanted: str) -> PlanError:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return PlanError(f"receipt has {self._prefix}{key}={shown}, wanted {wanted}: was the file edited?")

    def integer(self, key: str, low: int, high: int) -> int:
        """Return a whole number in ``[low, high]``."""
        value = self._take(key)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self._wrong(key, value, f"a whole number from {low} to {high}")
        return value

    def text(self, key: str, pattern: str, wanted: str) -> str:
        """Return a text that `pattern` matches whole; `wanted` says in words what that is."""
        value = self._take(key)
        if not isinstance(value, str) or re.fullmatch(pattern, value, re.DOTALL) is None:
            raise self._wrong(key, value, wanted)
        return value

    def choice(self, key: str, choices: Sequence[object]) -> object:
        """Return the one of `choices` that the value is, type included."""
        value = self._take(key)
        for choice in choices:
            if type(value) is type(choice) and value == choice:
                return choice
        raise self._wrong(key, value, "one of " + ", ".join(repr(choice) for choice in choices))

    def mapping(self, key: str) -> Fields:
        """Return the mapping under a key, to be read in turn."""
        return Fields(self._take(key), f"{self._prefix}{key}.")

    def sequence(self, key: str) -> Sequence[object]:
        """Return a list, its elements unchecked."""
        value = self._take(key)
        if not isinstance(value, list | tuple):
            raise self._wrong(key, value, "a list")
        return value

    def nothing_else(self) -> None:
        """Refuse keys that nobody has asked for."""
        for key in self._data:
            if key not in self._taken:
                raise PlanError(
                    f"receipt has the unknown key {self._prefix}{key!s:.60}: is it from a newer shardkeep?"
                )


def kind_of(value: object) -> str:
    """Return what a JSON value is, in words."""
    return "null" if value is None else f"a {type(value).__name__}"
