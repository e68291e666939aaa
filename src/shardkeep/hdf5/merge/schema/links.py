"""Names beside those of datasets and groups, in all sources of a merge: those that agree are kept."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from shardkeep.hdf5.sources.inspection import SourceLook
from shardkeep.hdf5.sources.links import LinkLook, resolve
from shardkeep.hdf5.storage.dtypes import same_file_type
from shardkeep.hdf5.storage.names import RESERVED

__all__ = ["LinkSurvey", "Problem"]

_BLOCK = "a user block belongs to its own file"


@dataclass(frozen=True)
class Problem:
    """A name about which the files differ, or which no other file can have.

    Attributes
    ----------
    name, what : str
        What is wrong with it, as one clause that needs no subject but the name.
    groups : list of (str, list of int)
        What it is, in which files.
    may_be_left_out : bool
        Whether the rows of all datasets are kept without it.
    """

    name: str
    what: str
    groups: list[tuple[str, list[int]]]
    may_be_left_out: bool = True


@dataclass
class _Seen:
    variants: list[tuple[LinkLook, list[int]]] = field(default_factory=list)
    works: bool = False

    def add(self, link: LinkLook, number: int) -> None:
        for known, numbers in self.variants:
            if _same(known, link):
                numbers.append(number)
                return
        self.variants.append((link, [number]))


class LinkSurvey:
    """Takes the names in each file that is no worker's, one after the other; workers have no such."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._files: list[int] = []
        self._user_block = False
        self._reserved: set[str] = set()

    def add(self, look: SourceLook, number: int) -> None:
        """Take one source."""
        if look.record is not None:
            return
        self._files.append(number)
        self._user_block |= look.user_block_bytes > 0
        self._reserved.update(look.reserved)
        if not look.links:
            return
        objects = _Both(look.datasets, look.groups)
        for name, link in look.links.items():
            seen = self._seen.setdefault(name, _Seen())
            seen.add(link, number)
            if link.kind == "soft" and not seen.works:
                seen.works = resolve(link.target, name, objects, look.links) is not None

    def __contains__(self, name: str) -> bool:
        return name in self._seen

    def problems(self, datasets: dict[str, list[int]], groups: Collection[str]) -> Iterator[Problem]:
        """Give what is not the same in all files.

        Parameters
        ----------
        datasets : dict
            The files of each dataset.
        groups : container of str
            Names of the groups and named types of any file.
        """
        for name, seen in self._seen.items():
            told = [(link.described, numbers) for link, numbers in seen.variants]
            kinds = {link.kind for link, _ in seen.variants}
            have = {number for _, numbers in seen.variants for number in numbers}
            if name in datasets:
                yield Problem(name, "and a dataset elsewhere", [*told, ("a dataset", datasets[name])], False)
            elif name in groups and kinds != {"type"}:
                yield Problem(name, "and a group elsewhere", told, False)
            elif kinds & {"external", "foreign"}:
                yield Problem(name, "and what it leads to would be missing", told)
            elif len(told) > 1:
                yield Problem(name, f"and {told[1][0]} elsewhere", told)
            elif len(have) < len(self._files):
                lacking = [number for number in self._files if number not in have]
                yield Problem(name, "and missing elsewhere", [*told, ("nothing", lacking)])

    def settle(
        self, datasets: Collection[str], groups: Collection[str], refused: Collection[str]
    ) -> tuple[dict[str, LinkLook], dict[str, str]]:
        """Return the links of the result, and why each of the others is left out.

        Parameters
        ----------
        datasets, groups : container of str
            Names in the result; groups may hold names of named types.
        refused : container of str
            The names of `problems`.
        """
        left_out = {"the user block": _BLOCK} if self._user_block else {}
        left_out |= dict.fromkeys(sorted(self._reserved), RESERVED)
        kept = {name: one.variants[0][0] for name, one in self._seen.items() if name not in refused}
        for name in refused:
            left_out[name] = " or ".join(link.described for link, _ in self._seen[name].variants)
            left_out[name] += ", not the same in all files, or not to be had in another one"
        objects = _Both(datasets, [name for name in groups if name not in refused])
        # A soft link that led nowhere in its own file may do so here.
        needed = {n: one for n, one in kept.items() if one.kind == "hard" or self._seen[n].works}
        lost = [n for n, one in needed.items() if resolve(one.path, n, objects, kept) is None]
        for name in lost:
            left_out[name] = f"{kept.pop(name).described}, which is left out itself"
        return kept, left_out


@dataclass(frozen=True)
class _Both:
    """Names in either of two containers; not one set of both, which would be made for each file."""

    one: Collection[str]
    two: Collection[str]

    def __contains__(self, name: object) -> bool:
        return name in self.one or name in self.two

    def __iter__(self) -> Iterator[str]:
        yield from self.one
        yield from self.two

    def __len__(self) -> int:
        return len(self.one) + len(self.two)


def _same(one: LinkLook, two: LinkLook) -> bool:
    if one.kind == two.kind == "type":
        return same_file_type(one.code, two.code)
    return one == two
