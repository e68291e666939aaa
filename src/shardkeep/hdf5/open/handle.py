"""HDF5 handle of a `File`, which is opened again after a fork or when the budget has closed it."""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import h5py

from shardkeep._paths_in_messages import shown
from shardkeep.errors import LockError, PlanError, ShardkeepError
from shardkeep.files.durable import durability_error
from shardkeep.files.locks.lock import FileLock
from shardkeep.hdf5.h5py_private import check_h5py, close_file, phil
from shardkeep.hdf5.journal.live_view import open_consistent
from shardkeep.hdf5.locking.file_version import FileVersion
from shardkeep.hdf5.locking.handles import close_without_writing
from shardkeep.hdf5.locking.open_file_budget import open_file_budget
from shardkeep.hdf5.locking.reading import open_for_reading
from shardkeep.hdf5.locking.writing import open_for_writing
from shardkeep.hdf5.read_errors import reading
from shardkeep.hdf5.virtual.checked_sources import read_table
from shardkeep.hdf5.virtual.dataset import VirtualDataset
from shardkeep.hdf5.virtual.layout import find_virtual, read_virtual_layout
from shardkeep.hdf5.virtual.sources import VirtualSources

__all__ = ["FileHandle", "RecentFiles", "recent_files"]

_getpid = os.getpid
_RDCC_NBYTES = 1024 * 1024
_MOST_KNOWN = 8


@dataclass
class RecentFile:
    """Virtual datasets of one version of a file, by path.

    Attributes
    ----------
    datasets : dict of str to VirtualDataset
        Those whose layout was read.
    checked_at_open : tuple of str or None
        Paths of those that are checked whenever the file is opened; None before the first search.
    """

    datasets: dict[str, VirtualDataset] = field(default_factory=dict)
    checked_at_open: tuple[str, ...] | None = None


class RecentFiles:
    """Cache of the files that were opened last; opening one again costs a ``stat`` per source.

    HDF5 and h5py need as long to open and read a dataset of 4,000 mappings as to read its rows.
    """

    def __init__(self) -> None:
        self._files: dict[tuple[str, FileVersion], RecentFile] = {}

    def get(self, path: str, version: FileVersion) -> RecentFile | None:
        """Return the entry of a file; None if there is none."""
        found = self._files.pop((path, version), None)
        if found is not None:
            self._files[path, version] = found
        return found

    def add(self, path: str, version: FileVersion) -> RecentFile:
        """Return the entry of a file, which is created if there is none."""
        found = self.get(path, version)
        if found is None:
            found = self._files[path, version] = RecentFile()
            if len(self._files) > _MOST_KNOWN:
                del self._files[next(iter(self._files))]
        return found


class Droppable(Protocol):
    """An object that holds an identifier of a file."""

    def _drop(self) -> None: ...


