"""Rows of a virtual dataset that lie in its sources just as they do in memory: read without HDF5.

HDF5 takes fifty times as long to open a file. The sources are opened, locked, read and closed by the Rust
half, a few at once. One that is not as it was checked, or is being written, is not read so: whoever opens
it properly has the error for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkeep._core import KnownFiles
from shardkeep.hdf5.box_reading import Box
from shardkeep.hdf5.hdf5_locking import locking_mode
from shardkeep.hdf5.virtual_source import VirtualSource

__all__ = ["PlainRows", "known_files"]

_NOWHERE = (0, 0, 0, -1)
# Of one source, so that a large one has several readers; of one call, which no signal interrupts.
_PART_BYTES = 32 * 1024 * 1024
_CALL_BYTES = 256 * 1024 * 1024


def known_files(sources: Iterable[VirtualSource]) -> KnownFiles:
    """Return the files of sources in the state in which they were checked."""
    sources = list(sources)
    states = [source.signature or _NOWHERE for source in sources]
    return KnownFiles([source.path for source in sources], states)


class PlainRows:
    """Reads whole rows of boxes that do not overlap and rise.

    Parameters
    ----------
    boxes : sequence of Box
    low, high : ndarray of int64, shape (boxes,)
        The rows of each.
    row_bytes : int
    """

    def __init__(
        self, boxes: Sequence[Box], low: npt.NDArray[np.int64], high: npt.NDArray[np.int64], row_bytes: int
    ) -> None:
        self._low, self._high, self._row_bytes = low, high, row_bytes
        numbers: dict[VirtualSource, int] = {}
        offsets = []
        for box in boxes:
            numbers.setdefault(box.source, len(numbers))
            raw = box.source.raw_offset_bytes
            offsets.append(-1 if raw is None else raw + box.source_low[0] * row_bytes)
        self._numbers = np.array([numbers[box.source] for box in boxes], np.int64)
        self._offsets = np.array(offsets, np.int64)
        self._files = known_files(numbers)

    def read(self, out: np.ndarray[Any, Any], first: int, hits: range) -> tuple[list[int], bool]:
        """Read the part of some boxes that lies in the rows of `out`.

        Parameters
        ----------
        out : ndarray
            Rows from `first` on.
        hits : range
            The boxes.

        Returns
        -------
        left : list of int
            Boxes that have to be read otherwise.
        doubtful : bool
            Whether there is one among them whose source is not as it was, or is locked.
        """
        boxes = slice(hits.start, hits.stop)
        low, high = np.maximum(self._low[boxes], first), np.minimum(self._high[boxes], first + len(out))
        offsets = self._offsets[boxes]
        plain = offsets >= 0
        offsets = offsets + (low - self._low[boxes]) * self._row_bytes
        starts, lengths = (low - first) * self._row_bytes, (high - low) * self._row_bytes
        which = np.arange(hits.start, hits.stop)
        left: list[int] = which[~plain].tolist()
        pieces = [which, self._numbers[boxes], offsets, starts, lengths]
        if left:
            pieces = [one[plain] for one in pieces]
        failed: set[int] = set()
        view = out.reshape(-1).view(np.uint8)
        lock = locking_mode().effect != "off"
        for which, numbers, offsets, starts, lengths in _calls(_parts(pieces)):
            missed = self._files.read_into(view, numbers, offsets, starts, lengths, lock=lock)
            failed.update(which[missed].tolist())
        return sorted([*left, *failed]), bool(failed)


def _parts(pieces: list[npt.NDArray[np.int64]]) -> list[npt.NDArray[np.int64]]:
    """Divide pieces that are large."""
    lengths = pieces[-1]
    if not len(lengths) or lengths.max() <= _PART_BYTES:
        return pieces
    counts = -(-lengths // _PART_BYTES)
    which, numbers, offsets, starts, lengths = (np.repeat(one, counts) for one in pieces)
    skipped = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    skipped *= _PART_BYTES
    return [which, numbers, offsets + skipped, starts + skipped, np.minimum(lengths - skipped, _PART_BYTES)]


def _calls(pieces: list[npt.NDArray[np.int64]]) -> Iterable[list[npt.NDArray[np.int64]]]:
    """Divide many pieces."""
    total = int(pieces[-1].sum())
    calls = math.ceil(total / _CALL_BYTES)
    if calls <= 1:
        return [pieces] if len(pieces[-1]) else []
    ends = np.cumsum(pieces[-1])
    cuts = np.searchsorted(ends, np.arange(1, calls) * _CALL_BYTES, side="right")
    return (list(part) for part in zip(*(np.split(one, cuts) for one in pieces), strict=True))
