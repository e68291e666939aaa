"""Contents of the worker file of one rank: datasets with rows, values put once, attributes.

This module checks names, types and values. Commits, processes and errors of the disk are handled in
`shardkeep.hdf5.worker.worker_file`.
"""

from __future__ import annotations

import operator
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import h5py
import numpy as np

from shardkeep.errors import CorruptDataError, PlanError, SchemaError
from shardkeep.hdf5.read_errors import reading
from shardkeep.hdf5.segments.commit_record import (
    CommitRecord,
    DatasetRecord,
    MarkRecord,
    PutRecord,
    check_receipt,
    check_state,
    write_record,
)
from shardkeep.hdf5.segments.run_folder import list_segments
from shardkeep.hdf5.segments.series_check import check_follows
from shardkeep.hdf5.sources.source import Source, open_source
from shardkeep.hdf5.storage.attributes import Attributes, as_attribute, read_attributes, same_value
from shardkeep.hdf5.storage.compression import Compression, FilterSpec, compression_filters, require_filters
from shardkeep.hdf5.storage.content_hash import value_crc
from shardkeep.hdf5.storage.dtypes import as_dtype, describe, same_dtype, vlen_base
from shardkeep.hdf5.storage.layout import as_row_shape, check_row_size, chunk_rows_of, read_layout
from shardkeep.hdf5.storage.names import PUT, check_name, check_path
from shardkeep.hdf5.storage.row_writer import RowWriter
from shardkeep.hdf5.storage.rows import as_first_rows, as_value

__all__ = ["Contents", "Storage"]

ROOT = "/"


@dataclass(frozen=True)
class Storage:
    """Storage options of a dataset, as the user passed them."""

    compression: Compression | None = None
    level: int | None = None
    shuffle: bool | None = None
    chunk_rows: int | None = None

    def check(self) -> None:
        """Raise a `PlanError` or `MissingExtraError` for options that are not valid or not installed."""
        compression_filters(self.compression, self.level, self.shuffle, np.dtype("f8"))
        rows = self.chunk_rows
        if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
            raise PlanError(f"chunk_rows={rows!r} is not a number of rows: pass a whole number of at least 1")

    def or_default(self, default: Storage) -> Storage:
        """Return these options with the compression of `default`, unless they have a level or shuffle."""
        if self.level is not None or self.shuffle is not None:
            return self
        return replace(default, chunk_rows=self.chunk_rows)

    def filters(self, name: str, dtype: np.dtype[Any], *, forced: bool) -> tuple[FilterSpec, ...]:
        """Return the filters for a dtype; values of variable length have none."""
        if dtype.hasobject:
            if forced and self.compression is not None:
                message = f"dataset {name!r}: HDF5 does not compress values of variable length"
                raise SchemaError(f"{message}; leave compression out, or use fixed bytes (S)")
            return ()
        return compression_filters(self.compression, self.level, self.shuffle, dtype)


