"""Rows and chunks on their way from the sources into the result."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import h5py
import numpy as np

from shardkeep._core import crc32c
from shardkeep.errors import CorruptDataError
from shardkeep.files.temporary_file import TemporaryFile
from shardkeep.files.writeback import Writeback
from shardkeep.hdf5.merge.checks.table import Check
from shardkeep.hdf5.merge.chunk_moves import ChunkMove, ChunkMoves
from shardkeep.hdf5.merge.keyed_rows import KeyedRows, MemoryShare
from shardkeep.hdf5.merge.plan import DatasetPlan, MergePlan, Part
from shardkeep.hdf5.merge.schema.values import crc_of_values, write_values
from shardkeep.hdf5.merge.sink import Sink
from shardkeep.hdf5.merge.virtual import point_to_sources, virtual_checks
from shardkeep.hdf5.read_errors import reading
from shardkeep.hdf5.sources.raw_file import RawFile
from shardkeep.hdf5.sources.source import Source, open_source
from shardkeep.hdf5.sources.source_rows import blocks, not_as_committed
from shardkeep.hdf5.storage.content_hash import content_crc

__all__ = ["fill"]


class _OneSource:
    """A source that is being read: by offsets, and through HDF5 where that is needed."""

    def __init__(self, plan: MergePlan, number: int, before: RawFile | None) -> None:
        self.path = plan.sources[number].path
        self._version = plan.source_versions[number]
        self._before = before
        self._open = contextlib.ExitStack()
        self._source: Source | None = None
        self.raw: RawFile | None = None

    def __enter__(self) -> _OneSource:
        self.raw = RawFile.open_source(self.path, self._version)
        if self.raw is not None:
            self._open.enter_context(self.raw)
            self.raw.use(self._before)
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def dataset(self, name: str, plan: DatasetPlan, part: Part) -> h5py.Dataset:
        if self._source is None:
            self._source = self._open.enter_context(open_source(self.path))
        dataset = self._source.dataset(name)
        if tuple(dataset.shape) != (part.rows, *plan.row_shape):
            message = f"{self.path!r} changed while it was merged: wait for its writer and merge again"
            raise CorruptDataError(message, path=self.path)
        return dataset

    def chunk(self, plan: DatasetPlan, part: Part, offset: list[int]) -> bytes:
        data: bytes = self.dataset(plan.name, plan, part).id.read_direct_chunk(tuple(offset))[1]
        return data

    def rows(self, plan: DatasetPlan, part: Part, start: int) -> Iterator[np.ndarray[Any, Any]]:
        if self.raw is not None and part.plain and part.chunks is not None:
            chunk_rows = part.layout.chunks[0] if part.layout.chunks else part.rows
            yield from self.raw.rows(part.chunks, chunk_rows, part.dtype, plan.row_shape, start, part.rows)
            return
        yield from blocks(self.dataset(plan.name, plan, part), start, part.rows)


def fill(
    file: h5py.File,
    plan: MergePlan,
    temporary: TemporaryFile,
    writeback: Writeback,
    progress: Callable[[int, int], None] | None,
) -> list[Check]:
    """Write every dataset of the plan; return the hashes of what was read from the sources."""
    checks: list[Check | ChunkMove] = []
    sinks: list[Sink | KeyedRows] = []
    by_source: dict[int, list[tuple[Sink | KeyedRows, Part]]] = {}
    with contextlib.ExitStack() as stack:
        share = MemoryShare()
        for one in plan.datasets:
            dataset: h5py.Dataset
            if one.way in ("constant", "ranks"):
                dataset = write_values(file, one)
                checks.append(Check(one.name, 0, 0, "value", crc_of_values(one)))
            elif one.way == "virtual":
                dataset = point_to_sources(file, one, plan)
                checks += virtual_checks(dataset, one, plan)
            else:
                sink = Sink(file, one, temporary)
                dataset = sink.dataset
                way: Sink | KeyedRows = sink
                if one.keyed and plan.key is not None:
                    way = stack.enter_context(KeyedRows(sink, plan.key, plan.output, share))
                sinks.append(way)
                if not one.parts:
                    checks.append(Check(one.name, 0, 0, "rows", 0))
                for part in one.parts:
                    by_source.setdefault(part.source, []).append((way, part))
            one.attributes.write(dataset)
        for name, attributes in plan.groups.items():
            if name not in plan.links:
                attributes.write(file.require_group(name) if name else file)
        moves = stack.enter_context(ChunkMoves(temporary))
        before: RawFile | None = None
        for number in range(len(plan.sources)):
            if number in by_source:
                source = _OneSource(plan, number, before)
                moves.enter(source)
                for way, part in by_source[number]:
                    with reading(source.path, way.plan.name):
                        checks += _copy(source, way, part, plan, moves)
                    if temporary.failure is not None:
                        raise temporary.failure
                before = source.raw or before
                moves.leave(writeback.wrote)
                writeback.wrote()
            if progress is not None:
                progress(number + 1, len(plan.sources))
        moves.finish()
        for way in sinks:
            checks += way.finish() or ()
            if temporary.failure is not None:
                raise temporary.failure
    return [one if isinstance(one, Check) else one.check() for one in checks]


def _copy(
    source: _OneSource, way: Sink | KeyedRows, part: Part, plan: MergePlan, moves: ChunkMoves
) -> Iterator[Check | ChunkMove]:
    one = way.plan
    done = 0
    if isinstance(way, Sink) and part.chunks is not None and way.aligned and way.takes_chunks_of(part.layout):
        last = part.first_row + part.rows == one.rows
        done = part.rows if last else part.rows // way.chunk_rows * way.chunk_rows
        if done:
            move = _move_chunks(source, way, part, done, moves)
            move.first_row, move.rows = part.first_row, done
            yield move
        if done == part.rows:
            return
    converted = part.dtype != one.dtype or part.layout.type_code != one.layout.type_code
    crc = crc_there = 0
    for rows in source.rows(one, part, done):
        crc = content_crc(rows, crc)
        if converted:
            rows = rows.astype(one.dtype.base)
            crc_there = content_crc(rows, crc_there)
        way.add_rows(rows)
    if part.crc32c is not None and done == 0 and f"{crc:08x}" != part.crc32c:
        raise not_as_committed(source.path, one.name)
    if isinstance(way, Sink):
        first_row = part.first_row + done
        yield Check(one.name, first_row, part.rows - done, "rows", crc_there if converted else crc)


def _move_chunks(source: _OneSource, sink: Sink, part: Part, rows: int, moves: ChunkMoves) -> ChunkMove:
    assert part.chunks is not None
    table = part.chunks.between(0, rows)
    # Chunks are not decoded, so the hash of the rows says nothing about them. Theirs is of all chunks
    # of the commit, also of a last one that is compressed anew.
    known = part.chunks_crc32c
    read = table if known is None else part.chunks.between(0, part.rows)
    move = ChunkMove(source.path, sink.plan.name, read, len(table), known)
    places = None if source.raw is None else sink.place_chunks(table)
    if source.raw is not None and places is not None:
        moves.start(move, source.raw, places)
    else:
        masks = read.masks.tolist()
        for i, offset in enumerate(read.offsets.tolist()):
            data = source.chunk(sink.plan, part, offset)
            if i < len(table):
                sink.add_chunk(offset, masks[i], data)
            move.add([crc32c(data)])
        move.done()
    sink.skip(rows)
    return move
