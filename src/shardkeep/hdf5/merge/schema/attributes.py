"""The attributes of objects in all sources: those that agree are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from shardkeep.hdf5.sources.inspection import Found
from shardkeep.hdf5.storage.attributes import Attributes
from shardkeep.hdf5.storage.names import RANKS

__all__ = ["AttributeSurvey", "Holder"]

# Whose attributes: ("folder of the run", rank), or ("", number of the file).
Holder = tuple[str, int]


@dataclass
class _Owner:
    """One object, which has attributes in some of the sources."""

    kept: Attributes | None = None
    names: dict[str, list[int]] = field(default_factory=dict)
    differing: set[str] = field(default_factory=set)
    unkept: dict[str, str] = field(default_factory=dict)
    files: list[int] = field(default_factory=list)
    ranks: dict[Holder, tuple[int, Found]] = field(default_factory=dict)


class AttributeSurvey:
    """Takes the attributes of each object, source by source.

    Of a rank its newest segment counts, and a rank that never set an attribute has no say about
    it; of files that are not a worker's each one counts.
    """

    def __init__(self) -> None:
        self._owners: dict[str, _Owner] = {}

    def add(self, owner: str, holder: Holder, found: Found, number: int) -> None:
        """Take what one source has."""
        one = self._owners.get(owner)
        if one is None:
            one = self._owners[owner] = _Owner()
        if holder[0]:
            one.ranks[holder] = (number, found)
        else:
            one.files.append(number)
            _include(one, number, found)

    def owners(self) -> list[str]:
        """Return the names of all objects, in the order in which they were seen."""
        return list(self._owners)

    def missing(self) -> Iterator[tuple[str, str, list[int], list[int]]]:
        """Give object, attribute, the files that have it and those that do not."""
        for owner, one in self._owners.items():
            for name, have in one.names.items():
                lacking = sorted(set(one.files) - set(have))
                if lacking and name not in one.unkept and name != RANKS:
                    yield owner, name, have, lacking

    def settle(self, owner: str) -> tuple[Attributes, tuple[str, ...]]:
        """Return the attributes that all agree on, and the names of the others."""
        one = self._owners[owner]
        for number, found in one.ranks.values():
            _include(one, number, found)
        one.ranks.clear()
        lacking = {name for name, have in one.names.items() if not set(one.files) <= set(have)}
        left_out = one.differing | set(one.unkept) | lacking
        values = {} if one.kept is None else one.kept.values
        # What a merge wrote about the rows of one file does not fit those of several.
        lost = left_out | {RANKS} if len(one.files) > 1 else left_out
        kept = Attributes({name: value for name, value in values.items() if name not in lost})
        return kept, tuple(sorted(left_out if RANKS in one.unkept else left_out - {RANKS}))

    def unkept(self, owner: str) -> dict[str, str]:
        """Return the attributes that cannot be in another file, and why; to be called after `settle`."""
        return dict(sorted(self._owners[owner].unkept.items()))


def _include(one: _Owner, number: int, found: Found) -> None:
    one.unkept.update(found.unkept)
    if one.kept is None:
        one.kept = Attributes({})
    if not found.kept.values:
        return
    for name in found.kept.values:
        one.names.setdefault(name, []).append(number)
    both = {name: value for name, value in one.kept.values.items() if name in found.kept.values}
    _, differing = Attributes(both).common(Attributes({name: found.kept.values[name] for name in both}))
    one.differing |= differing
    one.kept = Attributes({**found.kept.values, **one.kept.values})
