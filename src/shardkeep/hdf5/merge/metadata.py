"""Attributes and links of all sources of a merge: those on which the sources agree are kept."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from shardkeep.hdf5.sources.inspection import FoundAttributes, SourceInfo
from shardkeep.hdf5.sources.links import LinkInfo, resolve
from shardkeep.hdf5.storage.attributes import Attributes, same_value
from shardkeep.hdf5.storage.dtypes import same_file_type
from shardkeep.hdf5.storage.names import RANKS, RESERVED

__all__ = ["AttributeUnifier", "Holder", "LinkConflict", "LinkUnifier"]

# The owner of attributes or values: ("folder of the run", rank), or ("", number of the file).
Holder = tuple[str, int]


@dataclass
class _Object:
    """One object that has attributes in some of the sources."""

    kept: Attributes = field(default_factory=Attributes)
    names: dict[str, list[int]] = field(default_factory=dict)
    differing: set[str] = field(default_factory=set)
    unkept: dict[str, str] = field(default_factory=dict)
    files: list[int] = field(default_factory=list)
    ranks: dict[Holder, tuple[int, FoundAttributes]] = field(default_factory=dict)

    def include(self, number: int, found: FoundAttributes) -> None:
        self.unkept.update(found.unkept)
        if not found.kept.values:
            return
        for name, value in found.kept.values.items():
            self.names.setdefault(name, []).append(number)
            if name in self.kept.values and not same_value(self.kept.values[name], value):
                self.differing.add(name)
        self.kept = self.kept.joined(found.kept)


class AttributeUnifier:
    """Attributes of each object, collected source by source.

    Of a rank its newest segment counts, and a rank that never set an attribute does not count for it. Of
    plain files each one counts.
    """

    def __init__(self) -> None:
        self._objects: dict[str, _Object] = {}

    def add(self, name: str, holder: Holder, found: FoundAttributes, number: int) -> None:
        """Add the attributes of an object in one source."""
        one = self._objects.get(name)
        if one is None:
            one = self._objects[name] = _Object()
        if holder[0]:
            one.ranks[holder] = (number, found)
        else:
            one.files.append(number)
            one.include(number, found)

    def objects(self) -> list[str]:
        """Return the names of all objects, in the order in which they were added."""
        return list(self._objects)

    def missing(self) -> Iterator[tuple[str, str, list[int], list[int]]]:
        """Yield object, attribute, the files that have it, and those that lack it."""
        for owner, one in self._objects.items():
            for name, have in one.names.items():
                lacking = sorted(set(one.files) - set(have))
                if lacking and name not in one.unkept and name != RANKS:
                    yield owner, name, have, lacking

    def unify(self, name: str) -> tuple[Attributes, tuple[str, ...]]:
        """Return the attributes on which all sources agree, and the names of the others."""
        one = self._objects[name]
        for number, found in one.ranks.values():
            one.include(number, found)
        one.ranks.clear()
        lacking = {name for name, have in one.names.items() if not set(one.files) <= set(have)}
        left_out = one.differing | set(one.unkept) | lacking
        # The attribute that a merge wrote about the rows of one file does not fit those of several.
        lost = left_out | {RANKS} if len(one.files) > 1 else left_out
        return one.kept.without(lost), tuple(sorted(left_out if RANKS in one.unkept else left_out - {RANKS}))

    def unkept(self, name: str) -> dict[str, str]:
        """Return the attributes that cannot be in another file, and why; to be called after `unify`."""
        return dict(sorted(self._objects[name].unkept.items()))


@dataclass(frozen=True)
class LinkConflict:
    """A name on which the files differ, or which no other file can have.

    Attributes
    ----------
    name, what : str
        The name, and what is wrong with it as a clause of which the name is the subject.
    groups : list of (str, list of int)
        Each meaning of the name, and the files that have it.
    may_be_left_out : bool
        Whether the rows of all datasets are kept without it.
    """

    name: str
    what: str
    groups: list[tuple[str, list[int]]]
    may_be_left_out: bool = True


@dataclass
class _Link:
    variants: list[tuple[LinkInfo, list[int]]] = field(default_factory=list)
    is_resolved: bool = False

    def add(self, link: LinkInfo, number: int) -> None:
        for known, numbers in self.variants:
            if known == link or (known.kind == link.kind == "type" and same_file_type(known.code, link.code)):
                numbers.append(number)
                return
        self.variants.append((link, [number]))


class LinkUnifier:
    """Links and named types, collected from each plain file; segments have none."""

    def __init__(self) -> None:
        self._links: dict[str, _Link] = {}
        self._files: list[int] = []
        self._user_block = False
        self._reserved: set[str] = set()

    def add(self, info: SourceInfo, number: int) -> None:
        """Add the links of one source."""
        if info.record is not None:
            return
        self._files.append(number)
        self._user_block |= info.user_block_bytes > 0
        self._reserved.update(info.reserved)
        if not info.links:
            return
        objects = ChainMap[str, Any](info.datasets, info.groups)
        for name, link in info.links.items():
            one = self._links.setdefault(name, _Link())
            one.add(link, number)
            if link.kind == "soft" and not one.is_resolved:
                one.is_resolved = resolve(link.target, name, objects, info.links) is not None

    def __contains__(self, name: str) -> bool:
        return name in self._links

    def conflicts(self, datasets: dict[str, list[int]], groups: Collection[str]) -> Iterator[LinkConflict]:
        """Yield the names that are not the same in all files.

        Parameters
        ----------
        datasets : dict
            The files of each dataset.
        groups : container of str
            Names of the groups and named types of any file.
        """
        for name, one in self._links.items():
            variants = [(link.described, numbers) for link, numbers in one.variants]
            kinds = {link.kind for link, _ in one.variants}
            have = {number for _, numbers in one.variants for number in numbers}
            if name in datasets:
                has = [*variants, ("a dataset", datasets[name])]
                yield LinkConflict(name, "and a dataset elsewhere", has, False)
            elif name in groups and kinds != {"type"}:
                yield LinkConflict(name, "and a group elsewhere", variants, False)
            elif kinds & {"external", "foreign"}:
                yield LinkConflict(name, "and what it leads to would be missing", variants)
            elif len(variants) > 1:
                yield LinkConflict(name, f"and {variants[1][0]} elsewhere", variants)
            elif len(have) < len(self._files):
                lacking = [number for number in self._files if number not in have]
                yield LinkConflict(name, "and missing elsewhere", [*variants, ("nothing", lacking)])

    def unify(
        self, datasets: Collection[str], groups: Collection[str], refused: Collection[str]
    ) -> tuple[dict[str, LinkInfo], dict[str, str]]:
        """Return the links of the result, and for each of the others why it is left out.

        Parameters
        ----------
        datasets, groups : container of str
            Names in the result; groups may hold names of named types.
        refused : container of str
            The names of `conflicts`.
        """
        left_out = {"the user block": "a user block belongs to its own file"} if self._user_block else {}
        left_out |= dict.fromkeys(sorted(self._reserved), RESERVED)
        kept = {name: one.variants[0][0] for name, one in self._links.items() if name not in refused}
        for name in refused:
            left_out[name] = " or ".join(link.described for link, _ in self._links[name].variants)
            left_out[name] += ", not the same in all files, or not to be had in another one"
        objects = {*datasets, *(name for name in groups if name not in refused)}
        # A soft link that is broken in its own file may be broken in the result.
        needed = {n: one for n, one in kept.items() if one.kind == "hard" or self._links[n].is_resolved}
        lost = [n for n, one in needed.items() if resolve(one.path, n, objects, kept) is None]
        for name in lost:
            left_out[name] = f"{kept.pop(name).described}, which is left out itself"
        return kept, left_out
