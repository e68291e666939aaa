"""Copies of compressed chunks: the bytes go from source to result without being decoded.

HDF5 allocates the chunks of the result and enters them in its index (`DatasetWriter.allocate_chunks`), one
after the other under its one lock. Threads of the Rust half (`shardkeep._core.ChunkCopier`) meanwhile read
the bytes from the source, hash them, and write them to the allocated addresses.

Invariants:

- A source stays open and locked until all of its bytes are written; then it must be unchanged. So up to
  four sources are open at once.
- With an executor, its workers copy the chunks after HDF5 has allocated all of them. Each opens a source and
  the result by their names; a task that runs again writes the same bytes to the same addresses.
- Chunks of a segment must have the hash of their commit. The hash of every chunk goes into ``_checks``,
  against which the result is read back before it gets its name.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shardkeep._core import ChunkCopier, ChunkCopy
from shardkeep._paths_in_messages import shown
from shardkeep.errors import CorruptDataError
from shardkeep.files.durable import durably
from shardkeep.files.leftovers import open_temporary
from shardkeep.files.temporary_file import TemporaryFile
from shardkeep.files.threads.groups import size_runs
from shardkeep.files.threads.work import Tick, Work
from shardkeep.hdf5.locking.file_version import FileVersion
from shardkeep.hdf5.merge.checks import Check
from shardkeep.hdf5.read_errors import reading
from shardkeep.hdf5.sources.raw_file import RawFile
from shardkeep.hdf5.sources.source import not_as_committed
from shardkeep.hdf5.storage.chunk_table import ChunkTable, table_crc

__all__ = ["ChunkCopies", "PartCopy"]

_MOST_SOURCES = 4
_MOST_COPIES = 4
# The kernel lets one thread at a time write to a file; the other reads and hashes.
_MOST_THREADS = 2
_PART_BYTES = 16 * 1024 * 1024


class PartCopy:
    """Copy of the chunks of one part of a dataset.

    Parameters
    ----------
    path, name : str
        Source and dataset.
    table : ChunkTable
        The chunks that are read and hashed.
    kept : int
        How many of them, from the first one, go into the result.
    known : str or None
        The hash that all together must have.
    first_row, rows : int
        Their rows in the result.
    """

    def __init__(
        self,
        path: str,
        name: str,
        table: ChunkTable,
        kept: int,
        known: str | None,
        *,
        first_row: int,
        rows: int,
    ) -> None:
        self.path, self.name = path, name
        self.table = table
        self._kept, self._known = kept, known
        self._parts: list[list[int]] = []
        self._first_row, self._rows = first_row, rows

    def add(self, crcs: list[int]) -> None:
        """Add the hashes of the next chunks."""
        self._parts.append(crcs)

    def done(self) -> None:
        """Compute the hash; raise `CorruptDataError` unless it is that of the commit."""
        crcs = [crc for part in self._parts for crc in part]
        if self._known is not None and f"{table_crc(self.table, crcs):08x}" != self._known:
            raise not_as_committed(self.path, self.name)
        kept = self.table if self._kept == len(crcs) else self.table.part(0, self._kept)
        self._crc = table_crc(kept, crcs[: self._kept])

    def check(self) -> Check:
        """Return the hash that the result must have."""
        return Check(self.name, self._first_row, self._rows, "chunks", self._crc)


class _Task(NamedTuple):
    """Copy of some chunks by a worker; `places` are their addresses in the file `result`."""

    path: str
    name: str
    version: FileVersion
    table: ChunkTable
    places: npt.NDArray[np.int64]
    result: str
    final: str

    @property
    def size_bytes(self) -> int:
        return int(self.table.sizes.sum())


def _copy_part(task: _Task, tick: Tick) -> list[int]:
    """Copy chunks and return their hashes."""
    # The same file system may have another device number on each host.
    status = os.stat(task.path)
    version = task.version._replace(device=status.st_dev)
    if shown(task.path) != task.path:  # a copy of a remote object, of this version
        version = FileVersion.of(status)
    raw = RawFile.open_source(task.path, version)
    if raw is None:
        raise CorruptDataError(f"{task.path!r} changed while it was merged: merge again", path=task.path)
    with raw, reading(task.path, task.name):
        with durably("open", task.final):
            fd = open_temporary(task.result, os.O_RDWR)
        try:
            part = raw.begin(ChunkCopier(1), task.table, task.places, fd)
            crcs = raw.outcome(part, TemporaryFile(fd, task.result, task.final))
        finally:
            with durably("write", task.final):
                os.close(fd)
    tick(task.size_bytes)
    return crcs


class ChunkCopies:
    """Copies that are in progress, and the sources that are open for them.

    Parameters
    ----------
    result : TemporaryFile
    final : str
        Its final name, for messages.
    executor : Executor, optional
        Copies all chunks in `finish`, instead of threads.
    """

    def __init__(self, result: TemporaryFile, final: str, executor: Executor | None = None) -> None:
        self._result, self._final, self._executor = result, final, executor
        self._tasks: list[tuple[_Task, PartCopy, Callable[[int], object]]] = []
        self._sources: deque[tuple[AbstractContextManager[Any], list[PartCopy]]] = deque()
        self._copier: ChunkCopier | None = None
        self._copies: deque[tuple[RawFile, ChunkCopy, PartCopy]] = deque()

    def enter(self, source: AbstractContextManager[Any]) -> None:
        """Open a source; it is closed after all copies from it are complete."""
        source.__enter__()
        self._sources.append((source, []))

    def start(
        self,
        copy: PartCopy,
        raw: RawFile,
        places: npt.NDArray[np.int64],
        tick: Callable[[int], object],
    ) -> None:
        """Begin to copy chunks of the source that was opened last to these places in the result.

        `tick` is called with the number of chunks of each part that begins.
        """
        self._sources[-1][1].append(copy)
        all_places = np.full(len(copy.table), -1, np.int64)
        all_places[: len(places)] = places
        for first, last in size_runs(copy.table.sizes, _PART_BYTES):
            if self._executor is not None:
                table, places = copy.table.part(first, last), all_places[first:last]
                task = _Task(copy.path, copy.name, raw.version, table, places, self._result.name, self._final)
                self._tasks.append((task, copy, tick))
                continue
            while len(self._copies) >= _MOST_COPIES:
                self._wait()
            if self._copier is None:
                self._copier = ChunkCopier(max(1, min(_MOST_THREADS, (os.cpu_count() or 1) - 1)))
            places = all_places[first:last]
            part = raw.begin(self._copier, copy.table.part(first, last), places, self._result.fileno())
            self._copies.append((raw, part, copy))
            tick(last - first)

    def limit_sources(self, wrote: Callable[[], None]) -> None:
        """Finish the oldest sources until another one may be opened."""
        while len(self._sources) >= _MOST_SOURCES:
            self._close()
            wrote()

    def finish(self) -> None:
        """Wait for all copies.

        Raises
        ------
        CorruptDataError, OSError, DurabilityError
            A source cannot be read, has other chunks than were committed, or changed; the result
            cannot be written.
        EngineError
            The executor did not finish a task.
        """
        while self._sources:
            self._close()
        if self._executor is None:
            return
        tasks = [task for task, _, _ in self._tasks]
        ends = list(itertools.accumulate(task.size_bytes for task in tasks))
        counted = 0

        def report(done_bytes: int, _total: int) -> None:
            nonlocal counted
            while counted < len(tasks) and ends[counted] <= done_bytes:
                task, _, tick = self._tasks[counted]
                tick(len(task.table))
                counted += 1

        found = Work(report, ends[-1] if ends else 0, self._executor).run(_copy_part, tasks, 1)
        for (_, copy, _), crcs in zip(self._tasks, found, strict=True):
            copy.add(crcs)
        for copy in dict.fromkeys(copy for _, copy, _ in self._tasks):
            copy.done()

    def __enter__(self) -> ChunkCopies:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        # No thread may use a descriptor after it is closed.
        for _, part, _ in self._copies:
            part.wait()
        self._copies.clear()
        while self._sources:
            self._sources.popleft()[0].__exit__(kind, error, traceback)

    def _close(self) -> None:
        source, copies = self._sources[0]
        while any(copy is waiting for _, _, waiting in self._copies for copy in copies):
            self._wait()
        for copy in copies if self._executor is None else ():
            copy.done()
        self._sources.popleft()
        source.__exit__(None, None, None)

    def _wait(self) -> None:
        raw, part, copy = self._copies.popleft()
        with reading(copy.path, copy.name):
            copy.add(raw.outcome(part, self._result))
