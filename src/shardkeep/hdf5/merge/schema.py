"""Schemas of all sources of a merge, unified into the schema of the result."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Literal

import h5py
import numpy as np

from shardkeep.errors import SchemaError
from shardkeep.hdf5.merge.find_sources import SourcePlan
from shardkeep.hdf5.merge.metadata import AttributeUnifier, Holder, LinkUnifier
from shardkeep.hdf5.sources.inspection import DatasetInfo, SourceInfo
from shardkeep.hdf5.sources.links import CreationOrder, LinkInfo
from shardkeep.hdf5.storage.attributes import Attributes, same_value
from shardkeep.hdf5.storage.casts import promoted
from shardkeep.hdf5.storage.dtypes import describe, describe_dtype, same_dtype, same_file_type
from shardkeep.hdf5.storage.exact_values import ExactValue
from shardkeep.hdf5.storage.layout import Layout
from shardkeep.hdf5.storage.names import is_unicode, shown_name

__all__ = ["OnMismatch", "SchemaUnifier", "UnifiedDataset", "UnifiedSchema"]

OnMismatch = Literal["refuse", "promote"]

_NAMED = 3


@dataclass
class _Variant:
    """A schema of a dataset, and the sources in which the dataset has it."""

    dtype: np.dtype[Any]
    row_shape: tuple[int, ...] | None
    put: bool
    type_code: bytes
    sources: list[int] = field(default_factory=list)
    # Whether sources have other types for the same dtype, as text with other padding.
    is_mixed: bool = False

    @property
    def described(self) -> str:
        if self.put:
            return f"{describe_dtype(self.dtype)} written once"
        if self.row_shape is None:
            return f"a scalar {describe_dtype(self.dtype)}"
        return describe(self.dtype, self.row_shape)


@dataclass
class _Seen:
    name: str
    variants: list[_Variant] = field(default_factory=list)
    known: dict[tuple[bytes, tuple[int, ...] | None, bool], _Variant] = field(default_factory=dict)
    layout: Layout | None = None  # of the first source with rows, otherwise of the first
    exact: ExactValue | None = None
    rows: int = 0
    # Values of a dataset without rows: the newest of each rank, and of every file.
    values: dict[Holder, tuple[int, Any]] = field(default_factory=dict)

    @property
    def sources(self) -> list[int]:
        return sorted(number for variant in self.variants for number in variant.sources)


@dataclass(frozen=True)
class UnifiedDataset:
    """A dataset of the result, as the schemas of the sources determine it.

    Attributes
    ----------
    row_shape : tuple of int or None
        None for a value without rows.
    put : bool
        Whether it was written once by a rank.
    converted : bool
        Whether some rows change their dtype.
    values : tuple of (int, object)
        Rank (-1 of a plain file) and value, of a dataset without rows. One if all are equal.
    exact : ExactValue or None
        The value of the first source, if its type in the file is not the one that HDF5 has for the dtype.
    """

    name: str
    dtype: np.dtype[Any]
    row_shape: tuple[int, ...] | None
    put: bool
    layout: Layout
    converted: bool
    attributes: Attributes
    dropped_attributes: tuple[str, ...]
    values: tuple[tuple[int, Any], ...] = ()
    exact: ExactValue | None = None


@dataclass(frozen=True)
class UnifiedSchema:
    """Datasets, groups and links of the result.

    Attributes
    ----------
    datasets : list of UnifiedDataset
    groups : dict
        Attributes of each group and named type; ``""`` is the root.
    links : dict
        Hard links, soft links and named types.
    dropped_attributes : dict
        Names of the attributes of groups that are left out.
    left_out : dict
        For each ``object@attribute``, link or named type that is left out, the reason.
    orders : dict
        The order of creation in groups: that of the first source that has the group.
    """

    datasets: list[UnifiedDataset]
    groups: dict[str, Attributes]
    links: dict[str, LinkInfo]
    dropped_attributes: dict[str, tuple[str, ...]]
    left_out: dict[str, str]
    orders: dict[str, CreationOrder]


class SchemaUnifier:
    """Schemas of the sources, added one by one and unified by `unify`."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._plans: list[SourcePlan] = []
        self._names: set[str] = set()
        self._attributes = AttributeUnifier()
        self._links = LinkUnifier()
        self._orders: dict[str, CreationOrder | None] = {}
        # Differences between sources: a message and the rows of the table for each.
        self._messages: list[str] = []
        self._table: list[dict[str, Any]] = []

    def add(self, info: SourceInfo, plan: SourcePlan) -> None:
        """Add one source.

        Raises
        ------
        SchemaError
            A name is a dataset here and a group elsewhere, or is not UTF-8.
        """
        number = len(self._plans)
        self._plans.append(plan)
        holder = _holder(info, number)
        for name, one in info.datasets.items():
            seen = self._seen.get(name)
            if seen is None:
                self._check_name(name, info.path)
                seen = self._seen[name] = _Seen(name)
            self._add_dataset(seen, one, number, holder)
            self._attributes.add(name, holder, one.attributes, number)
        for name, found in info.groups.items():
            self._attributes.add(f"{name}/", holder, found, number)
            self._orders.setdefault(name, info.orders.get(name))
        for name in (*info.datasets, *info.groups, *info.links):
            if name not in self._names:
                if not is_unicode(name):
                    message = f"the name {shown_name(name)} in {info.path!r} is not UTF-8"
                    raise SchemaError(f"{message}, so h5py could not open it: rename it", path=info.path)
                self._names.add(name)
        self._links.add(info, number)

    def unify(self, on_mismatch: OnMismatch) -> UnifiedSchema:
        """Return the schema of the result.

        Raises
        ------
        SchemaError
            Sources do not agree; its ``table`` has the schema of each group of sources.
        """
        groups = {owner[:-1] for owner in self._attributes.objects() if owner.endswith("/")}
        refused = self._require_links(groups, on_mismatch)
        self._require_everywhere()
        datasets = []
        for seen in self._seen.values():
            dtype = self._agree(seen, on_mismatch)
            values = self._agree_on_values(seen) if dtype is not None else ()
            if dtype is not None:
                datasets.append(self._unified(seen, dtype, values))
        if on_mismatch == "refuse":
            self._require_attributes()
        if self._messages:
            others = len(self._messages) - 1
            more = f" (and {others} more difference{'s' if others > 1 else ''})" if others else ""
            path = self._plans[self._table[0]["numbers"][0]].path
            error = SchemaError(f"{self._messages[0]}{more}", path=path)
            error.table = tuple({k: v for k, v in row.items() if k != "numbers"} for row in self._table)
            raise error
        kept, left_out = self._links.unify(self._seen, groups, refused)
        attributes, dropped = {}, {}
        for owner in self._attributes.objects():
            name = owner.rstrip("/")
            if not owner.endswith("/"):
                whose = name
            elif name in self._links and name not in kept:
                continue
            else:
                whose = name or "/"
                attributes[name], names = self._attributes.unify(owner)
                if names:
                    dropped[whose] = names
            for attribute, reason in self._attributes.unkept(owner).items():
                left_out[f"{whose}@{attribute}"] = reason
        orders = {name: one for name, one in self._orders.items() if one is not None}
        return UnifiedSchema(datasets, attributes, kept, dropped, left_out, orders)

    # -- one source ------------------------------------------------------------------------------

    def _check_name(self, name: str, path: str) -> None:
        for other in self._seen:
            if other.startswith(f"{name}/") or name.startswith(f"{other}/"):
                message = f"{name!r} in {path!r} and {other!r} elsewhere are dataset and group at once"
                raise SchemaError(f"{message}: rename one", path=path)

    @staticmethod
    def _add_dataset(seen: _Seen, one: DatasetInfo, number: int, holder: Holder) -> None:
        key = (one.layout.type_code, one.row_shape, one.put)
        variant = seen.known.get(key)
        if variant is None:
            for other in seen.variants:
                if (
                    other.row_shape == one.row_shape
                    and other.put == one.put
                    and same_dtype(other.dtype, one.dtype)
                ):
                    variant = other
                    variant.is_mixed |= not same_file_type(variant.type_code, one.layout.type_code)
                    break
            else:
                variant = _Variant(one.dtype, one.row_shape, one.put, one.layout.type_code)
                seen.variants.append(variant)
            seen.known[key] = variant
        variant.sources.append(number)
        if seen.layout is None or (one.rows and not seen.rows):
            seen.layout, seen.exact = one.layout, one.exact
        seen.rows += one.rows
        if one.row_shape is None:
            seen.values[holder] = (number, one.value)

    # -- all of them -----------------------------------------------------------------------------

    def _require_everywhere(self) -> None:
        """Require each dataset in every plain file; a worker that never appended to it has no rows."""
        strict = {number for number, plan in enumerate(self._plans) if plan.rank is None}
        for seen in self._seen.values():
            have = seen.sources
            missing = sorted(strict - set(have))
            if missing and seen.name not in self._links:
                self._messages.append(
                    f"dataset {seen.name!r} is in {self._plans[have[0]].path!r} "
                    f"({len(have)} of {len(self._plans)} files), but not in {self._some(missing)}: "
                    "leave those files out, or add the dataset to them"
                )
                self._table.append(self._row(seen.name, "the dataset", have))
                self._table.append(self._row(seen.name, "nothing", missing))

    def _require_links(self, groups: set[str], on_mismatch: OnMismatch) -> list[str]:
        """Return the names that are left out; add a message for each that must not be."""
        datasets = {seen.name: seen.sources for seen in self._seen.values()}
        left_out = []
        for one in self._links.conflicts(datasets, groups):
            if one.may_be_left_out and on_mismatch == "promote":
                left_out.append(one.name)
                continue
            described, numbers = one.groups[0]
            advice = ', or allow on_mismatch="promote" to leave it out' if one.may_be_left_out else ""
            self._messages.append(
                f"{one.name!r} is {described} in {self._some(numbers)}, {one.what}: "
                f"make the files alike, with a separate dataset{advice}"
            )
            self._table.extend(self._row(one.name, has, numbers) for has, numbers in one.groups)
        return left_out

    def _agree(self, seen: _Seen, on_mismatch: OnMismatch) -> np.dtype[Any] | None:
        first, *others = seen.variants
        if not others:
            return first.dtype
        advice = "convert one of them"
        same_shape = all(one.row_shape == first.row_shape and one.put == first.put for one in others)
        if same_shape and first.row_shape is not None:
            wide = promoted([one.dtype for one in seen.variants])
            if wide is not None and on_mismatch == "promote":
                return wide
            if wide is not None:
                advice = f'convert one of them, or allow on_mismatch="promote" (to {describe_dtype(wide)})'
            elif on_mismatch == "promote":
                advice = "no type holds the values of all; convert one of them"
        two = others[0]
        self._messages.append(
            f"dataset {seen.name!r} has {first.described} in {self._some(first.sources)}, "
            f"but {two.described} in {self._some(two.sources)}: {advice}"
        )
        self._table.extend(self._row(seen.name, one.described, one.sources) for one in seen.variants)
        return None

    def _agree_on_values(self, seen: _Seen) -> tuple[tuple[int, Any], ...]:
        if not seen.values:
            return ()
        dtype = seen.variants[0].dtype
        ordered = [seen.values[holder] for holder in sorted(seen.values)]
        different = [ordered[0]]
        groups: list[list[int]] = [[]]
        for number, value in ordered:
            for known, members in zip(different, groups, strict=True):
                if same_value((known[1], dtype), (value, dtype)):
                    members.append(number)
                    break
            else:
                different.append((number, value))
                groups.append([number])
        if len(different) == 1:
            return ((self._rank(ordered[0][0]), ordered[0][1]),)
        shapes = {np.shape(value) for _, value in ordered}
        empty = any(isinstance(value, h5py.Empty) for _, value in ordered)
        if seen.variants[0].put and len(shapes) == 1 and not empty:
            return tuple((self._rank(number), value) for number, value in ordered)
        what = "value" if seen.variants[0].put else "scalar"
        first, second = (self._plans[number].path for number, _ in different[:2])
        reason = "its shapes differ" if len(shapes) > 1 else "it has no row axis"
        self._messages.append(
            f"the {what} {seen.name!r} differs between {first!r} and {second!r} and {reason}: "
            "make it equal, or rows of it"
        )
        for (_, value), members in zip(different, groups, strict=True):
            self._table.append(self._row(seen.name, f"the {what} {_short(value)}", members))
        return ()

    def _require_attributes(self) -> None:
        for owner, name, have, missing in self._attributes.missing():
            whose = repr(owner.rstrip("/") or "/")
            self._messages.append(
                f"attribute {name!r} of {whose} is in {self._some(have)}, but not in "
                f'{self._some(missing)}: add it there, or allow on_mismatch="promote" to leave it out'
            )
            self._table.append(self._row(f"{owner.rstrip('/')}@{name}", "the attribute", have))
            self._table.append(self._row(f"{owner.rstrip('/')}@{name}", "nothing", missing))

    def _unified(
        self, seen: _Seen, dtype: np.dtype[Any], values: tuple[tuple[int, Any], ...]
    ) -> UnifiedDataset:
        attributes, dropped = self._attributes.unify(seen.name)
        assert seen.layout is not None
        first = seen.variants[0]
        return UnifiedDataset(
            seen.name,
            dtype,
            first.row_shape,
            first.put,
            seen.layout,
            len(seen.variants) > 1 or first.is_mixed,
            attributes,
            dropped,
            values,
            seen.exact,
        )

    # -- messages --------------------------------------------------------------------------------

    def _rank(self, number: int) -> int:
        rank = self._plans[number].rank
        return -1 if rank is None else rank

    def _some(self, numbers: list[int]) -> str:
        more = f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""
        return f"{self._plans[numbers[0]].path!r}{more}"

    def _row(self, name: str, has: str, numbers: list[int]) -> dict[str, Any]:
        ranks = sorted({self._rank(number) for number in numbers} - {-1})
        return {
            "name": name,
            "has": has,
            "files": len(numbers),
            "ranks": ranks,
            "first": [self._plans[number].path for number in numbers[:_NAMED]],
            "numbers": numbers,
        }


def _holder(info: SourceInfo, number: int) -> Holder:
    """Return the owner of values: a rank, of which the newest segment counts, or one file."""
    if info.record is None:
        return ("", number)
    return (os.path.dirname(os.path.dirname(os.path.realpath(info.path))), info.record.rank)


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 40 else f"{text[:39]}…"
