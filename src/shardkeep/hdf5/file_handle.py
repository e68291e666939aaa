"""`File`, `Group`, `Dataset`: h5py's own classes, except that their HDF5 identifiers may come and go.

Everything in h5py asks an object for its ``_id`` first. Here that is a property: it gives the identifier
while the file is open as it was, and otherwise opens the file again and looks the object up by its path.
So a file may be closed behind its objects' back (a budget, a fork, a pickle), and all of h5py, and what is
built on it, still works: ``isinstance(f, h5py.File)`` is true.

An identifier is used under h5py's lock, and a file is closed under it, so no call loses its file half way.
Where a call gives control back to the caller (``visititems``), the file is pinned.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import posixpath
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import h5py
import numpy as np
from h5py._objects import phil

from shardkeep.errors import LockError, PlanError, ShardkeepError
from shardkeep.files.pending import durability_error
from shardkeep.hdf5.forked_handle import close_identifier, let_go
from shardkeep.hdf5.open_files import open_files
from shardkeep.hdf5.read_open import open_for_reading
from shardkeep.hdf5.virtual_dataset import VirtualDataset, find_virtual, is_virtual
from shardkeep.hdf5.virtual_source import Signature, signature_of
from shardkeep.hdf5.write_open import WriteLock, open_for_writing

__all__ = ["Attributes", "Dataset", "File", "Group"]

_getpid = os.getpid
_DROPPED = object()
# What a dataset has besides what h5py keeps of the state of its file.
_KEPT = {"_owner", "_path", "_token", "_oid", "_readonly", "_cache_props", "_dxpl", "_virtual"}
_RDCC_NBYTES = 1024 * 1024
# What an open dataset without chunks keeps: HDF5's sieve buffer.
_SIEVE_BYTES = 64 * 1024


class _Found(h5py._hl.base.HLObject):  # type: ignore[misc]
    """An object of a file, known by its path."""

    _owner: File
    _path: str
    _token: object
    _oid: Any

    @property
    def _id(self) -> Any:
        owner = self._owner
        if self._token is owner._token and owner._pid == _getpid():
            owner.used = True
            return self._oid
        return self._resolve()

    @_id.setter
    def _id(self, oid: Any) -> None:
        self._oid = oid

    def _resolve(self) -> Any:
        with phil:
            root = self._owner._id
            self._oid = h5py.h5o.open(root, self._e(self._path), lapl=self._lapl)
            self._token = self._owner._token
            self._owner.remember(self)
            self._renew()
            return self._oid

    def _renew(self) -> None:
        """See to what depends on the identifier."""

    def _drop(self) -> None:
        """Let the identifier go; the file is being closed."""
        self._oid, self._token = None, _DROPPED

    @property
    def file(self) -> File:
        """The `File` that it belongs to."""
        return self._owner

    @property
    def name(self) -> str:
        """The path under which it was opened."""
        return self._path

    @property
    def attrs(self) -> Attributes:
        """Its attributes."""
        return Attributes(self)

    def __bool__(self) -> bool:
        return bool(self._owner)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, _Found) and other._owner is self._owner and other._path == self._path:
            return True
        return super().__eq__(other)

    def __hash__(self) -> int:
        # An identifier's hash changes when its file is opened again.
        return hash((self._owner.filename, self._path))

    def __reduce__(self) -> Any:
        return _member, (self._owner, self._path)


class Group(_Found, h5py.Group):  # type: ignore[misc]
    """A group of a `File`."""

    def __getitem__(self, name: Any) -> Any:
        with phil:
            # Thousands of mappings take HDF5 a tenth of a second to open.
            if isinstance(name, str) and self._id and self._owner._open_virtuals:
                path = _joined(self._path, name)
                oid = self._owner._open_virtuals.get(path)
                if oid is not None:
                    return Dataset._of(self._owner, path, oid)
            return self._wrap(super().__getitem__(name), name)

    def get(self, name: Any, default: Any = None, getclass: bool = False, getlink: bool = False) -> Any:
        """Do as h5py's, with objects of this file."""
        if getclass or getlink:
            return super().get(name, default, getclass=getclass, getlink=getlink)
        # Not by `in`: a link whose file is missing is an error of h5py's `get` too.
        try:
            return self[name]
        except KeyError:
            return default

    def create_group(self, *args: Any, **options: Any) -> Any:
        """Do as h5py's."""
        return self._made(super().create_group(*args, **options))

    def create_dataset(self, *args: Any, **options: Any) -> Any:
        """Do as h5py's."""
        return self._made(super().create_dataset(*args, **options))

    def create_virtual_dataset(self, *args: Any, **options: Any) -> Any:
        """Do as h5py's."""
        return self._made(super().create_virtual_dataset(*args, **options))

    def visit(self, func: Callable[[str], Any]) -> Any:
        """Do as h5py's."""
        with self._owner.pinned():
            return super().visit(func)

    def visititems(self, func: Callable[[str, Any], Any]) -> Any:
        """Do as h5py's."""
        with self._owner.pinned():
            return super().visititems(func)

    def visit_links(self, func: Callable[[str], Any]) -> Any:
        """Do as h5py's."""
        with self._owner.pinned():
            return super().visit_links(func)

    def visititems_links(self, func: Callable[[str, Any], Any]) -> Any:
        """Do as h5py's."""
        with self._owner.pinned():
            return super().visititems_links(func)

    def __iter__(self) -> Iterator[str]:
        with phil:
            names = list(super().__iter__())
        return iter(names)

    def __reversed__(self) -> Iterator[str]:
        with phil:
            names = list(super().__reversed__())
        return iter(names)

    def _made(self, item: Any) -> Any:
        """Wrap what was created; what has no name is h5py's own."""
        with phil:
            name = h5py.h5i.get_name(item.id)
            return item if name is None else self._wrap(item, self._d(name))

    def _wrap(self, item: Any, name: Any) -> Any:
        if isinstance(item, _Found):
            return item
        if not isinstance(item, (h5py.Group, h5py.Dataset)):
            self._owner.pins += 1  # a named type: its identifier is out of our hands
            return item
        if isinstance(name, bytes):
            name = self._d(name)
        if not isinstance(name, str):  # a reference
            inner = h5py.h5i.get_name(item.id)
            if inner is None:
                self._owner.pins += 1
                return item
            name = self._d(inner)
        kind = Group if isinstance(item, h5py.Group) else Dataset
        return kind._of(self._owner, _joined(self._path, name), item.id)

    @classmethod
    def _of(cls, owner: File, path: str, oid: Any) -> Any:
        made = cls.__new__(cls)
        made._owner, made._path, made._token = owner, path, owner._token
        h5py.Group.__init__(made, oid)
        owner.remember(made)
        return made


