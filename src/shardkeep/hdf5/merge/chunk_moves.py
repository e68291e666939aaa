"""Compressed chunks on their way into the result, while HDF5 makes room for the next ones.

HDF5 keeps the index of the result, one chunk after the other under its one lock; the bytes are read, hashed
and written by threads of the Rust half. So a few sources are open at once: each stays locked until its bytes
are there, and is looked at afterwards.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkeep._core import ChunkCopier, ChunkCopy
from shardkeep.files.temporary_file import TemporaryFile
from shardkeep.hdf5.merge.checks.table import Check
from shardkeep.hdf5.read_errors import reading
from shardkeep.hdf5.sources.raw_file import RawFile
from shardkeep.hdf5.sources.source_rows import not_as_committed
from shardkeep.hdf5.storage.chunk_table import ChunkTable, table_crc

__all__ = ["ChunkMove", "ChunkMoves"]

_MOST_SOURCES = 4
_MOST_COPIES = 4
# The kernel lets one at a time write to a file; the other reads and hashes.
_MOST_THREADS = 2
_PART_BYTES = 16 * 1024 * 1024


class ChunkMove:
    """Chunks of one part of a dataset.

    Parameters
    ----------
    path, name : str
        Source and dataset.
    table : ChunkTable
        What is read and hashed.
    kept : int
        How many chunks go into the result: the first ones.
    known : str or None
        The hash that all must have.
    """

    def __init__(self, path: str, name: str, table: ChunkTable, kept: int, known: str | None) -> None:
        self.path, self.name = path, name
        self.table = table
        self._kept, self._known = kept, known
        self._parts: list[list[int]] = []
        self.first_row = self.rows = 0

    def add(self, crcs: list[int]) -> None:
        """Take the hashes of the next chunks."""
        self._parts.append(crcs)

    def done(self) -> None:
        """All have come.

        Raises
        ------
        CorruptDataError
            They do not have the hash of their commit.
        """
        crcs = [crc for part in self._parts for crc in part]
        if self._known is not None and f"{table_crc(self.table, crcs):08x}" != self._known:
            raise not_as_committed(self.path, self.name)
        kept = self.table if self._kept == len(crcs) else self.table.part(0, self._kept)
        self._crc = table_crc(kept, crcs[: self._kept])

    def check(self) -> Check:
        """Return what the result must have."""
        return Check(self.name, self.first_row, self.rows, "chunks", self._crc)


class ChunkMoves:
    """The moves that are under way, and the sources that are open for them.

    Parameters
    ----------
    result : TemporaryFile
    """

    def __init__(self, result: TemporaryFile) -> None:
        self._result = result
        self._sources: deque[tuple[AbstractContextManager[Any], list[ChunkMove]]] = deque()
        self._copier: ChunkCopier | None = None
        self._copies: deque[tuple[RawFile, ChunkCopy, ChunkMove]] = deque()

    def enter(self, source: AbstractContextManager[Any]) -> None:
        """Open a source; it is closed when all that `start` is told of it has arrived."""
        source.__enter__()
        self._sources.append((source, []))

    def start(self, move: ChunkMove, raw: RawFile, places: npt.NDArray[np.int64]) -> None:
        """Begin a move out of the source that was opened last.

        Parameters
        ----------
        places : ndarray of int64
            Where the chunks go in the result.
        """
        self._sources[-1][1].append(move)
        all_places = np.full(len(move.table), -1, np.int64)
        all_places[: len(places)] = places
        for first, last in move.table.parts(_PART_BYTES):
            while len(self._copies) >= _MOST_COPIES:
                self._wait()
            if self._copier is None:
                self._copier = ChunkCopier(max(1, min(_MOST_THREADS, (os.cpu_count() or 1) - 1)))
            places = all_places[first:last]
            part = raw.begin(self._copier, move.table.part(first, last), places, self._result.fileno())
            self._copies.append((raw, part, move))

    def leave(self, wrote: Callable[[], None]) -> None:
        """Go on to the next source; close those that have to be."""
        while len(self._sources) >= _MOST_SOURCES:
            self._close()
            wrote()

    def finish(self) -> None:
        """Wait for everything.

        Raises
        ------
        CorruptDataError, OSError, DurabilityError
            A source cannot be read, has other chunks than were committed, or changed; the result
            cannot be written.
        """
        while self._sources:
            self._close()

    def __enter__(self) -> ChunkMoves:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        # Descriptors are closed when nobody reads or writes any more.
        for _, part, _ in self._copies:
            part.wait()
        self._copies.clear()
        while self._sources:
            self._sources.popleft()[0].__exit__(kind, error, traceback)

    def _close(self) -> None:
        source, moves = self._sources[0]
        while any(move is waiting for _, _, waiting in self._copies for move in moves):
            self._wait()
        for move in moves:
            move.done()
        self._sources.popleft()
        source.__exit__(None, None, None)

    def _wait(self) -> None:
        raw, part, move = self._copies.popleft()
        with reading(move.path, move.name):
            move.add(raw.outcome(part, self._result))
