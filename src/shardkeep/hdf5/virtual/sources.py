"""The sources of a virtual dataset: what is known of each, as arrays.

There may be thousands, so what is done to all of them is done at once, and by the Rust half. A source becomes
an object (`VirtualSource`) when something has to be done to it alone: HDF5 opens it, or an error is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkeep._core import KnownFiles
from shardkeep.hdf5.locking.mode import locking_mode
from shardkeep.hdf5.virtual.checked_sources import MergedSources, layout_digest, merged_sources
from shardkeep.hdf5.virtual.layout import VirtualLayout
from shardkeep.hdf5.virtual.source import Owner, VirtualSource
from shardkeep.hdf5.virtual.source_search import SourceSearch

__all__ = ["VirtualSources"]

_MOST_DIMENSIONS = 32  # H5S_MAX_RANK

_Numbers = npt.NDArray[np.int64]


class VirtualSources:
    """The sources of one virtual dataset, by number.

    Parameters
    ----------
    owner : Owner
        The virtual dataset.
    layout : VirtualLayout
    table : ndarray or None
        What a merge found out about the sources (`shardkeep.hdf5.virtual.checked_sources`).

    Attributes
    ----------
    owner : Owner
    files : KnownFiles
        Their paths, and the states in which they were checked.
    dimensions : ndarray of int64, shape (sources,)
        Of their datasets, when they were checked; as what follows.
    shapes : ndarray of int64, shape (sources, 32)
        Beyond the dimensions there are ones.
    offsets_bytes : ndarray of int64, shape (sources,)
        Where their rows are in the file, if they lie there one after another as they are in memory; else -1.
    nested : ndarray of bool, shape (sources,)
        Whether they are virtual themselves.
    """

    def __init__(self, owner: Owner, layout: VirtualLayout, table: np.ndarray[Any, Any] | None) -> None:
        count = len(layout.files)
        self.owner = owner
        self._names = layout.files
        self._datasets = layout.datasets
        self._row_shape = layout.shape[1:]
        self._search: SourceSearch | None = SourceSearch(owner.path, merged=table is not None)
        self.files = KnownFiles([self._search.first(name) for name in layout.files])
        self.dimensions = np.zeros(count, np.int64)
        self.shapes: _Numbers = np.ones((_MOST_DIMENSIONS, count), np.int64).T
        self.offsets_bytes = np.full(count, -1, np.int64)
        self.nested = np.zeros(count, bool)
        self._merged: MergedSources = merged_sources(
            table,
            owner.name.lstrip("/").encode("utf-8", "surrogateescape"),
            layout_digest(layout.shape, layout.stored),
            layout.files,
            layout.datasets,
        )
        self._objects: dict[int, VirtualSource] = {}

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, number: int) -> VirtualSource:
        found = self._objects.get(number)
        if found is None:
            found = self._objects[number] = VirtualSource(self, number, self._datasets[number])
        return found

    def look(self, changed: _Numbers) -> None:
        """Look at the sources that are not as they were (`KnownFiles.changed`), and at what others point to.

        Raises
        ------
        ShardkeepError
            One is missing, may not be read, or has no such dataset, or one of another type.
        """
        left = self.take_merged(changed)
        if self._search is not None:
            search, self._search = self._search, None
            moved = [number for number in left.tolist() if self._find(number, search)]
            if moved:
                self.take_merged(np.array(moved, np.int64))
        self._check_nested(but=changed)
        for number in left.tolist():
            self[number].look()

    def check_nested(self) -> None:
        """Look at the sources of the sources."""
        self._check_nested(but=())

    def take_merged(self, numbers: _Numbers) -> _Numbers:
        """Take the sources that are the ones that were merged, and may be read; return the others.

        What is in them is known.
        """
        merged = self._merged
        known = merged.size_bytes[numbers] >= 0
        wanted = numbers[known]
        if not len(wanted):
            return numbers
        lock = locking_mode().effect != "off"
        missed = self.files.take(wanted, merged.size_bytes[wanted], merged.mtime_ns[wanted], lock=lock)
        taken = np.delete(wanted, missed)
        width = 1 + len(self._row_shape)
        self.dimensions[taken] = width
        self.shapes[taken, 0] = merged.rows[taken]
        self.shapes[taken, 1:width] = self._row_shape
        self.shapes[taken, width:] = 1
        self.offsets_bytes[taken] = merged.offset_bytes[taken] if self.owner.as_in_memory else -1
        self.nested[taken] = False
        return np.sort(np.concatenate([numbers[~known], wanted[missed]]))

    def put(self, number: int, shape: Sequence[int], *, offset_bytes: int | None, nested: bool) -> None:
        """Note what was found in a source."""
        self.dimensions[number] = len(shape)
        self.shapes[number] = 1
        self.shapes[number, : len(shape)] = shape
        self.offsets_bytes[number] = -1 if offset_bytes is None else offset_bytes
        self.nested[number] = nested

    def close(self) -> None:
        """Close what is open of them, so that their locks are free."""
        for source in self._objects.values():
            source.close()

    def _find(self, number: int, search: SourceSearch) -> bool:
        """Look for a source in all places; whether it is in another than the first."""
        path = search.find(self._names[number])
        before, state = self.files.get(number)
        if path == before:
            return False
        self.files.set(number, path, state)
        return True

    def _check_nested(self, but: _Numbers | Sequence[int]) -> None:
        if self.nested.any():
            for number in np.setdiff1d(np.flatnonzero(self.nested), but).tolist():
                self[number].check_nested()
