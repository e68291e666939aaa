"""Copy of rows and chunks from the sources into the result.

`fill` creates every dataset of the plan and then reads the sources, one after the other, each from its first
dataset to its last. Whole compressed chunks are copied by `shardkeep.hdf5.merge.chunk_copy`. Other rows are
read by offset where they are stored as in memory, otherwise through HDF5, hashed, and written by
`DatasetWriter`; rows in the order of a key first pass through `KeyedRows`. What is written is always a first
part of each dataset, so no row of the result is left to a fill value.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Any

import h5py
import numpy as np

from shardkeep._core import crc32c
from shardkeep.errors import CorruptDataError, SchemaError
from shardkeep.files.temporary_file import TemporaryFile
from shardkeep.files.writeback import Writeback
from shardkeep.hdf5.locking.damage import refuse_damage
from shardkeep.hdf5.merge.checks import Check
from shardkeep.hdf5.merge.chunk_copy import ChunkCopies, PartCopy
from shardkeep.hdf5.merge.dataset_writer import DatasetWriter
from shardkeep.hdf5.merge.keyed_rows import KeyedRows, Scratch
from shardkeep.hdf5.merge.plan import DatasetPlan, MergePlan, Part
from shardkeep.hdf5.merge.result import (
    create_virtual,
    values_crc,
    virtual_checks,
    write_group,
    write_values,
)
from shardkeep.hdf5.read_errors import reading
from shardkeep.hdf5.sources.raw_file import RawFile
from shardkeep.hdf5.sources.source import Source, blocks, not_as_committed, open_source
from shardkeep.hdf5.storage.content_hash import content_crc
from shardkeep.hdf5.storage.dtypes import same_file_type
from shardkeep.hdf5.storage.exact_values import as_read, converts_text, obstacle_to_text, read_exactly
from shardkeep.progress import Count, Parts

__all__ = ["fill"]


class _OpenSource:
    """A source that is being read, by offset and through HDF5."""

    def __init__(self, plan: MergePlan, number: int, before: RawFile | None) -> None:
        self.path = plan.sources[number].path
        self._version = plan.source_versions[number]
        self._before = before
        self._open = contextlib.ExitStack()
        self._source: Source | None = None
        self.raw: RawFile | None = None

    def __enter__(self) -> _OpenSource:
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
        if self.raw is not None and part.plain:
            chunk_rows = part.layout.chunks[0] if part.layout.chunks else part.rows
            addresses = [part.offset_bytes or 0] if part.chunks is None else part.chunks.addresses
            yield from self.raw.rows(addresses, chunk_rows, part.dtype, plan.row_shape, start, part.rows)
            return
        dataset = self.dataset(plan.name, plan, part)
        read = None
        if converts_text(part.layout.kind):
            if part.dtype.hasobject:
                refuse_damage(self.path, rows=True)
            read = functools.partial(read_exactly, dataset.id, part.dtype)
        yield from blocks(dataset, start, part.rows, read)


def fill(
    file: h5py.File,
    plan: MergePlan,
    temporary: TemporaryFile,
    writeback: Writeback,
    parts: Parts,
    executor: Executor | None = None,
) -> list[Check]:
    """Write every dataset of the plan; return the hashes of the rows that were read from the sources."""
    checks: list[Check | PartCopy] = []
    writers: list[DatasetWriter | KeyedRows] = []
    by_source: dict[int, list[tuple[DatasetWriter | KeyedRows, Part]]] = {}
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(Scratch(plan.output))
        for name in plan.groups:
            write_group(file, plan, name)
        for one in plan.datasets:
            dataset: h5py.Dataset
            if not one.has_rows:
                dataset = write_values(file, one)
                checks.append(Check(one.name, 0, 0, "value", values_crc(one)))
            elif one.strategy == "virtual":
                dataset = create_virtual(file, one, plan)
                checks += virtual_checks(dataset, one, plan)
            else:
                in_order = DatasetWriter(file, one, temporary)
                dataset = in_order.dataset
                writer: DatasetWriter | KeyedRows = in_order
                if one.keyed and plan.key is not None:
                    writer = KeyedRows(in_order, plan.key, plan.output, scratch)
                writers.append(writer)
                if not one.parts:
                    checks.append(Check(one.name, 0, 0, "rows", 0))
                for part in one.parts:
                    by_source.setdefault(part.source, []).append((writer, part))
            one.attributes.write(dataset)
        copied_parts = (one for some in by_source.values() for one in some)
        total_bytes = sum(part.rows * writer.plan.row_bytes for writer, part in copied_parts)
        copied = Count(parts.begin("copy"), total_bytes)
        copies = stack.enter_context(ChunkCopies(temporary, plan.output, executor))
        before: RawFile | None = None
        for number in range(len(plan.sources)):
            if number in by_source:
                source = _OpenSource(plan, number, before)
                copies.enter(source)
                for writer, part in by_source[number]:
                    with reading(source.path, writer.plan.name):
                        checks += _copy(source, writer, part, copies, copied)
                    temporary.raise_failure()
                before = source.raw or before
                copies.limit_sources(writeback.wrote)
                writeback.wrote()
        copies.finish()
        keyed_bytes = sum(one.plan.rows * one.plan.row_bytes for one in writers if isinstance(one, KeyedRows))
        ordered = Count(parts.begin("put in order") if keyed_bytes else lambda *_: None, keyed_bytes)
        for writer in writers:
            for check in writer.finish() or ():
                checks.append(check)
                ordered.add(check.rows * writer.plan.row_bytes)
            temporary.raise_failure()
    return [one if isinstance(one, Check) else one.check() for one in checks]


def _copy(
    source: _OpenSource, writer: DatasetWriter | KeyedRows, part: Part, copies: ChunkCopies, copied: Count
) -> Iterator[Check | PartCopy]:
    """Copy the rows of a part: first whole chunks as they are, then the rest."""
    one = writer.plan
    done = 0
    if (
        isinstance(writer, DatasetWriter)
        and part.chunks is not None
        and writer.aligned
        and writer.takes_chunks_of(part.layout)
    ):
        is_last = part.first_row + part.rows == one.rows
        done = part.rows if is_last else part.rows // writer.chunk_rows * writer.chunk_rows
        if done:
            yield _copy_chunks(source, writer, part, done, copies, copied)
        if done == part.rows:
            return
    kind = None if part.plain else part.layout.kind
    converted = part.dtype != one.dtype or not same_file_type(part.layout.type_code, one.layout.type_code)
    crc = converted_crc = 0
    for rows in source.rows(one, part, done):
        values = rows
        if kind is not None:
            obstacle = obstacle_to_text(rows, kind)
            if obstacle is not None:
                message = f"dataset {one.name!r} of {source.path!r} {obstacle}: leave it out"
                raise SchemaError(message, path=source.path)
            values = as_read(rows, kind, part.dtype)  # the hash is that of values as any program reads them
        crc = content_crc(values, crc)
        if converted:
            rows = values.astype(one.dtype.base)
            converted_crc = content_crc(rows, converted_crc)
        writer.add_rows(rows)
        copied.add(len(rows) * one.row_bytes)
    if part.crc32c is not None and done == 0 and f"{crc:08x}" != part.crc32c:
        raise not_as_committed(source.path, one.name)
    if isinstance(writer, DatasetWriter):
        first_row = part.first_row + done
        yield Check(one.name, first_row, part.rows - done, "rows", converted_crc if converted else crc)


def _copy_chunks(
    source: _OpenSource, writer: DatasetWriter, part: Part, rows: int, copies: ChunkCopies, copied: Count
) -> PartCopy:
    """Copy the chunks of the first `rows` rows of a part."""
    assert part.chunks is not None
    table = part.chunks.between(0, rows)
    # Chunks are not decoded, so they are compared with the hash of the chunks of the commit. That covers all
    # chunks, also a last one that is compressed again.
    known = part.chunks_crc32c
    read = table if known is None else part.chunks.between(0, part.rows)
    copy = PartCopy(
        source.path, writer.plan.name, read, len(table), known, first_row=part.first_row, rows=rows
    )
    copied_bytes = rows * writer.plan.row_bytes

    def tick(chunks: int) -> None:
        copied.add(copied_bytes * chunks // len(read))

    places = None if source.raw is None else writer.allocate_chunks(table)
    if source.raw is not None and places is not None:
        copies.start(copy, source.raw, places, tick)
    else:
        masks = read.masks.tolist()
        for i, offset in enumerate(read.offsets.tolist()):
            data = source.chunk(writer.plan, part, offset)
            if i < len(table):
                writer.add_chunk(offset, masks[i], data)
            copy.add([crc32c(data)])
            tick(1)
        copy.done()
    writer.row += rows
    return copy
