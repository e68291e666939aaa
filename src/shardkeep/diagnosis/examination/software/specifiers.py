"""Comparison of versions with requirements of distributions, such as ``>=2.18,!=2.19.0`` (PEP 440).

Only what requirements of released packages contain is understood: numbers with dots. A suffix such as ``rc1``
or ``+cu121`` is ignored, so that a pre-release counts as its release.
"""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["allows", "parse_requirement"]

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?")
_ONE = re.compile(r"\s*(===?|~=|!=|<=|>=|<|>)\s*([0-9][^,\s]*)\s*")

Numbers = tuple[int, ...]
_COMPARISONS: dict[str, Callable[[Numbers, Numbers], bool]] = {
    "==": lambda mine, wanted: mine == wanted,
    "===": lambda mine, wanted: mine == wanted,
    "!=": lambda mine, wanted: mine != wanted,
    "<": lambda mine, wanted: mine < wanted,
    "<=": lambda mine, wanted: mine <= wanted,
    ">": lambda mine, wanted: mine > wanted,
    ">=": lambda mine, wanted: mine >= wanted,
}


def allows(specifiers: str, version: str) -> bool:
    """Return True if a version satisfies all specifiers; those of an unknown form are ignored.

    Examples
    --------
    >>> allows(">=1.26,<2", "1.26.4"), allows(">=1.26,<2", "2.0.1"), allows("==2.9.*", "2.9.3")
    (True, False, True)
    """
    mine = _numbers(version)
    for one in specifiers.split(","):
        found = _ONE.fullmatch(one)
        if found is not None and not _satisfies(mine, found[1], found[2]):
            return False
    return True


def parse_requirement(text: str) -> tuple[str, str] | None:
    """Return the name and the specifiers of a requirement; None if it depends on a marker.

    Examples
    --------
    >>> parse_requirement("numpy<2.2.0,>=1.26.0"), parse_requirement("pytest; extra == 'test'")
    (('numpy', '<2.2.0,>=1.26.0'), None)
    """
    found = _REQUIREMENT.fullmatch(text)
    return None if found is None or found[3] else (found[1], found[2].strip())


def _satisfies(mine: Numbers, operator: str, wanted: str) -> bool:
    numbers = _numbers(wanted)
    if wanted.endswith(".*"):
        is_equal = _padded(mine, len(numbers))[: len(numbers)] == numbers
        return is_equal == (operator != "!=")
    if operator == "~=":
        prefix = numbers[:-1]
        return _compare(mine, ">=", numbers) and _padded(mine, len(prefix))[: len(prefix)] == prefix
    return _compare(mine, operator, numbers)


def _compare(mine: Numbers, operator: str, wanted: Numbers) -> bool:
    length = max(len(mine), len(wanted))
    return _COMPARISONS[operator](_padded(mine, length), _padded(wanted, length))


def _padded(numbers: Numbers, length: int) -> Numbers:
    return numbers + (0,) * (length - len(numbers))


def _numbers(version: str) -> Numbers:
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()
