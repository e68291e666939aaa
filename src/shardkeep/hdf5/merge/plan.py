"""Plan of a merge: sources, datasets and their parts, printed as a table or as JSON.

`shardkeep.hdf5.merge.planner` makes a plan, `shardkeep.hdf5.merge.merge` carries it out.
"""

from __future__ import annotations

import functools
import math
import os
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from shardkeep._summary import summary
from shardkeep.errors import one_line
from shardkeep.hdf5.locking.file_version import FileVersion
from shardkeep.hdf5.merge.find_sources import SourcePlan
from shardkeep.hdf5.merge.order import KeyOrder
from shardkeep.hdf5.segments.segment import H5_VERSIONS
from shardkeep.hdf5.sources.links import CreationOrder, LinkInfo
from shardkeep.hdf5.storage.attributes import Attributes
from shardkeep.hdf5.storage.chunk_table import ChunkTable
from shardkeep.hdf5.storage.dtypes import describe, describe_dtype
from shardkeep.hdf5.storage.exact_values import ExactValue
from shardkeep.hdf5.storage.layout import Layout
from shardkeep.quantities import counted, human_bytes

__all__ = ["DatasetPlan", "MergePlan", "Mode", "Part", "Strategy", "left_out_lines"]

Mode = Literal["auto", "copy", "virtual"]
Strategy = Literal["chunks", "rows", "chunks and rows", "virtual", "constant", "ranks"]

_WIDTH = 80


class Part(NamedTuple):
    """All rows of one source in one dataset.

    Attributes
    ----------
    source : int
        Number of the source.
    first_row : int
        First row in the result; in the order of a key, in the concatenation of all sources.
    rows : int
    layout : Layout
    dtype : dtype
        In the source.
    chunks : ChunkTable or None
        Addresses of the chunks, if they can be read from there.
    plain : bool
        Whether the bytes in the file are those of a NumPy array.
    crc32c, chunks_crc32c : str or None
        Hash of the rows and of the compressed chunks, where it is known.
    stored_bytes : int
    offset_bytes : int or None
        Offset of the first row in the source, if the rows are contiguous there.
    """

    source: int
    first_row: int
    rows: int
    layout: Layout
    dtype: np.dtype[Any]
    chunks: ChunkTable | None = None
    plain: bool = False
    crc32c: str | None = None
    chunks_crc32c: str | None = None
    stored_bytes: int = 0
    offset_bytes: int | None = None


@dataclass(frozen=True)
class DatasetPlan:
    """One dataset of the result.

    Attributes
    ----------
    strategy : str
        "chunks": compressed chunks are copied as they are; "rows": rows are read and written
        again; "virtual": the result points to the sources; "constant": a value without rows that
        is equal in every source; "ranks": values that each rank wrote once, one row per rank.
    reason : str
        Why this strategy was chosen.
    layout : Layout
        Type, chunks, filters and fill value of the result.
    parts : tuple of Part
        In the order of the sources; sources without rows are left out.
    keyed : bool
        Whether rows are put in the order of the key.
    put : bool
        Whether the values were written once by each rank.
    values : tuple of (int, object)
        Rank and value, of datasets without rows.
    exact : ExactValue or None
        The value that is equal in every source, if its type in the file is not the one that HDF5 has for
        the dtype.
    """

    name: str
    dtype: np.dtype[Any]
    row_shape: tuple[int, ...]
    rows: int
    strategy: Strategy
    reason: str
    layout: Layout
    parts: tuple[Part, ...]
    attributes: Attributes
    dropped_attributes: tuple[str, ...]
    keyed: bool = False
    put: bool = False
    values: tuple[tuple[int, Any], ...] = ()
    exact: ExactValue | None = None

    @property
    def stored_bytes(self) -> int:
        """Size of the rows in the sources, in bytes."""
        return sum(part.stored_bytes for part in self.parts)

    @property
    def row_bytes(self) -> int:
        """Size of one row in memory; of values of variable length, that of their references."""
        return max(1, self.dtype.itemsize * math.prod(self.row_shape))

    @property
    def has_rows(self) -> bool:
        """Whether it is a dataset of rows, and not of values that were written once."""
        return self.strategy not in ("constant", "ranks")

    @property
    def type_text(self) -> str:
        """Type and row shape, for messages."""
        return describe(self.dtype, self.row_shape) if self.has_rows else describe_dtype(self.dtype)


