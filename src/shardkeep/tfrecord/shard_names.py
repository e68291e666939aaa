"""Names of the shards of a set: from a pattern, and the sets among some names."""

from __future__ import annotations

import itertools
import os
import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from shardkeep.errors import PlanError
from shardkeep.files.incomplete import Incomplete, check_incomplete, report_incomplete
from shardkeep.files.kinds.urls import is_url
from shardkeep.files.paths import PathsLike, expand, path_list
from shardkeep.files.remote.store import list_folder
from shardkeep.plan.checks import MAX_RECORDS, MAX_WORLD_SIZE, checked_int

__all__ = [
    "SetFault",
    "checked_sizes",
    "early_name",
    "expand_shards",
    "find_set_faults",
    "lock_name",
    "shard_names",
    "shard_pattern",
    "shards_in_folder",
]

_OF = re.compile(
    r"(?P<before>(?:.*[^0-9])?)(?P<shard>[0-9]+)(?P<of>[-_]of[-_])(?P<shards>[0-9]+)(?P<after>.*)", re.S
)
_NAMED = 5


def shard_names(pattern: str, shards: int) -> list[str]:
    """Return the name of each shard.

    Raises
    ------
    PlanError
        `pattern` is not a valid pattern, or gives two shards the same name; or `shards` is not positive.

    Examples
    --------
    >>> shard_names("train-{shard:05d}-of-{shards:05d}.tfrecord", 2)
    ['train-00000-of-00002.tfrecord', 'train-00001-of-00002.tfrecord']
    """
    checked_sizes({"shards": shards})
    names = [_formatted(pattern, shard, shards) for shard in range(shards)]
    if len(set(names)) < shards:
        raise PlanError(f"{pattern!r} gives {shards} shards the same name; put {{shard:05d}} in it")
    return names


def checked_sizes(given: Mapping[str, int | None]) -> dict[str, int]:
    """Return those of ``shards``, ``shard_bytes`` and ``shard_records`` that are given.

    Raises
    ------
    PlanError
        A value is not an int of at least 1, or is too large.
    """
    return {
        name: checked_int(name, value, 1, MAX_WORLD_SIZE if name == "shards" else MAX_RECORDS)
        for name, value in given.items()
        if value is not None
    }


def early_name(pattern: str, shard: int) -> str:
    """Return a temporary name of a shard, in its folder, for an unknown number of shards.

    Raises
    ------
    PlanError
        As `shard_names`; or the folder depends on the number of shards.
    """
    if not shard:
        shard_names(pattern, 2)
    name = _formatted(pattern, shard, 1)
    if os.path.dirname(name) != os.path.dirname(_formatted(pattern, shard, 2)):
        raise PlanError(
            f"{pattern!r}: the folder cannot depend on {{shards}}, which is known only at the end"
        )
    return name


def lock_name(pattern: str, shards: int | None = None) -> str:
    """Return the name that writers of this set lock: the pattern without its number formats.

    Two runs with different number formats therefore exclude each other. The name is in the folder of the
    first shard.

    Examples
    --------
    >>> lock_name("train-{shard:05d}-of-{shards:05d}") == lock_name("train-{shard:05}-of-{shards}")
    True
    """
    folder, name = os.path.split(pattern)
    parts = string.Formatter().parse(name)
    plain = "".join(text + ("" if field is None else f"{{{field}}}") for text, field, _, _ in parts)
    return os.path.join(_formatted(folder, 0, shards or 1), plain)


def _formatted(pattern: str, shard: int, shards: int) -> str:
    try:
        return pattern.format(shard=shard, shards=shards)
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise PlanError(
            f"{pattern!r} is not a valid pattern of shard names ({error}); use {{shard:05d}}"
        ) from None


@dataclass(frozen=True)
class SetFault:
    """A set of shards that is not whole, or sets of different sizes with one name.

    Attributes
    ----------
    pattern : str
        The path of all shards, with "?" for each digit that differs: ``data/train-?????-of-00008.tfrecord``.
    kind : {"incomplete-set", "mixed-sets"}
    text : str
        Description of the fault, without the pattern.
    """

    pattern: str
    kind: Literal["incomplete-set", "mixed-sets"]
    text: str


def shard_pattern(path: str) -> str | None:
    """Return the path of a shard ``-00003-of-00008`` with "?" for each digit of its number, or None.

    Examples
    --------
    >>> shard_pattern("data/train-00003-of-00008.tfrecord")
    'data/train-?????-of-00008.tfrecord'
    """
    name = _parse(path)
    return None if name is None else name.pattern


def find_set_faults(paths: Iterable[str]) -> list[SetFault]:
    """Return the faults of the sets ``-00003-of-00008`` among some paths.

    Shards are numbered from 0, or from 1 if there is a shard N of N and no shard 0. Paths with other names
    have no faults, and the order of the paths does not matter.

    Parameters
    ----------
    paths : iterable of str
        Paths of data files. The files are not opened.

    Examples
    --------
    >>> [fault] = find_set_faults(["a-0-of-3", "a-2-of-3", "b.tfrecord"])
    >>> fault.pattern, fault.text
    ('a-?-of-3', 'shard 1 is missing; found 2 of 3')
    """
    families: dict[str, dict[str, list[_ShardName]]] = {}
    for path in paths:
        name = _parse(path)
        if name is not None:
            families.setdefault(name.family, {}).setdefault(name.shards, []).append(name)
    return [
        fault
        for _, sets in sorted(families.items())
        for fault in ([_mixed(sets)] if len(sets) > 1 else map(_incomplete, sets.values()))
        if fault is not None
    ]


