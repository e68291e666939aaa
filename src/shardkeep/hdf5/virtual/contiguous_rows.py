"""Rows of a virtual dataset that are contiguous in its sources with the bytes that they have in memory.

They are read without HDF5, which takes fifty times as long to open a file. The Rust half opens, locks, reads
and closes the sources, a few at once. It skips a source that has changed since its check or is being written:
reading that source through HDF5 raises the error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkeep.hdf5.locking.mode import locking_mode
from shardkeep.hdf5.virtual.boxes import Boxes
from shardkeep.hdf5.virtual.sources import VirtualSources

__all__ = ["ContiguousRows"]

# A large source is read by several threads. A call cannot be interrupted by a signal.
_PART_BYTES = 32 * 1024 * 1024
_CALL_BYTES = 256 * 1024 * 1024


class ContiguousRows:
    """Reader of whole rows of boxes that do not overlap and are sorted."""

    def __init__(self, sources: VirtualSources, boxes: Boxes, row_bytes: int) -> None:
        self._sources, self._row_bytes = sources, row_bytes
        self._numbers = boxes.numbers
        self._low, self._high, self._source_low = (
            np.ascontiguousarray(one[:, 0]) for one in (boxes.low, boxes.high, boxes.source_low)
        )

    def between(self, first: int, stop: int) -> range:
        """Return the boxes with rows in ``[first, stop)``."""
        begin = int(np.searchsorted(self._high, first, side="right"))
        return range(begin, max(begin, int(np.searchsorted(self._low, stop))))

    def read(self, out: np.ndarray[Any, Any], first: int, hits: range) -> list[int]:
        """Read the part of some boxes that is in the rows of `out`.

        Parameters
        ----------
        out : ndarray
            Rows from `first` on.
        hits : range
            The boxes.

        Returns
        -------
        list of int
            Boxes that were not read: their rows are not contiguous, or their source has changed or is locked.
        """
        boxes = slice(hits.start, hits.stop)
        begin, numbers = self._low[boxes], self._numbers[boxes]
        low, high = np.maximum(begin, first), np.minimum(self._high[boxes], first + len(out))
        offsets = self._sources.offsets_bytes[numbers]
        contiguous = offsets >= 0
        offsets = offsets + (self._source_low[boxes] + low - begin) * self._row_bytes
        starts, lengths = (low - first) * self._row_bytes, (high - low) * self._row_bytes
        which = np.arange(hits.start, hits.stop)
        left: list[int] = which[~contiguous].tolist()
        pieces = [which, numbers, offsets, starts, lengths]
        if left:
            pieces = [one[contiguous] for one in pieces]
        failed: set[int] = set()
        view = out.reshape(-1).view(np.uint8)
        lock = locking_mode().effect != "off"
        for which, numbers, offsets, starts, lengths in _calls(_parts(pieces)):
            missed = self._sources.files.read_into(view, numbers, offsets, starts, lengths, lock=lock)
            failed.update(which[missed].tolist())
        return sorted([*left, *failed]) if failed else left


def _parts(pieces: list[npt.NDArray[np.int64]]) -> list[npt.NDArray[np.int64]]:
    """Divide large pieces."""
    lengths = pieces[-1]
    if not len(lengths) or lengths.max() <= _PART_BYTES:
        return pieces
    counts = -(-lengths // _PART_BYTES)
    which, numbers, offsets, starts, lengths = (np.repeat(one, counts) for one in pieces)
    skipped = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    skipped *= _PART_BYTES
    return [which, numbers, offsets + skipped, starts + skipped, np.minimum(lengths - skipped, _PART_BYTES)]


def _calls(pieces: list[npt.NDArray[np.int64]]) -> Iterable[list[npt.NDArray[np.int64]]]:
    """Divide many pieces into calls."""
    total = int(pieces[-1].sum())
    calls = math.ceil(total / _CALL_BYTES)
    if calls <= 1:
        return [pieces] if len(pieces[-1]) else []
    ends = np.cumsum(pieces[-1])
    cuts = np.searchsorted(ends, np.arange(1, calls) * _CALL_BYTES, side="right")
    return (list(part) for part in zip(*(np.split(one, cuts) for one in pieces), strict=True))