@dataclass(frozen=True)
class MergePlan:
    """Everything that `shardkeep.hdf5.merge` is going to do; prints as a table of 80 columns.

    Attributes
    ----------
    output, mode, order_by : str
        As in the call.
    root : str
        The folder that the sources have in common.
    sources : tuple of SourcePlan
        In the order in which they are read.
    datasets : tuple of DatasetPlan
        The datasets of the result.
    receipts : tuple of dict
        The newest receipt of every Loader.
    findings : tuple of str
        What seems to be missing from the run, or to be in it twice.
    earlier_findings : tuple of str
        Findings that sources have from their own merges, which allowed them.
    groups : dict
        Attributes of each group that are kept; ``""`` is the root.
    dropped_attributes : dict
        Names of attributes of datasets and groups that are left out.
    links : dict
        Hard links, soft links and named types.
    left_out : dict
        For each ``object@attribute``, link or named type that is left out, the reason.
    orders : dict
        The order of creation in each group that keeps one; ``""`` is the root.
    begun_ns : int
        Time at which the planning began, in nanoseconds since the epoch.
    versions : tuple of str
        The format versions (`libver`) of the result.
    """

    output: str
    mode: Mode
    order_by: str
    root: str
    sources: tuple[SourcePlan, ...]
    datasets: tuple[DatasetPlan, ...]
    receipts: tuple[dict[str, Any], ...]
    findings: tuple[str, ...] = ()
    earlier_findings: tuple[str, ...] = ()
    groups: dict[str, Attributes] = field(default_factory=dict)
    dropped_attributes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    links: dict[str, LinkInfo] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    orders: dict[str, CreationOrder] = field(default_factory=dict, repr=False)
    source_versions: tuple[FileVersion, ...] = field(default=(), repr=False)
    key: KeyOrder | None = field(default=None, repr=False)
    begun_ns: int = field(default=0, repr=False)
    versions: tuple[str, str] = field(default=H5_VERSIONS, repr=False)

    __repr__ = summary

    @functools.cached_property
    def relative_paths(self) -> tuple[str, ...]:
        """Paths of the sources from the folder of the output."""
        folder = os.path.dirname(os.path.abspath(self.output))
        return tuple(os.path.relpath(one.path, folder) for one in self.sources)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan in types that JSON has.

        Returns
        -------
        dict
        """
        return {
            "output": self.output,
            "mode": self.mode,
            "order_by": self.order_by,
            "sources": [
                {"path": one.path, "rank": one.rank, "sequence": one.sequence, "step": one.step}
                for one in self.sources
            ],
            "datasets": [
                {
                    "name": one.name,
                    "type": one.type_text,
                    "rows": one.rows,
                    "bytes": one.stored_bytes,
                    "way": one.strategy,
                    "reason": one.reason,
                    "order": self._order(one),
                    "dropped_attributes": list(one.dropped_attributes),
                }
                for one in self.datasets
            ],
            "findings": [*self.findings, *self.earlier_findings],
            "dropped_attributes": {name: list(names) for name, names in self.dropped_attributes.items()},
            "links": {name: one.described for name, one in self.links.items()},
            "left_out": dict(self.left_out),
        }

    def __str__(self) -> str:
        return "\n".join(one_line(line) for line in self._lines())

    def _lines(self) -> Iterator[str]:
        stored = human_bytes(sum(one.stored_bytes for one in self.datasets))
        kind = "virtual" if self.mode == "virtual" else "copy"
        files = counted(len(self.sources), "file")
        yield from _wrapped(f"{files} into {self.output!r}: {kind}, {stored}, by {self.order_by}", "")
        width = min(30, max((len(one.name) for one in self.datasets), default=0))
        for one in self.datasets:
            yield ""
            if one.has_rows:
                size = human_bytes(one.stored_bytes)
                yield f"{one.name:{width}}  {one.rows:>14,} rows  {size:>10}  by {self._order(one)}"
                yield from _wrapped(one.type_text)
            else:
                yield f"{one.name:{width}}  {one.type_text}"
            yield from _wrapped(f"{one.strategy}: {one.reason}")
        if self.links:
            yield ""
        for name, link in self.links.items():
            yield from _wrapped(f"{name}: {link.described}", "")
        for line in left_out_lines(self.dropped_attributes, self.left_out):
            yield from ("", *_wrapped(line, ""))
        for finding in (*self.findings, *self.earlier_findings):
            yield from ("", *_wrapped(f"finding: {finding}", ""))

    def _order(self, one: DatasetPlan) -> str:
        return "rank" if self.key is not None and not one.keyed else self.order_by


def left_out_lines(
    dropped_attributes: Mapping[str, tuple[str, ...]], left_out: Mapping[str, str]
) -> Iterator[str]:
    """Yield one clause for each object of which a merge leaves something out."""
    for name, attributes in dropped_attributes.items():
        differ = [one for one in attributes if f"{name}@{one}" not in left_out]
        if differ:
            yield f"{name}: attributes that differ between the files are left out: {', '.join(differ)}"
    for name, reason in left_out.items():
        yield f"{name} is left out: {reason}"


def _wrapped(text: str, indent: str = "    ") -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent or "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