class Dataset(_Found, h5py.Dataset):  # type: ignore[misc]
    """A dataset of a `File`."""

    _virtual: VirtualDataset | None

    @classmethod
    def _of(cls, owner: File, path: str, oid: Any) -> Dataset:
        made = cls.__new__(cls)
        made._owner, made._path, made._token = owner, path, owner._token
        h5py.Dataset.__init__(made, oid, readonly=not owner.writes)
        owner.remember(made)
        made._opened()
        return made

    def __getitem__(self, args: Any, new_dtype: Any = None) -> Any:
        with phil:
            if self._token is not self._owner._token or self._owner._pid != _getpid():
                self._resolve()
            if self._virtual is None:
                self._owner.used = True
                return super().__getitem__(args, new_dtype=new_dtype)
            with self._owner.pinned():
                return self._virtual.read(self, args, new_dtype)

    def __setitem__(self, args: Any, value: Any) -> None:
        with phil:
            self._refuse_virtual()
            super().__setitem__(args, value)

    def read_direct(self, dest: Any, source_sel: Any = None, dest_sel: Any = None) -> None:
        """Do as h5py's."""
        with phil:
            if self._id and self._virtual is None:
                super().read_direct(dest, source_sel, dest_sel)
                return
        rows = self[() if source_sel is None else source_sel]
        if dest_sel is None:
            dest[...] = np.reshape(rows, dest.shape)
        else:
            dest[dest_sel] = rows

    def write_direct(self, source: Any, source_sel: Any = None, dest_sel: Any = None) -> None:
        """Do as h5py's."""
        with phil:
            self._refuse_virtual()
            super().write_direct(source, source_sel, dest_sel)

    @property
    def dims(self) -> Any:
        """Do as h5py's; the file stays open, since what it gives holds identifiers of its own."""
        self._owner.pins += 1
        return super().dims

    def check_sources(self) -> None:
        """Look at the sources of a virtual dataset again; nothing for another one."""
        with phil:
            if self._id and self._virtual is not None:
                self._virtual.check()

    def _refuse_virtual(self) -> None:
        if self._id and self._virtual is not None:
            message = f"{self._path!r} of {self._owner.filename!r} is virtual: write to its sources"
            raise PlanError(message, path=self._owner.filename)

    def _renew(self) -> None:
        self._opened()

    def _drop(self) -> None:
        # What h5py keeps for reading has the number of the identifier, which HDF5 gives again.
        self._cache_props.clear()
        for name in vars(self).keys() - _KEPT:
            del self.__dict__[name]
        super()._drop()

    def _opened(self) -> None:
        owner = self._owner
        self._virtual = owner._virtuals.get(self._path)
        if self._virtual is not None:
            return
        layout = self._oid.get_create_plist()
        if owner.checks_sources and is_virtual(layout):
            self._virtual = owner.virtual(self._path, self._oid)
        if not owner.writes:
            size_bytes = _SIEVE_BYTES
            if layout.get_layout() == h5py.h5d.CHUNKED:
                values = int(np.prod(self._oid.shape, dtype=np.int64))
                size_bytes = min(owner.rdcc_nbytes, values * self._oid.get_type().get_size())
            open_files.add_cache(owner, size_bytes)