@dataclass
class Contents:
    """Committed and uncommitted contents of one rank.

    Attributes
    ----------
    default : Storage
        Options of datasets that are declared without their own.
    writers : dict of str to RowWriter
        Every dataset that has rows or was declared.
    first_row : dict of str to int
        Number of committed rows of each dataset.
    values : dict of str to ndarray
        Values that were put since the last commit.
    puts : dict of str to PutRecord
        Values that were put and committed.
    attributes : dict of str to Attributes
        Attributes by the name of the object, ``"/"`` is the root. Those of a committed value are only
        in its segment, and do not change.
    groups : set of str
        Groups of committed segments that have only attributes.
    declared : dict of str to tuple
        Arguments of `declare`, which outlive a rollback.
    newest_crc32c : str or None
        Checksum of the record of the newest segment.
    state : dict or None
        State of the newest commit.
    marks : list of MarkRecord
        Marks since the last commit, oldest first.
    """

    folder: str
    rank: int
    default: Storage
    writers: dict[str, RowWriter] = field(default_factory=dict)
    first_row: dict[str, int] = field(default_factory=dict)
    values: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    puts: dict[str, PutRecord] = field(default_factory=dict)
    attributes: dict[str, Attributes] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)
    declared: dict[str, tuple[np.dtype[Any], tuple[int, ...], Storage]] = field(default_factory=dict)
    step: int | None = None
    sequence: int = 0
    receipts: dict[str, int] = field(default_factory=dict)
    newest_crc32c: str | None = None
    state: dict[str, Any] | None = None
    marks: list[MarkRecord] = field(default_factory=list)

    def reload(self) -> Contents:
        """Return the committed contents and all declarations; errors as `list_segments`, `open_source`."""
        new = Contents(self.folder, self.rank, self.default)
        segments = list_segments(self.folder)
        new.sequence = len(segments)
        if segments:
            newest = segments[-1]
            with open_source(newest.path) as source:
                record = source.record
                if record is None or (record.rank, record.sequence, record.step) != (
                    self.rank,
                    newest.sequence,
                    newest.step,
                ):
                    message = (
                        f"{newest.path!r} is not the segment that its name says: restore it, or remove it"
                    )
                    raise CorruptDataError(message, path=newest.path)
                new.read(source, record)
            if len(segments) > 1:
                with open_source(segments[-2].path) as source:
                    if source.record is not None:
                        check_follows(record, newest.path, source.record, source.path)
        for name, (dtype, row_shape, storage) in self.declared.items():
            new.declare(name, dtype, row_shape, storage)
        return new

    # -- rows ----------------------------------------------------------------------------------------

    def first_rows(self, name: str, rows: Any) -> tuple[RowWriter, np.ndarray[Any, Any]]:
        """Add the dataset that these rows define."""
        array = as_first_rows(name, rows)
        self._check_new(name)
        check_row_size(name, array.dtype, array.shape[1:])
        filters = self.default.filters(name, array.dtype, forced=False)
        return self._add_writer(name, array.dtype, array.shape[1:], None, filters), array

    def declare(
        self, name: str, dtype: Any, row_shape: tuple[int, ...], storage: Storage, *, forced: bool = False
    ) -> None:
        """Add a dataset without rows, or change how a dataset is stored.

        `forced` refuses a compression that has no effect.
        """
        dtype, row_shape = as_dtype(name, dtype), as_row_shape(row_shape)
        check_row_size(name, dtype, row_shape)
        if vlen_base(dtype) is not None and row_shape:
            raise SchemaError(f"dataset {name!r}: rows of variable length have row_shape=(), not {row_shape}")
        filters = storage.filters(name, dtype, forced=forced)
        old = self.writers.get(name)
        if old is None:
            self._check_new(name)
        else:
            if not same_dtype(old.dtype, dtype) or old.row_shape != row_shape:
                there, new = describe(old.dtype, old.row_shape), describe(dtype, row_shape)
                raise SchemaError(f"dataset {name!r} has {there}, not {new}: declare it as it is")
            same = old.filters == filters and storage.chunk_rows in (None, old.chunk_rows)
            if not same and old.rows:
                message = f"dataset {name!r} has uncommitted rows that are stored in another way"
                raise PlanError(f"{message}: declare it before the first append, or after a commit")
            if same and old.rows:
                return
        writer = self._add_writer(name, dtype, row_shape, storage.chunk_rows, filters)
        if old is not None:
            writer.parts = old.parts  # the same list: another thread may be adding a row
        self.declared[name] = (dtype, row_shape, storage)

    # -- values --------------------------------------------------------------------------------------

    def put(self, name: str, value: Any) -> None:
        """Add a value that is written once; an equal one again changes nothing."""
        array = as_value(f"value {name!r}", value)
        there = self.values.get(name)
        if there is None and name in self.puts:
            there = self._committed(name)[0]
        if there is None:
            self._check_new(name)
            self.values[name] = array
        elif not same_value((there, there.dtype), (array, array.dtype)):
            message = f"the value {name!r} was put before and differs"
            raise SchemaError(f"{message}: choose another name, or append rows if it changes")

    def _committed(self, name: str) -> tuple[np.ndarray[Any, Any], Attributes]:
        segment = list_segments(self.folder)[self.puts[name].sequence]
        with open_source(segment.path) as source:
            return self.value_in(source, name)

    @staticmethod
    def value_in(source: Source, name: str) -> tuple[np.ndarray[Any, Any], Attributes]:
        """Return a value that was put, and its attributes, from its segment."""
        with reading(source.path, name, "the value"):
            dataset = source.dataset(name)
            array = np.empty(dataset.shape, dataset.dtype)
            array[...] = dataset[()]
            values = read_attributes(dataset)[0].values
            return array, Attributes({key: one for key, one in values.items() if key != PUT})

    # -- attributes ----------------------------------------------------------------------------------

    def set_attribute(self, name: str, value: Any, on: str) -> None:
        """Set an attribute of the root, a dataset, a value or a group."""
        kept = as_attribute(name, value)
        if on in self.puts:
            there = self._committed(on)[1].values.get(name)
            if there is None or not same_value(there, kept):
                message = f"the value {on!r} is committed with its attributes"
                raise SchemaError(f"{message}: set {name!r} before the commit of its put")
            return
        if on != ROOT and on not in self.writers and on not in self.values:
            check_path(on, "group")
            for other in (*self.writers, *self.values, *self.puts):
                if on.startswith(f"{other}/"):
                    raise SchemaError(
                        f"{on!r} cannot be in {other!r}, which is not a group: choose another name"
                    )
        self.attributes.setdefault(on, Attributes()).values[name] = kept

    def attributes_of(self, on: str) -> dict[str, Any]:
        """Return names and values, as h5py returns them."""
        found = self._committed(on)[1] if on in self.puts else self.attributes.get(on, Attributes())
        return {name: value for name, (value, _) in found.values.items()}

    # -- commits -------------------------------------------------------------------------------------

    def mark(self, step: object, receipt: dict[str, Any] | None, state: dict[str, Any] | None) -> None:
        """Add a mark of everything so far; errors as `next_record`."""
        number = self._check_step(step)
        rows = {name: writer.rows for name, writer in list(self.writers.items())}
        mark = MarkRecord(number, rows, list(self.values), check_receipt(receipt), check_state(state))
        self.marks = [*(one for one in self.marks if one.step < number), mark]

    def next_record(
        self,
        step: object,
        receipt: dict[str, Any] | None,
        state: dict[str, Any] | None,
        world_size: int,
        incarnation: str,
    ) -> CommitRecord:
        """Return the record of the next commit, without its datasets.

        Raises
        ------
        PlanError
            The step does not come after the last one, the receipt is not one of a loader, the state is not
            JSON.
        """
        number = self._check_step(step)
        receipt, state = check_receipt(receipt), check_state(state)
        receipts = dict(self.receipts)
        if receipt is not None:
            receipts[str(receipt.get("id", incarnation))] = self.sequence
        return CommitRecord(
            rank=self.rank,
            world_size=world_size,
            sequence=self.sequence,
            step=number,
            incarnation=incarnation,
            host=socket.gethostname(),
            pid=os.getpid(),
            created=round(time.time(), 3),
            datasets={},
            receipt=receipt,
            receipts=receipts,
            previous=self.newest_crc32c,
            state=state,
            marks=tuple(one for one in self.marks if one.step < number),
        )

    def write(self, group: Callable[[], h5py.File], record: CommitRecord) -> CommitRecord:
        """Write everything into an open segment, then the record with the hashes; return the record."""
        for name, writer in self.writers.items():
            rows = writer.finish(group)
            chunks = writer.chunks_crc()
            record.datasets[name] = DatasetRecord(
                self.first_row[name], rows, f"{writer.crc:08x}", None if chunks is None else f"{chunks:08x}"
            )
        file = group()
        record.puts.update(self.puts)
        for name, value in self.values.items():
            dataset = file.create_dataset(name, data=value, dtype=value.dtype)
            dataset.attrs[PUT] = True
            record.puts[name] = PutRecord(record.sequence, f"{value_crc(value, value.dtype):08x}")
        for on, attributes in self.attributes.items():
            attributes.write(file if on == ROOT else file[on] if on in file else file.create_group(on))
        return write_record(file, record)

    def committed(self, record: CommitRecord) -> None:
        """Continue after a commit whose segment has its name."""
        for name, one in record.datasets.items():
            self.writers[name].reset()
            self.first_row[name] = one.first_row + one.rows
        for name in self.values:
            self.attributes.pop(name, None)
        self.groups = {on for on in self.attributes if on != ROOT and on not in self.writers}
        self.values = {}
        self.puts = dict(record.puts)
        self.sequence, self.step, self.receipts = record.sequence + 1, record.step, dict(record.receipts)
        self.newest_crc32c, self.state, self.marks = record.crc32c, record.state, []

    def uncommitted(self) -> dict[str, int]:
        """Return the number of uncommitted rows of each dataset."""
        return {name: writer.rows for name, writer in list(self.writers.items()) if writer.rows}

    def described_uncommitted(self) -> list[str]:
        """Describe what is not committed, for a message."""
        rows = [f"{rows} of {name!r}" for name, rows in self.uncommitted().items()]
        return [*rows, *(f"value {name!r}" for name in self.values)]

    def drop(self) -> None:
        """Remove everything that is not committed, and accept no more rows."""
        for writer in self.writers.values():
            writer.drop()
        self.values, self.marks = {}, []

    # -- inside --------------------------------------------------------------------------------------

    def _check_step(self, step: object) -> int:
        try:
            number = operator.index(step)  # type: ignore[arg-type]
        except TypeError:
            raise PlanError(f"step={step!r} is not a whole number: pass the number of a step") from None
        if number < 0:
            raise PlanError(f"step={number} is negative: steps start at 0")
        if self.step is not None and number <= self.step:
            message = f"rank {self.rank} has committed step {self.step}, step {number} does not come after it"
            raise PlanError(f"{message}: call rollback(step=…) with the step of the checkpoint first")
        if self.marks and number < self.marks[-1].step:
            message = f"rank {self.rank} has marked step {self.marks[-1].step}, step {number} is before it"
            raise PlanError(f"{message}: pass a later step, or call rollback(step=…) first")
        return number

    def read(self, source: Source, record: CommitRecord) -> None:
        """Continue after the commit of an open segment."""
        self.state = record.state
        self.step, self.receipts, self.puts = record.step, dict(record.receipts), dict(record.puts)
        self.newest_crc32c = record.crc32c

        def visit(name: str, item: Any) -> None:
            if isinstance(item, h5py.Group):
                self._read_attributes(name, item)

        with reading(source.path):
            for name, one in record.datasets.items():
                dataset = source.dataset(name)
                dtype, row_shape = dataset.dtype, dataset.shape[1:]
                layout = read_layout(dataset)
                chunk_rows = layout.chunks[0] if layout.chunks else None
                if not layout.filters and chunk_rows == chunk_rows_of(dtype, row_shape):
                    chunk_rows = None
                if layout.filters:
                    require_filters(dataset)
                filters = layout.filters or self.default.filters(name, dtype, forced=False)
                self._add_writer(name, dtype, row_shape, chunk_rows, filters)
                self.first_row[name] = one.first_row + one.rows
                self._read_attributes(name, dataset)
            self._read_attributes(ROOT, source.file)
            source.file.visititems(visit)
        self.groups = {on for on in self.attributes if on != ROOT and on not in self.writers}

    def _read_attributes(self, on: str, item: h5py.Dataset | h5py.Group) -> None:
        found = read_attributes(item)[0]
        if found.values:
            self.attributes[on] = found

    def _check_new(self, name: str) -> None:
        path = check_name(name, (*self.writers, *self.values, *self.puts))
        if path in self.values or path in self.puts:
            raise SchemaError(f"{path!r} is a value that was put: choose another name for rows")
        if path in self.writers:
            raise SchemaError(f"{path!r} is a dataset with rows: choose another name for the value")
        for group in self.attributes:
            if group.startswith(f"{path}/") or (group == path and group in self.groups):
                raise SchemaError(f"{path!r} is a group that has attributes: choose another name")

    def _add_writer(
        self,
        name: str,
        dtype: np.dtype[Any],
        row_shape: tuple[int, ...],
        chunk_rows: int | None,
        filters: tuple[FilterSpec, ...],
    ) -> RowWriter:
        writer = RowWriter(name, dtype, row_shape, chunk_rows=chunk_rows, filters=filters)
        self.writers[name] = writer
        self.first_row.setdefault(name, 0)
        return writer
