"""`Store`: the HDF5 file of a collector, from declared datasets to commits, without a network.

A row is written when it is appended, and durable with the next commit: `begin_commit` makes the rows of all
datasets and the sequence numbers of all clients part of it, ``live.write_commit`` makes it durable (in any
thread), ``live.end_commit`` records that. `apply` then shows it to readers, under the readers' lock. The
order of all writes is described in `shardkeep.hdf5.journal.live_file`.
"""

from __future__ import annotations

import contextlib
import json
import os
import textwrap
from dataclasses import replace
from typing import Any

import h5py
import numpy as np

from shardkeep.collector.protocol.schema import Schema, dtype_to_json
from shardkeep.collector.protocol.settings import DEFAULT_MEMORY_BYTES
from shardkeep.collector.store.appended_rows import TAILS, AppendedRows, CompressedRows, FixedRows, TextRows
from shardkeep.collector.store.client_table import CLIENTS, ClientTable
from shardkeep.collector.store.creation import (
    check_new_name,
    chunk_shape,
    create,
    first_missing,
    groups_of,
    removed_on_error,
    schema_errors,
    try_filters,
)
from shardkeep.collector.store.datasets import OpenDatasets, StoredDataset
from shardkeep.collector.store.inode_lock import InodeLock
from shardkeep.collector.store.keyed_rows import WRITERS, KeyedRows, check_row_count
from shardkeep.collector.store.stored_values import StoredValues
from shardkeep.errors import CollectorError, DurabilityError, ExistsError, FormatError, SchemaError
from shardkeep.files.kinds.special import refuse_special
from shardkeep.files.locks.lock import FileLock
from shardkeep.hdf5.journal.live_file import Commit, LiveFile
from shardkeep.hdf5.journal.live_view import OWN_GROUP, reader_lock
from shardkeep.hdf5.journal.paths import log_path, real_name
from shardkeep.hdf5.journal.recovery import Recovery, recover
from shardkeep.hdf5.read_errors import first_line
from shardkeep.hdf5.segments.segment import H5_VERSIONS
from shardkeep.hdf5.storage.dtypes import describe
from shardkeep.hdf5.storage.layout import read_layout
from shardkeep.hdf5.storage.names import PUT, is_reserved

__all__ = ["Store"]

_READER_WAIT_S = 2.0
# A process that checks whether a collector was killed holds the lock for a moment.
_LOCK_WAIT_S = 0.5
_DATASET_BYTES = 3000