class Attributes(h5py.AttributeManager):  # type: ignore[misc]
    """The attributes of an object of a `File`."""

    def __init__(self, parent: _Found) -> None:
        self._parent = parent

    @property
    def _id(self) -> Any:
        return self._parent._id

    def __iter__(self) -> Iterator[str]:
        with phil:
            names = list(super().__iter__())
        return iter(names)


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
        self._items: list[weakref.ref[_Found]] = []
        self._prune_at = 64
        self._without_virtuals: Signature | None = None
        self._open_virtuals: dict[str, Any] = {}
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
                    for one in self._virtuals.values():
                        one.close_sources()
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

    def virtual(self, path: str, oid: Any) -> VirtualDataset:
        """Return what is known of a virtual dataset, its sources checked."""
        found = self._virtuals.get(path)
        if found is None:
            key = self._where, path, signature_of(os.stat(self._where))
            found = None if self.writes else _known.pop(key, None)
            if found is None:
                found = VirtualDataset(self._where, path, oid)
            with self.pinned():
                found.check()
            self._virtuals[path] = found
            if not self.writes:
                _known[key] = found
                if len(_known) > _MOST_KNOWN:
                    del _known[next(iter(_known))]
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
            self._fid, self._fd, self.locking = open_for_reading(
                self._where, self._given, self._timeout_s, self.rdcc_nbytes, self._options
            )
            open_files.add(self)
        self._token = object()
        if self.checks_sources and self._mode not in ("w", "x"):
            state = signature_of(os.stat(self._where))
            if state == self._without_virtuals:
                return
            try:
                self._open_virtuals = find_virtual(self._fid)
                for path, oid in self._open_virtuals.items():
                    self.virtual(path, oid)
                self._without_virtuals = None if self._open_virtuals else state
            except BaseException:
                self.close()
                raise

    def _close_identifier(self) -> None:
        fid, self._fid, self._token = self._fid, None, None
        self._open_virtuals = {}
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

    def remember(self, item: _Found) -> None:
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


class _Pinned:
    __slots__ = ("_file",)

    def __init__(self, file: File) -> None:
        self._file = file

    def __enter__(self) -> None:
        self._file.pins += 1

    def __exit__(self, *_: object) -> None:
        self._file.pins -= 1


def _joined(path: str, name: str) -> str:
    path = posixpath.normpath(posixpath.join(path, name))
    return "/" if path == "//" else path


def _unpickled(path: str, settings: dict[str, Any]) -> File:
    return File(path, "r", **settings)


def _member(owner: File, path: str) -> Any:
    return owner[path]


# By identity: two handles of one file are equal.
_alive: weakref.WeakValueDictionary[int, File] = weakref.WeakValueDictionary()
# Virtual datasets that were used last, so that opening one again costs a `stat` per source.
_known: dict[tuple[str, str, Signature], VirtualDataset] = {}
_MOST_KNOWN = 8


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
