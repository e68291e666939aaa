"""`Store`: the HDF5 file of a collector, from declared datasets to commits. It knows no network."""

from __future__ import annotations

import contextlib
import json
import os
import textwrap
from dataclasses import replace
from typing import Any

import h5py
import numpy as np

from shardkeep.collector.protocol.limits import check_name_length
from shardkeep.collector.protocol.schema import Schema, dtype_to_json
from shardkeep.collector.protocol.settings import DEFAULT_MEMORY_BYTES
from shardkeep.collector.store.all_or_nothing import all_or_nothing, first_missing, groups_of
from shardkeep.collector.store.client_table import CLIENTS, ClientTable
from shardkeep.collector.store.creating import chunk_shape, create, try_filters
from shardkeep.collector.store.inode_lock import InodeLock
from shardkeep.collector.store.keyed_rows import WRITERS, KeyedRows, check_row_count
from shardkeep.collector.store.open_datasets import OpenDatasets
from shardkeep.collector.store.stored_rows import TAILS, DirectRows, FilteredRows, ObjectRows, StoredRows
from shardkeep.collector.store.stored_values import StoredValues
from shardkeep.errors import (
    CollectorError,
    DurabilityError,
    ExistsError,
    FormatError,
    SchemaError,
    ShardkeepError,
)
from shardkeep.files.locks.lock import FileLock
from shardkeep.hdf5.journal.live_file import Commit, LiveFile
from shardkeep.hdf5.journal.live_view import OWN_GROUP, reader_lock
from shardkeep.hdf5.journal.paths import log_path, real_name
from shardkeep.hdf5.journal.recovery import Recovery, recover
from shardkeep.hdf5.read_errors import first_line
from shardkeep.hdf5.segments.segment import H5_VERSIONS
from shardkeep.hdf5.storage.dtypes import describe
from shardkeep.hdf5.storage.layout import read_layout
from shardkeep.hdf5.storage.names import PUT, check_name, check_path, is_reserved

__all__ = ["Store"]

_READER_WAIT_S = 2.0
# Who looks whether a collector was killed holds the lock for a moment.
_LOCK_WAIT_S = 0.5
_DATASET_BYTES = 3000


