"""`File`: h5py's own class, but its HDF5 identifier may come and go, as its objects' do (`file_members`)."""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from typing import Any

import h5py
from h5py._objects import phil

from shardkeep.errors import LockError, PlanError, ShardkeepError
from shardkeep.files.durable import durability_error
from shardkeep.hdf5.journal.live_view import open_consistent
from shardkeep.hdf5.locking.forked_handle import close_identifier, let_go
from shardkeep.hdf5.locking.open_files import open_files
from shardkeep.hdf5.locking.reading import open_for_reading
from shardkeep.hdf5.locking.writing import WriteLock, open_for_writing
from shardkeep.hdf5.open.known_virtuals import known_virtuals
from shardkeep.hdf5.open.members import Group, Member
from shardkeep.hdf5.read_errors import reading
from shardkeep.hdf5.virtual.checked_sources import read_table
from shardkeep.hdf5.virtual.dataset import VirtualDataset
from shardkeep.hdf5.virtual.layout import find_virtual, read_virtual_layout
from shardkeep.hdf5.virtual.source import Signature, signature_of

__all__ = ["File", "open_source_file"]

_getpid = os.getpid
_RDCC_NBYTES = 1024 * 1024


class File(Group, h5py.File):  # type: ignore[misc]
    """An HDF5 file that may cross ``fork``, ``spawn`` and ``pickle``; made by `shardkeep.hdf5.open`.

    Attributes
    ----------
    writes : bool
        Whether it may be written; then it belongs to the process that opened it.
    rdcc_nbytes : int
        Most bytes that the chunk cache of one dataset takes.
    locking : str
        How others are kept out: "flock", or "none" with the reason.
    """

    def __init__(
        self,
        path: str,
        mode: str,
        *,
        timeout_s: float | None,
        if_unsafe: str,
        check_sources: bool,
        options: dict[str, Any],
    ) -> None:
        self._owner = self
        self._path = "/"
        self._where = os.path.abspath(path)
        self._given = path
        self._mode = mode
        self.writes = mode != "r"
        self.checks_sources = check_sources
        self.rdcc_nbytes = options.get("rdcc_nbytes") or _RDCC_NBYTES
        self.locking = ""
        self.pins = 0
        self.used = True
        self.cache_bytes = 0
        self._timeout_s = timeout_s
        self._if_unsafe = if_unsafe
        self._options = options
        self._shut_down = False
        self._virtuals: dict[str, VirtualDataset] = {}
        self._virtuals_of: Signature | None = None
        self._items: list[weakref.ref[Member]] = []
        self._prune_at = 64
        self._without_virtuals: Signature | None = None
        self._open_virtuals: dict[str, Any] = {}
        self._checked: tuple[Any] | None = None
        self._lock: WriteLock | None = None
        self._fid: Any = None
        self._fd: int | None = None
        self._token: object = None
        self._pid = _getpid()
        self._open()
        _alive[id(self)] = self

    # -- as h5py.File --------------------------------------------------------------------------------

    @property
    def _id(self) -> Any:
        if self._token is not None and self._pid == _getpid():
            self.used = True
            return self._fid
        with phil:
            self._check_usable()
            self._open()
            return self._fid

    @_id.setter
    def _id(self, oid: Any) -> None:
        self._fid = oid

    @property
    def filename(self) -> str:
        """The path as it was given."""
        return self._given

    @property
    def mode(self) -> str:
        """As h5py's: "r" or "r+"."""
        return "r+" if self.writes else "r"

    def close(self) -> None:
        """Close the file; what it held is written, its lock is free, its objects are invalid.

        In a forked child nothing is written: the file is the parent's.
        """
        try:
            with phil:
                if not self._shut_down:
                    self._shut_down = True
                    self._forget_virtuals()
                    _alive.pop(id(self), None)
                    self._close_identifier()
        finally:
            lock, self._lock = self._lock, None
            if lock is not None:
                lock.release()

    def flush(self) -> None:
        """Hand what HDF5 holds to the operating system."""
        if self.writes:
            super().flush()

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __bool__(self) -> bool:
        return not self._shut_down and not (self.writes and self._pid != _getpid())

    def __repr__(self) -> str:
        if self._shut_down:
            return "<Closed HDF5 file>"
        return f'<HDF5 file "{os.path.basename(self._given)}" (mode {self.mode}, shardkeep)>'

    def __del__(self) -> None:
        if hasattr(self, "_pid"):
            self.close()

    def __reduce__(self) -> Any:
        if self.writes:
            message = f"{self._given!r} is open for writing in process {self._pid} and cannot be pickled"
            raise LockError(f"{message}: pass its path, or open it with mode 'r'", path=self._given)
        self._check_usable()
        settings = {
            "timeout_s": self._timeout_s,
            "if_unsafe": self._if_unsafe,
            "check_sources": self.checks_sources,
            "options": self._options,
        }
        return _unpickled, (self._where, settings)

    # -- for the budget, the fork and the datasets ------------------------------------------------------

    def pinned(self) -> _Pinned:
        """Keep the file open for the body of a ``with``."""
        return _Pinned(self)

    def suspend(self) -> None:
        """Close the file for now; under h5py's lock."""
        self._close_identifier()

    def virtual(self, path: str, oid: Any = None) -> VirtualDataset:
        """Return what is known of a virtual dataset, its sources checked; `oid` if HDF5 has it open.

        Under h5py's lock: no child is forked then, with a half of what is known.
        """
        found = self._virtuals.get(path)
        if found is None:
            state = self._state()
            known = None if self.writes else known_virtuals.get(self._where, state)
            found = None if known is None else known.datasets.get(path)
            if found is None:
                if self._checked is None:
                    self._checked = (read_table(self._fid),)
                layout = read_virtual_layout(self._fid, self._where, path, oid)
                found = VirtualDataset(self._where, path, layout, self._checked[0], open_source_file)
            with self.pinned():
                found.check()
            self._virtuals[path] = found
            if not self.writes:
                known_virtuals.add(self._where, state).datasets[path] = found
        return found

    def _open(self) -> None:
        self._pid = _getpid()
        if self.writes:
            opened = open_for_writing(
                self._given, self._mode, self._timeout_s, self._if_unsafe, self._options
            )
            self._fid, self._fd, self._lock, self.locking = opened
        else:
            open_files.make_room()
            (self._fid, self._fd, self.locking), self._lock = open_consistent(
                self._where, self._timeout_s, self._open_reader, lambda opened: opened[0]
            )
            if self._lock is not None:
                self.locking += "; shared with the collector"
            open_files.add(self)
        self._token = object()
        if self.checks_sources and self._mode not in ("w", "x"):
            state = self._state()
            if state != self._virtuals_of:
                self._forget_virtuals()
                self._virtuals_of = state
            if state == self._without_virtuals:
                return
            try:
                with phil, self.pinned(), reading(self._given):
                    if self._token is None:
                        self._id  # noqa: B018  # closed for another one meanwhile: opened again, and looked at
                    else:
                        self._check_virtuals(state)
            except BaseException:
                self.close()
                raise
            finally:
                self._checked = None

    def _check_virtuals(self, state: Signature) -> None:
        """Look at the sources of the virtual datasets that are seen when a file is opened."""
        known = None if self.writes else known_virtuals.get(self._where, state)
        if known is not None and known.seen is not None:
            for path in known.seen:
                self.virtual(path)
            return
        found = find_virtual(self._fid)
        for path, oid in found.items():
            self.virtual(path, oid)
        self._open_virtuals = {path: oid for path, oid in found.items() if oid is not None}
        self._without_virtuals = None if found else state
        if found and not self.writes:
            known_virtuals.add(self._where, state).seen = tuple(found)

    def _forget_virtuals(self) -> None:
        virtuals, self._virtuals = self._virtuals, {}
        for one in virtuals.values():
            one.close_sources()

    def _state(self) -> Signature:
        return signature_of(os.stat(self._where) if self._fd is None else os.fstat(self._fd))

    def _open_reader(self) -> tuple[h5py.h5f.FileID, int | None, str]:
        return open_for_reading(self._where, self._given, self._timeout_s, self.rdcc_nbytes, self._options)

    def _close_identifier(self) -> None:
        try:
            self._close_hdf5()
        finally:
            if not self.writes:
                # Not before: the collector changes the file at once.
                lock, self._lock = self._lock, None
                if lock is not None:
                    lock.release()

    def _close_hdf5(self) -> None:
        fid, self._fid, self._token = self._fid, None, None
        self._open_virtuals, self._checked = {}, None
        if not self.writes:
            open_files.remove(self)
            self.cache_bytes = 0
        if fid is None or self._pid != _getpid() or not fid.valid:
            return
        if self.writes or not self._drop_all(fid):
            try:
                close_identifier(fid)
            except (OSError, RuntimeError) as error:
                # HDF5 keeps a file whose flush failed, tries again at exit and may crash there.
                let_go(fid, self._fd, writes=self.writes)
                cause = error if isinstance(error, OSError) else OSError(str(error))
                raise durability_error("write what was left of", self._given, cause) from error

    def remember(self, item: Member) -> None:
        """Note an object that holds an identifier of this file."""
        items = self._items
        items.append(weakref.ref(item))
        if len(items) > self._prune_at:
            self._items = items = [one for one in items if one() is not None]
            self._prune_at = max(64, 2 * len(items))

    def _drop_all(self, fid: Any) -> bool:
        """Let every identifier go, which closes the file; whether that will do.

        h5py's own way to close a file looks at every object of the process, which makes closing thousands
        of files a matter of minutes.
        """
        self._drop_items()
        counted = h5py.h5f.OBJ_ALL | h5py.h5f.OBJ_LOCAL
        return not self._shut_down or h5py.h5f.get_obj_count(fid, counted) <= 1

    def _drop_items(self) -> None:
        items, self._items = self._items, []
        for reference in items:
            item = reference()
            if item is not None:
                item._drop()

    def _check_usable(self) -> None:
        if self._shut_down:
            raise PlanError(f"{self._given!r} is closed: open it again", path=self._given)
        if self.writes and self._pid != _getpid():
            message = (
                f"{self._given!r} is being written by process {self._pid}; its forked child cannot use it"
            )
            raise LockError(f"{message}: write a file of your own there", path=self._given)

    def _after_fork(self) -> None:
        """Let go of the parent's file, in the child."""
        fid, self._fid, self._token = self._fid, None, None
        self._open_virtuals = {}
        self._drop_items()
        self._lock = None  # its own hook has given it up
        self.cache_bytes = self.pins = 0
        if fid is not None:
            let_go(fid, self._fd, writes=self.writes)


def open_source_file(path: str) -> File:
    """Open a source of a virtual dataset."""
    return File(path, "r", timeout_s=0.0, if_unsafe="refuse", check_sources=True, options={})


class _Pinned:
    __slots__ = ("_file",)

    def __init__(self, file: File) -> None:
        self._file = file

    def __enter__(self) -> None:
        self._file.pins += 1

    def __exit__(self, *_: object) -> None:
        self._file.pins -= 1


def _unpickled(path: str, settings: dict[str, Any]) -> File:
    return File(path, "r", **settings)


# By identity: two handles of one file are equal.
_alive: weakref.WeakValueDictionary[int, File] = weakref.WeakValueDictionary()


def _forget_in_child() -> None:
    open_files.forget_all()
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
