"""Origin of a merged file: ranks, steps, sources and receipts, from the tables that the merge wrote."""

from __future__ import annotations

from dataclasses import dataclass

import h5py
import numpy as np

from shardkeep._summary import summary
from shardkeep.hdf5.merge.provenance import PROVENANCE, read_findings
from shardkeep.hdf5.sources.receipts import receipts_in
from shardkeep.hdf5.sources.source import Source, blocks
from shardkeep.hdf5.storage.names import is_own_table

__all__ = ["MergedInfo", "MergedRank", "merged_info"]


@dataclass(frozen=True)
class MergedRank:
    """Sources of one rank.

    Attributes
    ----------
    rank : int
    first_step, last_step : int
        Steps of its first and last commit with rows.
    sources : int
        Number of its files.
    """

    rank: int
    first_step: int
    last_step: int
    sources: int

    __repr__ = summary


@dataclass(frozen=True)
class MergedInfo:
    """Origin of the rows of a merged file.

    Attributes
    ----------
    mode : {"copy", "virtual"}
        "virtual" for a file that points to its sources.
    order_by : str
        Order of the rows: "rank", "step" or the dataset of the keys.
    root : str
        The folder of all sources when they were merged.
    sources : tuple of str
        The files with rows, relative to `root`.
    ranks : tuple of MergedRank
        Ranks in ascending order; empty if the sources were no worker files.
    receipts : int
        Number of receipts of Loaders in the file.
    findings : tuple of str
        Ranks and commits that were missing or there twice when the file was merged.
    """

    mode: str
    order_by: str
    root: str
    sources: tuple[str, ...]
    ranks: tuple[MergedRank, ...]
    receipts: int
    findings: tuple[str, ...]

    __repr__ = summary


def merged_info(source: Source) -> MergedInfo | None:
    """Return the origin of an open file; None for a file that no merge wrote."""
    file = source.file
    if source.record is not None or PROVENANCE not in file or not is_own_table(file.id, PROVENANCE):
        return None
    table = file[PROVENANCE]
    found = _sources(table)
    is_virtual = any(source.dataset(name).is_virtual for name in source.dataset_names())
    ranks: dict[int, tuple[int, int, int]] = {}
    for rank, step, _ in sorted(found):
        if rank >= 0:
            first, _, count = ranks.get(rank, (step, step, 0))
            ranks[rank] = (first, step, count + 1)
    return MergedInfo(
        mode="virtual" if is_virtual else "copy",
        order_by=_text(table.attrs["order_by"]),
        root=_text(table.attrs["root"]),
        sources=tuple(sorted({name for _, _, name in found})),
        ranks=tuple(MergedRank(rank, *values) for rank, values in ranks.items()),
        receipts=len(receipts_in(source)),
        findings=read_findings(file),
    )


def _sources(table: h5py.Dataset) -> set[tuple[int, int, str]]:
    """Return rank, step and file of each source; the table may have a row for each row of the file."""
    found: set[tuple[int, int, str]] = set()
    for rows in blocks(table, 0, len(table)):
        for one in np.unique(rows[["rank", "step", "file"]]):
            found.add((int(one["rank"]), int(one["step"]), _text(one["file"])))
    return found


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