def shards_in_folder(pattern: str) -> list[str]:
    """Return the paths of the existing shards of a set, whose `shard_pattern` is `pattern`."""
    folder = os.path.dirname(pattern)
    if is_url(folder):
        return [info.url for info in list_folder(folder) if shard_pattern(info.url) == pattern]
    try:
        paths = [os.path.join(folder, name) for name in os.listdir(folder or ".")]
    except OSError:
        return []
    return [path for path in paths if shard_pattern(path) == pattern]


def expand_shards(paths: PathsLike, incomplete: Incomplete) -> list[str]:
    """Return the paths of some shards and patterns, of which no set may be incomplete, or mixed with another.

    A shard that is not among the paths is missing only if it is not in the folder of the others either: a
    part of a set may be chosen on purpose. A file that was passed alone is not a set.

    Parameters
    ----------
    paths
        As for `shardkeep.files.paths.expand`.
    incomplete : {"refuse", "warn", "allow"}
        What to do if a set is incomplete or mixed.

    Raises
    ------
    NotFoundError
        A pattern has no match, or the list of paths is empty.
    PlanError
        A file is named twice, a set is refused, or the option is not valid.
    """
    check_incomplete(incomplete)
    given = path_list(paths)
    names = expand(given)
    absolute = [
        name if is_url(name) else os.path.abspath(name) for name in names
    ]  # one folder may be written in two ways
    if incomplete == "allow" or not find_set_faults(absolute):
        return names
    sets: dict[str, set[str]] = {}
    for path in absolute:
        sets.setdefault(shard_pattern(path) or "", set()).add(path)
    sets.pop("", None)
    alone = {name if is_url(name) else os.path.abspath(name) for name in map(os.fsdecode, given)}
    members = [
        path
        for pattern, found in sets.items()
        if len(found) > 1 or not found <= alone
        for path in found.union(shards_in_folder(pattern))
    ]
    faults = find_set_faults(members)
    # The shards of a set may be divided among folders, as of several disks.
    if faults and find_set_faults(map(os.path.basename, members)):
        message = "; ".join(f"{fault.pattern}: {fault.text}" for fault in faults[:_NAMED])
        is_mixed = any(fault.kind == "mixed-sets" for fault in faults)
        advice = "pass the files of one set" if is_mixed else "restore what is missing"
        report_incomplete(message, incomplete, PlanError, path=faults[0].pattern, advice=advice)
    return names


@dataclass(frozen=True)
class _ShardName:
    before: str
    shard: str
    of: str
    shards: str
    after: str

    @property
    def pattern(self) -> str:
        return f"{self.before}{'?' * len(self.shard)}{self.of}{self.shards}{self.after}"

    @property
    def family(self) -> str:
        return f"{self.before}?{self.of}?{self.after}"


def _parse(path: str) -> _ShardName | None:
    folder, name = os.path.split(path)
    found = _OF.fullmatch(name)
    if found is None:
        return None
    before, *rest = found.groups()
    return _ShardName(os.path.join(folder, before), *rest)


def _mixed(sets: dict[str, list[_ShardName]]) -> SetFault:
    ordered = sorted(sets.items(), key=lambda item: int(item[0]))
    first = ordered[0][1][0]
    parts = [f"{len({int(one.shard) for one in names})} of the {int(shards)}" for shards, names in ordered]
    text = f"{len(sets)} sets have this name: there are {', '.join(parts[:-1])} and {parts[-1]} shards"
    pattern = f"{first.before}*{first.of}*{first.after}"
    return SetFault(pattern, "mixed-sets", text)


def _incomplete(names: list[_ShardName]) -> SetFault | None:
    shards = int(names[0].shards)
    numbers = sorted({int(one.shard) for one in names})
    first = 1 if numbers[0] > 0 and numbers[-1] == shards else 0
    pattern = names[0].pattern
    beyond = [one.shard for one in names if int(one.shard) >= first + shards]
    if beyond:
        return SetFault(
            pattern, "incomplete-set", f"there is a shard {beyond[0]}, although the set has {shards}"
        )
    if len(numbers) < len(names):
        return SetFault(pattern, "mixed-sets", f"there are {len(names)} files of {len(numbers)} shards")
    if len(numbers) == shards:
        return None
    ends = [first - 1, *numbers, first + shards]
    # Not lists of numbers: a name may state any number of shards.
    gaps = [(low + 1, high - 1) for low, high in itertools.pairwise(ends) if high - low > 1]
    width = len(names[0].shard)
    shown = [
        f"{low:0{width}}" + (f" to {high:0{width}}" if high > low else "") for low, high in gaps[:_NAMED]
    ]
    more = f" and {len(gaps) - _NAMED} more ranges" if len(gaps) > _NAMED else ""
    subject, verb = ("shard", "is") if shards - len(numbers) == 1 else ("shards", "are")
    text = f"{subject} {', '.join(shown)}{more} {verb} missing; found {len(numbers):,} of {shards:,}"
    return SetFault(pattern, "incomplete-set", text)
