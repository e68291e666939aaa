"""Entries of the knowledge base.

An entry is a file ``entries/AREA/NAME.toml`` with these fields:

``title``
    The fault in one line.
``match``
    Texts of which one must be in a line of the log; a ``*`` stands for any characters within the line. If
    several entries match a line, the one with the longest text is reported. Some errors of the system have
    another text with musl, the C library of Alpine: both are there.
``line``, ``context``, ``not_context``
    Regular expressions: the line itself must match, and the traceback or the lines around it must match and
    must not match. Optional.
``certainty``
    "certain" (the text has no other cause), "likely" or "possible".
``consequence``
    True if the error only follows from another one, which is then to be looked for. Optional.
``cause``, ``fix``, ``prove``
    Prose; prose; a command that shows whether the cause is the one of this case.
``here``
    A sentence with facts of this machine. Optional.
``apart``
    How to find out which variant it is, if the text does not say. Optional.
``sources``
    Issues ("h5py/h5py#1864"), documents (URLs) and "measured" for experiments of this project.
``variants``
    Tables with conditions (``line``, ``context``, ``not_context``) and other values for any of the texts. The
    first whose conditions hold is reported in place of the entry.

Texts may contain the placeholders of `shardkeep.diagnosis.explanation.machine`.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Literal

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Certainty", "Entry", "Explanation", "entries", "texts_to_match"]

Certainty = Literal["certain", "likely", "possible"]


@dataclass(frozen=True)
class Explanation:
    """Texts of an entry or of one of its variants; the fields are described in the module."""

    title: str
    certainty: Certainty
    cause: str
    fix: str
    prove: str
    sources: tuple[str, ...]
    here: str = ""
    apart: str = ""
    consequence: bool = False


@dataclass(frozen=True)
class Conditions:
    """Regular expressions on a line and its context, as described in the module."""

    line: re.Pattern[str] | None = None
    context: re.Pattern[str] | None = None
    not_context: re.Pattern[str] | None = None

    def hold(self, line: str, context: str) -> bool:
        """Return True if a line and the lines around it are as required."""
        return (
            (self.line is None or self.line.search(line) is not None)
            and (self.context is None or self.context.search(context) is not None)
            and (self.not_context is None or self.not_context.search(context) is None)
        )


@dataclass(frozen=True)
class Entry:
    """One entry.

    Attributes
    ----------
    name : str
        Area and file name, such as ``"hdf5/locked"``.
    match : tuple of tuple of str
        Texts, divided at ``*``.
    conditions : Conditions
    explanation : Explanation
    variants : tuple of (Conditions, Explanation)
    """

    name: str
    match: tuple[tuple[str, ...], ...]
    conditions: Conditions
    explanation: Explanation
    variants: tuple[tuple[Conditions, Explanation], ...]

    def longest_match(self, line: str) -> int:
        """Return the length of the longest text that is in a line; 0 if none is."""
        return max((sum(map(len, pieces)) for pieces in self.match if _holds(line, pieces)), default=0)

    def explanation_for(self, line: str, context: str) -> Explanation | None:
        """Return the explanation of a line of a log; None if the entry is not about it."""
        if not self.conditions.hold(line, context):
            return None
        for conditions, variant in self.variants:
            if conditions.hold(line, context):
                return variant
        return self.explanation


@functools.cache
def entries() -> tuple[Entry, ...]:
    """Return all entries, by name."""
    root = files("shardkeep.diagnosis.explanation") / "entries"
    return tuple(sorted(_read(root), key=lambda entry: entry.name))


@functools.cache
def texts_to_match() -> frozenset[str]:
    """Return texts of which one is in every line that an entry may match."""
    return frozenset(max(pieces, key=len) for entry in entries() for pieces in entry.match)


def _holds(line: str, pieces: tuple[str, ...]) -> bool:
    position = 0
    for piece in pieces:
        position = line.find(piece, position)
        if position < 0:
            return False
        position += len(piece)
    return True


def _read(root: Traversable) -> Iterator[Entry]:
    for area in root.iterdir():
        for file in area.iterdir():
            if file.name.endswith(".toml"):
                name = f"{area.name}/{file.name.removesuffix('.toml')}"
                yield _parse(name, tomllib.loads(file.read_text(encoding="utf-8")))


def _parse(name: str, fields: dict[str, Any]) -> Entry:
    match = tuple(tuple(text.split("*")) for text in fields.pop("match"))
    variants = fields.pop("variants", [])
    conditions = _conditions(fields)
    explanation = Explanation(**_texts(fields))
    # A variant needs no hint how to tell it from the others.
    common = replace(explanation, apart="")
    return Entry(
        name,
        match,
        conditions,
        explanation,
        tuple((_conditions(variant), replace(common, **_texts(variant))) for variant in variants),
    )


def _conditions(fields: dict[str, Any]) -> Conditions:
    """Take the conditions out of `fields`."""
    names = [name for name in ("line", "context", "not_context") if name in fields]
    return Conditions(**{name: re.compile(fields.pop(name), re.MULTILINE) for name in names})


def _texts(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        key: tuple(value)
        if key == "sources"
        else " ".join(value.split())
        if isinstance(value, str)
        else value
        for key, value in fields.items()
    }