class FileHandle:
    """Base of `File`: its HDF5 identifier, lock and virtual datasets.

    Attributes
    ----------
    writes : bool
        Whether it may be written; then it belongs to the process that opened it.
    checks_sources : bool
        Whether the sources of virtual datasets are checked.
    rdcc_nbytes : int
        Most bytes that the chunk cache of one dataset takes.
    locking : str
        How other processes are excluded: "flock", or "none" with the reason.
    hdf5_name : bytes
        Name of the file as HDF5 has it.
    pins, used, cache_bytes
        As in `shardkeep.hdf5.locking.open_file_budget.OpenFile`.
    """

    _open_source: Callable[[str], Any]
    linked: Callable[[Any, str], Any]

    def __init__(
        self,
        path: str,
        mode: str,
        *,
        timeout_s: float | None,
        if_unsafe: str,
        check_sources: bool,
        options: dict[str, Any],
        all_at_open: bool = True,
    ) -> None:
        check_h5py()
        self._owner = self
        self._path = "/"
        self._absolute_path = os.path.abspath(path)
        self._given_path = path
        self._mode = mode
        self.writes = mode != "r"
        self.checks_sources = check_sources
        self._all_at_open = all_at_open
        self.rdcc_nbytes = options.get("rdcc_nbytes") or _RDCC_NBYTES
        self.locking = ""
        self.pins = 0
        self.used = True
        self.cache_bytes = 0
        self._timeout_s = timeout_s
        self._if_unsafe = if_unsafe
        self._options = options
        self._is_closed = False
        self._virtuals: dict[str, VirtualDataset] = {}
        self._virtuals_of: FileVersion | None = None
        self._without_virtuals: FileVersion | None = None
        self._checked: tuple[Any] | None = None
        self._linked: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self.hdf5_name = b""
        self._members: list[weakref.ref[Droppable]] = []
        self._prune_at = 64
        self._lock: FileLock | None = None
        self._fid: Any = None
        self._fd: int | None = None
        # Another object for each opening; None while the file is closed.
        self._token: object = None
        self._pid = _getpid()
        self._open()
        _alive[id(self)] = self

    @property
    def _id(self) -> Any:
        if self._token is not None and self._pid == _getpid():
            self.used = True
            return self._fid
        with phil:
            self._check_usable()
            self._open()
            return self._fid

    @property
    def filename(self) -> str:
        """The path as it was passed to `shardkeep.hdf5.open`."""
        return shown(self._given_path)

    def close(self) -> None:
        """Close the file: its data is written, its lock is free, its objects are invalid.

        In a forked child of the process that writes the file nothing is written: the file is the parent's.
        Calling it again has no effect.

        Raises
        ------
        DurabilityError
            Not all data could be written.
        """
        try:
            with phil:
                if not self._is_closed:
                    self._is_closed = True
                    self._forget_virtuals()
                    _alive.pop(id(self), None)
                    self.suspend()
        finally:
            self._release()

    @contextlib.contextmanager
    def pinned(self) -> Iterator[None]:
        """Keep the file open for the body of a ``with``."""
        self.pins += 1
        try:
            yield
        finally:
            self.pins -= 1

    def remember(self, item: Droppable) -> None:
        """Register an object that holds an identifier of this file."""
        members = self._members
        members.append(weakref.ref(item))
        if len(members) > self._prune_at:
            self._members = members = [one for one in members if one() is not None]
            self._prune_at = max(64, 2 * len(members))

    def virtual(self, path: str, oid: Any = None) -> VirtualDataset:
        """Return a virtual dataset, its sources checked; `oid` is its identifier if HDF5 has it open.

        Under h5py's lock: no child is forked while the cache is being filled.
        """
        found = self._virtuals.get(path)
        if found is None:
            version = self._version()
            known = None if self.writes else recent_files.get(self._absolute_path, version)
            found = None if known is None else known.datasets.get(path)
            if found is None:
                if self._checked is None:
                    self._checked = (read_table(self._fid),)
                layout = read_virtual_layout(self._fid, self._absolute_path, path, oid)
                table, open_source = self._checked[0], self._open_source
                sources = VirtualSources(self._absolute_path, path, layout, table, open_source)
                found = VirtualDataset(sources)
            with self.pinned():
                found.check()
            self._virtuals[path] = found
            if not self.writes:
                recent_files.add(self._absolute_path, version).datasets[path] = found
        return found

    def _open(self) -> None:
        self._pid = _getpid()
        if self.writes:
            self._fid, self._fd, self._lock, self.locking = open_for_writing(
                self._given_path, self._mode, self._timeout_s, self._if_unsafe, self._options
            )
        else:
            open_file_budget.make_room()
            (self._fid, self._fd, self.locking), self._lock = open_consistent(
                self._absolute_path, self._timeout_s, self._open_reader, lambda opened: opened[0]
            )
            if self._lock is not None:
                self.locking += "; shared with the collector"
            open_file_budget.add(self)
        self.hdf5_name = h5py.h5f.get_name(self._fid)
        self._token = object()
        if self.checks_sources and self._mode not in ("w", "x"):
            version = self._version()
            if version != self._virtuals_of:
                self._forget_virtuals()
                self._virtuals_of = version
            if version == self._without_virtuals or not self._all_at_open:
                return
            try:
                with phil, self.pinned(), reading(self._given_path):
                    if self._token is None:
                        self._id  # noqa: B018  # closed for another file meanwhile: opened and checked again
                    else:
                        self._check_virtuals(version)
            except BaseException:
                self.close()
                raise
            finally:
                self._checked = None

    def _open_reader(self) -> tuple[h5py.h5f.FileID, int | None, str]:
        return open_for_reading(
            self._absolute_path, self._given_path, self._timeout_s, self.rdcc_nbytes, self._options
        )

    def _check_virtuals(self, version: FileVersion) -> None:
        """Check the sources of the virtual datasets that are found when a file is opened."""
        known = None if self.writes else recent_files.get(self._absolute_path, version)
        if known is not None and known.checked_at_open is not None:
            for path in known.checked_at_open:
                self.virtual(path)
            return
        found = find_virtual(self._fid)
        for path in found:
            self.virtual(path)
        self._without_virtuals = None if found else version
        if found and not self.writes:
            recent_files.add(self._absolute_path, version).checked_at_open = tuple(found)

    def _forget_virtuals(self) -> None:
        virtuals, self._virtuals = self._virtuals, {}
        for one in virtuals.values():
            one.close_sources()

    def _version(self) -> FileVersion:
        return FileVersion.of(os.stat(self._absolute_path) if self._fd is None else os.fstat(self._fd))

    def _release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def suspend(self) -> None:
        """Close the HDF5 file until it is used again; under h5py's lock."""
        try:
            self._close_hdf5()
        finally:
            if not self.writes:
                self._release()  # not before: the collector changes the file at once

    def _close_hdf5(self) -> None:
        fid, self._fid, self._token = self._fid, None, None
        self._checked = None
        if not self.writes:
            open_file_budget.remove(self)
            self.cache_bytes = 0
        if fid is None or self._pid != _getpid() or not fid.valid:
            return
        if self.writes or not self._drop_identifiers(fid):
            try:
                close_file(fid)
            except (OSError, RuntimeError) as error:
                # HDF5 keeps a file whose flush failed, tries again at exit and may crash there.
                close_without_writing(fid, self._fd, writes=self.writes)
                cause = error if isinstance(error, OSError) else OSError(str(error))
                raise durability_error("write the last data of", self._given_path, cause) from error

    def _drop_identifiers(self, fid: Any) -> bool:
        """Drop every identifier, which closes the file; return whether it needs no explicit close.

        `h5py.File.close` searches all open objects of the process: minutes for thousands of files.
        """
        self._drop_members()
        counted = h5py.h5f.OBJ_ALL | h5py.h5f.OBJ_LOCAL
        return not self._is_closed or h5py.h5f.get_obj_count(fid, counted) <= 1

    def _drop_members(self) -> None:
        members, self._members = self._members, []
        for reference in members:
            item = reference()
            if item is not None:
                item._drop()

    def _check_usable(self) -> None:
        if self._is_closed:
            raise PlanError(f"{self._given_path!r} is closed: open it again", path=self._given_path)
        if self.writes and self._pid != _getpid():
            message = f"{self._given_path!r} is written by process {self._pid}; a forked child cannot use it"
            raise LockError(f"{message}: write another file there", path=self._given_path)

    def _after_fork(self) -> None:
        """Close the parent's handle, in the child."""
        fid, self._fid, self._token = self._fid, None, None
        self._drop_members()
        self._lock = None  # released by the lock's own fork hook
        self.cache_bytes = self.pins = 0
        if fid is not None:
            close_without_writing(fid, self._fd, writes=self.writes)


recent_files = RecentFiles()
# By identity: two handles of one file are equal.
_alive: weakref.WeakValueDictionary[int, FileHandle] = weakref.WeakValueDictionary()


def _forget_in_child() -> None:
    open_file_budget.forget_all()
    for one in list(_alive.values()):
        one._after_fork()


@atexit.register
def _close_writers() -> None:
    # HDF5 would close the files at exit too, but leave the sidecars of their locks.
    for one in list(_alive.values()):
        if one.writes:
            with contextlib.suppress(ShardkeepError):
                one.close()


os.register_at_fork(after_in_child=_forget_in_child)