class Store:
    """One HDF5 file that rows are written to, commit by commit.

    Parameters
    ----------
    path : str
        Created if it does not exist; else it must be a collector's.
    synced : bool
        Whether commits survive a power cut (fsync), or only the death of processes.
    lock : FileLock, optional
        The lock of the file, if the caller holds it already.
    memory_bytes : int
        A quarter of it is for open datasets and the rows that they hold, an eighth for the names and types
        of all datasets.
    takes_old_log : bool
        As in `shardkeep.hdf5.journal.recovery.recover`.

    Raises
    ------
    LockTimeoutError
        Another process writes this file, also under another name or without a collector.
    LockError
        The file has several names (hard links).
    ExistsError, FormatError
        The file exists and no collector wrote it; it is not an HDF5 file.

    Attributes
    ----------
    live : LiveFile
        The file below HDF5, which writes and ends the commits; not after `close` and `abandon`.
    clients : ClientTable
    recovery : Recovery or None
        The repair at the start; None if the file was closed properly, or is new.

    Notes
    -----
    For one thread, except ``live.write_commit``.
    """

    live: LiveFile

    def __init__(
        self,
        path: str,
        *,
        synced: bool,
        lock: FileLock | None = None,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        takes_old_log: bool = False,
    ) -> None:
        self.path = path = real_name(path)
        if os.path.isdir(path):
            example = os.path.join(path, "all.h5")
            raise FormatError(f"{path!r} is a folder: name a file in it, as {example!r}", path=path)
        refuse_special(path, FormatError)
        self._memory_bytes = memory_bytes
        self._opened = OpenDatasets(memory_bytes // 4)
        self._name_bytes = 0
        self._datasets: dict[str, StoredDataset] = {}
        self._changed: dict[str, StoredDataset] = {}
        self._groups: set[str] = set()
        self._file: h5py.File | None = None
        self._inode_lock = InodeLock(path)
        with contextlib.ExitStack() as locked:
            if os.path.exists(log_path(path)):
                # Readers must not see half of a recovery; one that never ends must not prevent it.
                self._lock_out_readers(locked, _READER_WAIT_S)
            self._lock = lock or FileLock(path, timeout_s=_LOCK_WAIT_S, if_unsafe="warn").acquire()
            try:
                self._inode_lock.acquire()
                self.recovery: Recovery | None = recover(path, takes_old_log=takes_old_log)
                _check_ours(path)
                self._open(synced)
                self._inode_lock.acquire()  # the file may have been created just now
            except BaseException:
                self._drop()
                if lock is None:
                    self._lock.release()
                raise

    # -- datasets ------------------------------------------------------------------------------------------

    def declare(self, wanted: Schema) -> Schema:
        """Return the schema of a dataset, which is created as `wanted` if it does not exist.

        Raises
        ------
        SchemaError
            The name is not valid, HDF5 has no such type, or the dataset is of the other kind (appended rows,
            rows by number).
        """
        known = self._datasets.get(wanted.name)
        if known is not None:
            _check_same_kind(known.schema, wanted)
            return known.schema
        if wanted.name in self._values.names:
            raise SchemaError(f"{wanted.name!r} is a value that was put once: choose another name for rows")
        check_new_name(wanted.name, self._groups, self._datasets.keys(), self._values.names)
        check_row_count(wanted)
        if wanted.rows is not None and (wanted.dtype.hasobject or wanted.filters):
            message = f"dataset {wanted.name!r}: rows placed by key are of fixed size and not compressed"
            raise SchemaError(f"{message}; append without key=, or without compression")
        if wanted.dtype.hasobject and wanted.filters:
            wanted = replace(wanted, filters=())
        assert self._file is not None
        self._check_memory(wanted)
        missing = [first_missing(wanted.name, self._groups)]
        if wanted.rows is not None:
            missing.append(first_missing(f"{WRITERS}/{wanted.name}", self._file))
        what = textwrap.shorten(describe(wanted.dtype, wanted.row_shape), 200, placeholder=" …")
        with (
            removed_on_error(self._file, *missing),
            schema_errors(f"dataset {wanted.name!r}: HDF5 cannot keep {what}"),
        ):
            try_filters(wanted)
            dataset = create(self._file, wanted)
            created = self._stored(dataset, replace(wanted, chunk_rows=chunk_shape(wanted)[0]))
            self._values.move_pending_to(dataset)
        self._add(created)
        created.keep_open(dataset)
        return created.schema

    def _check_memory(self, wanted: Schema) -> None:
        needed = self._name_bytes + self._values.held_bytes + _memory_of(wanted)
        if needed > self._memory_bytes // 8:
            message = f"dataset {wanted.name[:80]!r}: the collector has no memory for more datasets"
            message = f"{message} than its {len(self._datasets):,}"
            raise SchemaError(f"{message}: give it {needed * 10 // 10**6 + 1} MB (--memory)")

    def schema(self, name: str) -> Schema | None:
        """Return the schema of a dataset; None if it does not exist."""
        known = self._datasets.get(name)
        return None if known is None else known.schema

    @property
    def rows(self) -> dict[str, int]:
        """Rows of each dataset, committed or not."""
        return {name: one.rows for name, one in self._datasets.items()}

    def written_rows(self) -> dict[str, int]:
        """Return how many rows were written to each dataset; their sum is ``clients.rows``."""
        every = self._datasets.items()
        return {name: one.written if isinstance(one, KeyedRows) else one.rows for name, one in every}

    def append(self, name: str, data: memoryview, rows: int) -> None:
        """Append rows, encoded as `shardkeep.collector.protocol.payload` does; see `AppendedRows.append`."""
        dataset = self._datasets.get(name)
        if not isinstance(dataset, AppendedRows):
            raise CollectorError(f"{name!r} is not a dataset that rows are appended to: declare it first")
        dataset.append(data, rows)
        self._changed[name] = dataset

    def put(
        self, name: str, data: memoryview, keys: np.ndarray[Any, Any], rank: int, world_size: int
    ) -> None:
        """Write rows at their numbers; see `KeyedRows.put`."""
        dataset = self._datasets.get(name)
        if not isinstance(dataset, KeyedRows):
            raise CollectorError(f"{name!r} is not a dataset whose rows have keys: declare it first")
        dataset.put(data, keys, rank, world_size)
        self._changed[name] = dataset

    def store_value(self, data: memoryview) -> None:
        """Store a value or an attribute; see `StoredValues.store`."""
        self._values.store(data, self._datasets.keys())

    # -- commits -------------------------------------------------------------------------------------------

    @property
    def changed_bytes(self) -> int:
        """Memory of rows and structures that the next commit will write."""
        return self.live.changed_bytes + self._opened.unsaved_bytes

    @property
    def held_bytes(self) -> int:
        """Memory of rows and structures that are not in the file, committed or not."""
        return self.live.held_bytes + self._opened.unsaved_bytes

    def begin_commit(self) -> Commit:
        """Return a commit of everything so far; later rows belong to the next one."""
        assert self._file is not None
        for dataset in self._changed.values():
            dataset.prepare_commit()
        self._changed.clear()
        self.clients.prepare_commit()
        h5py.h5f.flush(self._file.id)
        return self.live.begin_commit()

    def commit(self) -> None:
        """Begin, write and end a commit."""
        self.live.write_commit(self.begin_commit())
        self.live.end_commit()

    def apply(self) -> bool:
        """Apply the commits to the file; return False if a reader holds it."""
        lock = reader_lock(self.path, shared=False, timeout_s=0.0)
        try:
            lock.acquire()
        except OSError:
            return False
        try:
            self.live.apply()
        finally:
            lock.release()
        return True

    def close(self, *, wait_s: float = 10.0, run_ended: bool = True) -> None:
        """Commit and apply everything, close the file as a plain HDF5 file, and release the lock.

        Without `run_ended`, the next collector still counts the clients of this run that have left.
        """
        assert self._file is not None
        try:
            for dataset in self._datasets.values():
                dataset.finish()
            self._values.finish()
            if run_ended:
                self.clients.end_run()
            self.commit()
            if TAILS in self._file:
                del self._file[TAILS]
            with contextlib.ExitStack() as locked:
                # A reader that never ends must not keep the last rows out of the file.
                self._lock_out_readers(locked, wait_s)
                self._close_hdf5()
                self.live.finish()
                del self.live
        finally:
            self._drop()
            self._lock.release()

    def abandon(self) -> FileLock:
        """Leave the file as it is, for a new `Store` to recover; return the lock, which is still held."""
        self._drop()
        return self._lock

    # -- opening and closing -------------------------------------------------------------------------------

    def _open(self, synced: bool) -> None:
        self.live = live = LiveFile(self.path, synced=synced)
        mode, options = ("w", {"fs_strategy": "none"}) if live.is_new else ("r+", {})
        self._file = file = h5py.File(live, mode, libver=H5_VERSIONS, rdcc_nbytes=0, **options)
        self.clients = ClientTable(live, file)
        self._limit_cache(file)
        self._values = StoredValues(file, self._groups, self._memory_bytes // 4)
        if live.is_new:
            file.require_group(OWN_GROUP).attrs["format"] = 1
            self.commit()
            self.apply()
            return
        names: list[str] = []

        def visit(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                names.append(name)
            else:
                self._groups.add(name)

        file.visititems(visit)
        for name in names:
            if PUT in file[name].attrs:
                self._values.add(name)
            elif not is_reserved(name):
                self._add(self._stored(file[name], _read_schema(file, name)))

    def _limit_cache(self, file: h5py.File) -> None:
        """Limit the memory of HDF5 for its structures, which is 32 MB otherwise."""
        cache = file.id.get_mdc_config()
        most = max(min(self._memory_bytes // 16, cache.max_size), 1 << 20)
        cache.max_size, cache.min_size = most, min(cache.min_size, most)
        cache.set_initial_size, cache.initial_size = True, min(cache.initial_size, most)
        file.id.set_mdc_config(cache)

    def _stored(self, dataset: h5py.Dataset, schema: Schema) -> StoredDataset:
        kind: type[StoredDataset] = FixedRows
        if schema.rows is not None:
            kind = KeyedRows
        elif schema.dtype.hasobject:
            kind = TextRows
        elif schema.filters:
            kind = CompressedRows
        return kind(self.live, dataset, schema, self._opened)

    def _add(self, dataset: StoredDataset) -> None:
        name = dataset.schema.name
        self._datasets[name] = self._changed[name] = dataset
        self._name_bytes += _memory_of(dataset.schema)
        self._groups.update(groups_of(name))

    def _lock_out_readers(self, locked: contextlib.ExitStack, wait_s: float) -> None:
        """Hold the readers' lock until the end of `locked`; after `wait_s`, continue without it."""
        lock = reader_lock(self.path, shared=False, timeout_s=wait_s)

        def release() -> None:
            with contextlib.suppress(OSError):  # from close(2), which has closed it anyway
                lock.release()

        locked.callback(release)
        with contextlib.suppress(OSError):
            lock.acquire()

    def _close_hdf5(self) -> None:
        file, self._file = self._file, None
        self._datasets, self._changed = {}, {}
        self._opened = OpenDatasets(self._memory_bytes // 4)
        if file is not None:
            file.close()

    def _drop(self) -> None:
        live: LiveFile | None = self.__dict__.pop("live", None)
        if live is not None:
            # HDF5 still writes its buffers when it closes the file; they must not reach the disk.
            live.failure = live.failure or DurabilityError(f"{self.path!r} was abandoned", path=self.path)
        with contextlib.suppress(Exception):
            self._close_hdf5()
        if live is not None:
            live.abandon()
        with contextlib.suppress(OSError):  # from close(2), which has closed it anyway
            self._inode_lock.release()


def _memory_of(schema: Schema) -> int:
    """Return an estimate of the collector's memory for a closed dataset."""
    groups = sum(len(one) for one in groups_of(schema.name))
    return _DATASET_BYTES + 4 * (len(schema.name) + groups) + 2 * len(json.dumps(dtype_to_json(schema.dtype)))


def _check_ours(path: str) -> None:
    if not os.path.exists(path):
        return
    try:
        with h5py.File(path, "r", locking=False) as file:
            ours = OWN_GROUP in file and CLIENTS in file
    except OSError as error:
        message = f"{path!r} cannot be opened ({first_line(error)}): give another name"
        raise FormatError(message, path=path) from error
    if not ours:
        message = f"{path!r} exists and was not written by a collector: give another name, or move it away"
        raise ExistsError(message, path=path)


def _check_same_kind(known: Schema, wanted: Schema) -> None:
    if (known.rows is None) != (wanted.rows is None):
        placed = "by number (key=)" if known.rows is not None else "in the order of arrival, without key="
        raise SchemaError(f"dataset {known.name!r} has rows that are placed {placed}: do the same")
    if wanted.rows not in (None, 0, known.rows):
        message = f"dataset {known.name!r} has {known.rows} rows, and is declared with {wanted.rows}"
        raise SchemaError(f"{message}: declare the same number everywhere")


def _read_schema(file: h5py.File, name: str) -> Schema:
    dataset = file[name]
    layout = read_layout(dataset)
    rows = dataset.shape[0] if f"{WRITERS}/{name}" in file else None
    return Schema(name, dataset.dtype, dataset.shape[1:], dataset.chunks[0], layout.filters, rows)