class Store:
    """One HDF5 file that rows are written to, commit by commit.

    Parameters
    ----------
    path : str
        Made if missing; else it must be a collector's.
    synced : bool
        Whether commits survive a power cut (fsync), or only the death of processes.
    memory_bytes : int
        A quarter of it is for datasets that are open and the rows that they keep, an eighth for the names and
        types of all.
    takes_old_log : bool
        As in `shardkeep.hdf5.journal.recovery.recover`.

    Raises
    ------
    LockTimeoutError
        Another process writes this file, be it under another name or without a collector.
    LockError
        The file has several names (hard links).
    ExistsError, FormatError
        The file is there and no collector wrote it; it is no HDF5 file.

    Attributes
    ----------
    recovery : Recovery or None
        What had to be repaired; None if the file was closed in good order, or is new.

    Notes
    -----
    For one thread, but `write_commit`, which may run in another one.
    """

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
        self._memory_bytes = memory_bytes
        self._opened = OpenDatasets(memory_bytes // 4)
        self._name_bytes = 0
        if os.path.isdir(path):
            example = os.path.join(path, "all.h5")
            raise FormatError(f"{path!r} is a folder: name a file in it, as {example!r}", path=path)
        # A reader of before must not see half of a recovery; one that never ends must not keep us out.
        readers = reader_lock(path, shared=False, timeout_s=_READER_WAIT_S)
        if os.path.exists(log_path(path)):
            with contextlib.suppress(OSError):
                readers.acquire()
        try:
            self._take(lock, synced, takes_old_log)
        finally:
            with contextlib.suppress(OSError):  # from close(2); what was taken is kept
                readers.release()

    def _take(self, lock: FileLock | None, synced: bool, takes_old_log: bool) -> None:
        path = self.path
        self._lock = (
            lock if lock is not None else FileLock(path, timeout_s=_LOCK_WAIT_S, if_unsafe="warn").acquire()
        )
        self._datasets: dict[str, StoredRows | KeyedRows] = {}
        self._dirty: dict[str, StoredRows | KeyedRows] = {}
        self._groups: set[str] = set()
        self._live: LiveFile | None = None
        self._file: h5py.File | None = None
        self._inode = InodeLock(path)
        try:
            self._inode.hold()
            self.recovery: Recovery | None = recover(path, takes_old_log=takes_old_log)
            _check_ours(path)
            self._open(synced)
            self._inode.hold()  # the file may have been made just now
        except BaseException:
            self._drop()
            if lock is None:
                self._lock.release()
            raise

    # -- datasets ------------------------------------------------------------------------------------------

    def declare(self, wanted: Schema) -> Schema:
        """Return the schema of a dataset, which is made with the one that is wanted if it is new.

        Raises
        ------
        SchemaError
            The name is of no use, HDF5 has no such type, or the dataset is of the other kind (rows that
            are appended, rows by number).
        """
        known = self._datasets.get(wanted.name)
        if known is not None:
            _check_same_kind(known.schema, wanted)
            return known.schema
        self._check_free(wanted.name)
        self._values.check_free(wanted.name)
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
        with all_or_nothing(self._file, *missing):
            try:
                try_filters(wanted)
                dataset = create(self._file, wanted)
                made = self._rows_in(dataset, replace(wanted, chunk_rows=chunk_shape(wanted)[0]))
                self._values.settle_on(dataset)
            except ShardkeepError:
                raise
            except Exception as error:  # whatever HDF5, h5py and NumPy may say to a type of a stranger
                reason = first_line(error)
                what = textwrap.shorten(describe(wanted.dtype, wanted.row_shape), 200, placeholder=" …")
                raise SchemaError(f"dataset {wanted.name!r}: HDF5 cannot keep {what} ({reason})") from error
        self._add(made)
        made.keep_open(dataset)
        return made.schema

    def _check_memory(self, wanted: Schema) -> None:
        needed = self._name_bytes + self._values.held_bytes + _memory_of(wanted)
        if needed > self._memory_bytes // 8:
            message = f"dataset {wanted.name[:80]!r}: the collector has no memory for more datasets"
            message = f"{message} than its {len(self._datasets):,}"
            raise SchemaError(f"{message}: give it {needed * 10 // 10**6 + 1} MB (--memory)")

    def _check_free(self, name: str) -> None:
        check_path(name, "dataset")
        check_name_length(name)
        # By sets: thousands of datasets are declared, and each is compared with all before it.
        if name in self._groups or any(group in self._datasets for group in groups_of(name)):
            check_name(name, self._datasets)

    def schema(self, name: str) -> Schema | None:
        """Return the schema of a dataset; None if there is none."""
        known = self._datasets.get(name)
        return None if known is None else known.schema

    @property
    def rows(self) -> dict[str, int]:
        """Rows of each dataset, in a commit or not."""
        return {name: one.rows for name, one in self._datasets.items()}

    def append(self, name: str, data: memoryview, rows: int) -> None:
        """Add rows behind the others; their bytes as `shardkeep.collector.protocol.payload` makes them."""
        dataset = self._datasets.get(name)
        if not isinstance(dataset, StoredRows):
            raise CollectorError(f"there is no dataset {name!r} that rows are appended to: declare it first")
        dataset.append(data, rows)
        self._dirty[name] = dataset

    def put(self, name: str, data: memoryview, keys: np.ndarray[Any, Any], rank: int) -> None:
        """Put rows at their places; see `KeyedRows.put`."""
        dataset = self._datasets.get(name)
        if not isinstance(dataset, KeyedRows):
            raise CollectorError(f"there is no dataset {name!r} whose rows have keys: declare it first")
        dataset.put(data, keys, rank)
        self._dirty[name] = dataset

    def take_value(self, data: memoryview) -> None:
        """Store what is put once, or an attribute; see `StoredValues.take`."""
        self._values.take(data, self._datasets)

    # -- commits -------------------------------------------------------------------------------------------

    @property
    def changed_bytes(self) -> int:
        """Memory that rows and structures take which wait for a commit."""
        assert self._live is not None
        return self._live.changed_bytes + self._opened.unsaved_bytes

    @property
    def held_bytes(self) -> int:
        """Memory that rows and structures take which are not in the file yet, in a commit or not."""
        assert self._live is not None
        return self._live.held_bytes + self._opened.unsaved_bytes

    @property
    def unapplied_bytes(self) -> int:
        """Bytes that wait in memory to be brought into the file."""
        assert self._live is not None
        return self._live.unapplied_bytes

    @property
    def log_bytes(self) -> int:
        """Length of the redo log."""
        assert self._live is not None
        return self._live.log_bytes

    def begin_commit(self) -> Commit:
        """Settle everything so far; what comes later belongs to the next commit."""
        assert self._live is not None
        assert self._file is not None
        for dataset in self._dirty.values():
            dataset.settle()
        self._dirty.clear()
        self.clients.settle()
        h5py.h5f.flush(self._file.id)
        return self._live.begin_commit()

    def write_commit(self, commit: Commit) -> None:
        """Make it stand; may run in another thread."""
        assert self._live is not None
        self._live.write_commit(commit)

    def end_commit(self) -> None:
        """Note that it stands."""
        assert self._live is not None
        self._live.end_commit()

    def commit(self) -> None:
        """Do the three steps at once."""
        self.write_commit(self.begin_commit())
        self.end_commit()

    def apply_rows(self) -> None:
        """Let go of the memory for rows of commits, although a reader that has the file open may see them."""
        assert self._live is not None
        self._live.apply_rows()

    def apply(self, *, wait_s: float = 0.0) -> bool:
        """Show the commits so far in the file; False if a reader holds it and goes on holding it."""
        assert self._live is not None
        lock = reader_lock(self.path, shared=False, timeout_s=wait_s)
        try:
            lock.acquire()
        except OSError:
            return False
        try:
            self._live.apply()
        finally:
            lock.release()
        return True

    def close(self, *, wait_s: float = 10.0, run_ended: bool = True) -> None:
        """Commit, bring everything into the file, close it as a plain one, let the lock go.

        Without `run_ended` the next collector goes on counting the clients of this run that have left.
        """
        assert self._live is not None
        assert self._file is not None
        live, file = self._live, self._file
        try:
            for dataset in self._datasets.values():
                dataset.finish()
            self._values.finish()
            if run_ended:
                self.clients.end_run()
            self.commit()
            if TAILS in file:
                del file[TAILS]
            lock = reader_lock(self.path, shared=False, timeout_s=wait_s)
            # A reader that never ends must not keep the last rows out of the file.
            with contextlib.suppress(OSError):
                lock.acquire()
            try:
                self._close_hdf5()
                live.finish()
                self._live = None
            finally:
                lock.release()
        finally:
            self._drop()
            self._lock.release()

    def abandon(self) -> FileLock:
        """Leave the file as it is, for a new `Store` to recover; return the lock, which is still held."""
        self._drop()
        return self._lock

    # -- inside --------------------------------------------------------------------------------------------

    def _open(self, synced: bool) -> None:
        self._live = live = LiveFile(self.path, synced=synced)
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

        def see(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                names.append(name)
            else:
                self._groups.add(name)

        file.visititems(see)
        for name in names:
            if PUT in file[name].attrs:
                self._values.add(name)
            elif not is_reserved(name):
                self._add(self._rows_in(file[name], _read_schema(file, name)))

    def _limit_cache(self, file: h5py.File) -> None:
        """Have HDF5 keep no more structures in memory than there is room for; 32 MB are its own limit."""
        cache = file.id.get_mdc_config()
        most = max(min(self._memory_bytes // 16, cache.max_size), 1 << 20)
        cache.max_size, cache.min_size = most, min(cache.min_size, most)
        cache.set_initial_size, cache.initial_size = True, min(cache.initial_size, most)
        file.id.set_mdc_config(cache)

    def _rows_in(self, dataset: h5py.Dataset, schema: Schema) -> StoredRows | KeyedRows:
        assert self._live is not None
        kind: type[StoredRows | KeyedRows]
        if schema.rows is not None:
            kind = KeyedRows
        elif schema.dtype.hasobject:
            kind = ObjectRows
        elif schema.filters:
            kind = FilteredRows
        else:
            kind = DirectRows
        return kind(self._live, dataset, schema, self._opened)

    def _add(self, made: StoredRows | KeyedRows) -> None:
        name = made.schema.name
        self._datasets[name] = self._dirty[name] = made
        self._name_bytes += _memory_of(made.schema)
        self._groups.update(groups_of(name))

    def _close_hdf5(self) -> None:
        file, self._file = self._file, None
        self._datasets, self._dirty = {}, {}
        self._opened = OpenDatasets(self._memory_bytes // 4)
        if file is not None:
            file.close()

    def _drop(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            # HDF5 still writes what it has; it must not reach the file.
            live.failure = live.failure or DurabilityError(f"{self.path!r} was given up", path=self.path)
        with contextlib.suppress(Exception):
            self._close_hdf5()
        if live is not None:
            live.abandon()
        with contextlib.suppress(OSError):  # from close(2), which has closed it all the same
            self._inode.release()


def _memory_of(schema: Schema) -> int:
    """Return about what the collector keeps of a dataset while it is closed."""
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
        placed = (
            "by number (key=)" if known.rows is not None else "in the order of their coming, without key="
        )
        raise SchemaError(f"dataset {known.name!r} has rows that are placed {placed}: do the same")
    if wanted.rows not in (None, 0, known.rows):
        message = f"dataset {known.name!r} has {known.rows} rows, and is declared with {wanted.rows}"
        raise SchemaError(f"{message}: declare the same number everywhere")


def _read_schema(file: h5py.File, name: str) -> Schema:
    dataset = file[name]
    layout = read_layout(dataset)
    rows = dataset.shape[0] if f"{WRITERS}/{name}" in file else None
    return Schema(name, dataset.dtype, dataset.shape[1:], dataset.chunks[0], layout.filters, rows)
