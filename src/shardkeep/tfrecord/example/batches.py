"""Batches of columns from whole files: by the engine, or record by record for compressed files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from shardkeep import _core
from shardkeep.errors import CorruptRecordError
from shardkeep.tfrecord.format.file_kind import with_file_kind
from shardkeep.tfrecord.format.frame import OVERHEAD_BYTES
from shardkeep.tfrecord.index.index import load_indexes

__all__ = ["BytesAs", "ColumnBatch", "FileRun", "batches_of", "runs_of"]

BytesAs = Literal["objects", "buffers"]

_AHEAD = 2


@dataclass(frozen=True)
class ColumnBatch:
    """Consecutive rows of the result.

    Attributes
    ----------
    columns : dict
        As the engine returns them: an array, or a tuple of values and offsets. Gathered columns are not
        included.
    rows : int
    path, record
        File and record number of the first row.
    file_bytes : int
        Number of bytes of the files that the batch covers.
    """

    columns: dict[str, Any]
    rows: int
    path: str
    record: int
    file_bytes: int


@dataclass(frozen=True)
class FileRun:
    """Consecutive files that are read in the same way.

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
        """Number of records; 0 for compressed files, where it is unknown."""
        return sum(len(one) - 1 for one in self.starts or ())


def runs_of(paths: Sequence[str], *, threads: int) -> list[FileRun]:
    """Return runs of compressed and uncompressed files, with the record offsets of the latter.

    Raises
    ------
    NotFoundError, FormatError, CorruptRecordError, TruncatedFileError
        As `shardkeep.tfrecord.build_index`.
    """
    try:
        compressed = [_core.sniff_compression(path) is not None for path in paths]
    except CorruptRecordError as error:
        raise with_file_kind(error) from None
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
        Called before each batch; returns its largest number of rows and of payload bytes.
    gathered : dict, optional
        For uncompressed files: receives, after the last batch, the whole columns whose row size the features
        determine; these are not in the batches. All threads fill them in place.

    Raises
    ------
    CorruptDataError, SchemaError
        A record is damaged or does not match the features; the error has its offset.
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
        raise with_file_kind(error) from None


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
    """Yield batches as (shard, record in it, number of the first, rows, bytes of frames)."""
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
            # With a limit of another type, searchsorted would convert all offsets.
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
