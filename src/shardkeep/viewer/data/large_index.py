"""The index of a file with many millions of records, of which only the needed parts are read."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from shardkeep.tfrecord.index.binary import read_frame_lengths

__all__ = ["LargeIndex"]

_WINDOW = 16_384
# Windows of one read.
_STEP = 256
_GROUPS = 500

U64 = NDArray[np.uint64]


class LargeIndex:
    """Offsets of records from an index file, one window of records at a time.

    The offset of the first record of each window is kept, as far as windows were needed: 500 kB for a billion
    records. The checksum of the index is not compared, as that would read all of it, so the reader compares
    each frame with its header.

    Parameters
    ----------
    path : str
        The index file.
    shard : os.stat_result
    records : int
    """

    def __init__(self, path: str, shard: os.stat_result, records: int) -> None:
        self.records = records
        self._path = path
        self._shard = shard
        self._edges: U64 = np.zeros(1, np.uint64)
        self._lock = threading.Lock()
        self._known: tuple[int, U64] = (-1, self._edges)

    def starts(self, first: int, stop: int) -> U64:
        """Return the offsets of records ``[first, stop)``, and the end of the last one."""
        parts = [self._window(number) for number in range(first // _WINDOW, (stop - 1) // _WINDOW + 1)]
        joined = np.concatenate([*(one[:-1] for one in parts), parts[-1][-1:]])
        begin = first // _WINDOW * _WINDOW
        return joined[first - begin : stop - begin + 1]

    def record_at(self, offset_bytes: int) -> int:
        """Return the number of the record with a byte of the file."""
        self._reach(lambda: int(self._edges[-1]) > offset_bytes)
        window = int(np.searchsorted(self._edges, offset_bytes, side="right")) - 1
        window = min(window, (self.records - 1) // _WINDOW)
        inside = int(np.searchsorted(self._window(window)[:-1], offset_bytes, side="right")) - 1
        return window * _WINDOW + max(inside, 0)

    def sample_lengths(self, most: int) -> NDArray[np.unsignedinteger]:
        """Return the lengths of about `most` frames, in groups that are spread evenly over the file."""
        size = most // _GROUPS
        places = [number * (self.records - size) // _GROUPS for number in range(_GROUPS)]
        return np.concatenate([self._lengths(place, place + size) for place in places])

    def _window(self, number: int) -> U64:
        known, starts = self._known
        if known != number:
            self._reach(lambda: len(self._edges) > number)
            lengths = self._lengths(number * _WINDOW, (number + 1) * _WINDOW)
            starts = np.cumsum(np.concatenate([self._edges[number : number + 1], lengths.astype(np.uint64)]))
            self._known = number, starts
        return starts

    def _reach(self, is_enough: Callable[[], bool]) -> None:
        with self._lock:
            while not is_enough():
                first = (len(self._edges) - 1) * _WINDOW
                lengths = self._lengths(first, first + _STEP * _WINDOW)
                if not lengths.size:
                    return
                places = np.arange(0, lengths.size, _WINDOW)
                sums = np.add.reduceat(lengths, places, dtype=np.uint64)
                self._edges = np.concatenate([self._edges, self._edges[-1] + np.cumsum(sums)])

    def _lengths(self, first: int, stop: int) -> NDArray[np.unsignedinteger]:
        return read_frame_lengths(self._path, self._shard, first, stop)
