"""Whole files as batches of columns: through the engine, or where a file is compressed, record by record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from shardkeep import _core
from shardkeep.errors import CorruptRecordError
from shardkeep.tfrecord.index import load_indexes
from shardkeep.tfrecord.index_fingerprint import OVERHEAD_BYTES
from shardkeep.tfrecord.reader import explained

__all__ = ["BytesAs", "ColumnBatch", "FileRun", "batches_of", "runs_of"]

BytesAs = Literal["objects", "buffers"]

_MAX_ROWS = 8192
_AHEAD = 2


@dataclass(frozen=True)
class ColumnBatch:
    """Consecutive rows of the result.

    Attributes
    ----------
    columns : dict
        As the engine gives them: an array, or a tuple of values and offsets. Without those that are gathered.
    rows : int
    path, record
        Where the first row is from.
    file_bytes : int
        So much of the files is read with it.
    """

    columns: dict[str, Any]
    rows: int
    path: str
    record: int
    file_bytes: int


@dataclass(frozen=True)
class FileRun:
    """Files that follow each other and are read in one way.

    Attributes
    ----------
    paths : list of str
    starts : list of ndarray of uint64, or None
        The frame offsets of each file; None for compressed files, whose records have none.
    """

    paths: list[str]
    starts: list[npt.NDArray[np.uint64]] | None

    @property
    def records(self) -> int:
        """How many records there are, as far as that is known: 0 for compressed files."""
        return sum(len(one) - 1 for one in self.starts or ())


def runs_of(paths: Sequence[str], *, threads: int) -> list[FileRun]:
    """Tell compressed files from others, and where the records of the others start.

    Raises
    ------
    NotFoundError, FormatError, CorruptRecordError, TruncatedFileError
        As `shardkeep.tfrecord.build_index`.
    """
    try:
        compressed = [_core.sniff_compression(path) is not None for path in paths]
    except CorruptRecordError as error:
        raise explained(error) from None
    indexes = load_indexes(
        [p for p, is_so in zip(paths, compressed, strict=True) if not is_so], threads=threads
    )
    starts = iter(index.starts for index in indexes)
    runs = []
    for is_compressed, group in groupby(zip(paths, compressed, strict=True), key=lambda one: one[1]):
        names = [path for path, _ in group]
        runs.append(FileRun(names, None if is_compressed else list(islice(starts, len(names)))))
    return runs


def batches_of(
    run: FileRun,
    described: list[tuple[Any, ...]],
    *,
    budget: Callable[[], tuple[int, int]],
    threads: int,
    verify: bool,
    bytes_as: BytesAs,
    gathered: dict[str, Any] | None = None,
) -> Iterator[ColumnBatch]:
    """Yield the records of a run in order.

    Parameters
    ----------
    budget : callable
        Asked before each batch for the most rows and payload bytes it may have.
    gathered : dict, optional
        Of files that are not compressed: gets, behind the last batch, whole columns, which are then in no
        batch: those whose rows have a size that the features tell. All threads fill them where they stay.

    Raises
    ------
    CorruptDataError, SchemaError
        A record that is damaged or does not fit, with its place.
    """
    try:
        if run.starts is None:
            for path in run.paths:
                yield from _in_order(path, described, budget, verify, bytes_as)
        else:
            engine = _core.Engine(
                run.paths,
                run.starts,
                described,
                threads=threads,
                verify=verify,
                bytes_as=bytes_as,
                gather=gathered is not None,
            )
            yield from _by_engine(engine, run, budget)
            if gathered is not None:
                gathered.update(engine.gathered())
    except CorruptRecordError as error:
        raise explained(error) from None


def _by_engine(
    engine: _core.Engine, run: FileRun, budget: Callable[[], tuple[int, int]]
) -> Iterator[ColumnBatch]:
    waiting: list[tuple[int, int, int, int]] = []
    for shard, index, first, rows, file_bytes in _spans(run.starts or [], budget):
        engine.submit(np.arange(first, first + rows, dtype=np.uint64), rows)
        waiting.append((shard, index, rows, file_bytes))
        if len(waiting) > _AHEAD:
            yield _taken(engine, run, *waiting.pop(0))
    for one in waiting:
        yield _taken(engine, run, *one)


def _taken(
    engine: _core.Engine, run: FileRun, shard: int, index: int, rows: int, file_bytes: int
) -> ColumnBatch:
    columns = engine.take()
    assert columns is not None
    return ColumnBatch(columns, rows, run.paths[shard], index, file_bytes)


def _spans(
    starts: list[npt.NDArray[np.uint64]], budget: Callable[[], tuple[int, int]]
) -> Iterator[tuple[int, int, int, int, int]]:
    """Cut the records into batches: (shard, record in it, number of the first, rows, bytes of frames)."""
    first = 0
    open_span: tuple[int, int] | None = None
    rows = frame_bytes = 0
    max_rows, max_bytes = budget()
    for shard, ends in enumerate(starts):
        index, count = 0, len(ends) - 1
        while index < count:
            if open_span is None:
                open_span = (shard, index)
                max_rows, max_bytes = budget()
            limit = int(ends[index]) + max_bytes - frame_bytes
            # A limit of another type would make searchsorted convert all offsets.
            fit = int(np.searchsorted(ends, np.uint64(max(limit, 0)), side="right")) - 1 - index
            take = min(count - index, max_rows - rows, max(fit, 0 if rows else 1))
            frame_bytes += int(ends[index + take] - ends[index])
            rows += take
            index += take
            if index < count or rows >= max_rows:
                yield (*open_span, first, rows, frame_bytes)
                first += rows
                open_span, rows, frame_bytes = None, 0, 0
    if open_span is not None:
        yield (*open_span, first, rows, frame_bytes)


def _in_order(
    path: str,
    described: list[tuple[Any, ...]],
    budget: Callable[[], tuple[int, int]],
    verify: bool,
    bytes_as: BytesAs,
) -> Iterator[ColumnBatch]:
    records = _core.RecordIterator(path, verify=verify)
    first = 0
    while group := _group(records, *budget()):
        builder = _core.ColumnBuilder(described, len(group), bytes_as=bytes_as)
        builder.fill(group, path=path, first_record=first)
        frame_bytes = sum(map(len, group)) + OVERHEAD_BYTES * len(group)
        yield ColumnBatch(builder.finish(), len(group), path, first, frame_bytes)
        first += len(group)


def _group(records: Iterator[bytes], max_rows: int, max_bytes: int) -> list[bytes]:
    group: list[bytes] = []
    size = 0
    for record in records:
        group.append(record)
        size += len(record)
        # The next record may be as long as the longest so far; a batch may go over by one record.
        if len(group) >= max_rows or size >= max_bytes:
            break
    return group
