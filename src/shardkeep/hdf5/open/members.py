"""`Group`, `Dataset`, `Attributes`: h5py's own classes, whose HDF5 identifiers are renewed when needed.

All of h5py reads the attribute ``_id`` of an object first. Here that is a property: it returns the identifier
while the file is open, and otherwise opens the file again and the object by its path. So the file may be
closed while its objects exist (by a budget, a fork, a pickle), and all of h5py and of what builds on it still
works: ``isinstance(f, h5py.File)`` is true.

An identifier is used under h5py's lock, and a file is closed under it, so no call loses its file while it
runs. Where a call runs code of the caller (``visititems``), the file is pinned.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import h5py
import numpy as np

from shardkeep.errors import CorruptDataError, PlanError
from shardkeep.hdf5.h5py_private import phil
from shardkeep.hdf5.locking.damage import refuse_damage
from shardkeep.hdf5.locking.open_file_budget import open_file_budget
from shardkeep.hdf5.open.handle import FileHandle
from shardkeep.hdf5.storage.byte_order import in_stored_order
from shardkeep.hdf5.storage.compression import filter_codes, offer_filters, require_filters
from shardkeep.hdf5.virtual.dataset import VirtualDataset
from shardkeep.hdf5.virtual.layout import is_virtual

__all__ = ["Attributes", "Dataset", "Group", "Member"]

_getpid = os.getpid
_DROPPED = object()
# Attributes of a dataset that stay when its file is closed; h5py adds others.
_KEPT = {"_owner", "_path", "_token", "_oid", "_readonly", "_cache_props", "_dxpl", "_virtual"}
# HDF5's sieve buffer, of an open dataset without chunks.
_SIEVE_BYTES = 64 * 1024


class Member:
    """Base of the objects of a `File`, which are identified by their path."""

    _owner: FileHandle
    _path: str
    _token: object
    _oid: Any
    _e: Any  # of h5py: encodes names
    _lapl: Any  # of h5py: properties of link access

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
        """Renew what depends on the identifier."""

    def _drop(self) -> None:
        """Drop the identifier: the file is being closed."""
        self._oid, self._token = None, _DROPPED

    @property
    def file(self) -> Any:
        """The `File` of the object."""
        return self._owner

    @property
    def name(self) -> str:
        """The path under which it was opened."""
        return self._path

    @property
    def attrs(self) -> Attributes:
        """The attributes of the object."""
        return Attributes(self)

    def __bool__(self) -> bool:
        return bool(self._owner)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, Member) and other._owner is self._owner and other._path == self._path:
            return True
        return super().__eq__(other)

    def __hash__(self) -> int:
        # An identifier's hash changes when its file is opened again.
        return hash((self._owner.filename, self._path))

    def __reduce__(self) -> Any:
        return _member, (self._owner, self._path)


def _pinning(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of h5py that keeps the file open while it runs code of the caller."""

    @functools.wraps(method)
    def call(self: Member, *args: Any, **options: Any) -> Any:
        with self._owner.pinned():
            return method(self, *args, **options)

    return call


def _wrapping(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of h5py that creates an object, which becomes one of a `File`."""

    @functools.wraps(method)
    def call(self: Group, *args: Any, **options: Any) -> Any:
        return self._created(method(self, *args, **options))

    return call


class Group(Member, h5py.Group):  # type: ignore[misc]
    """A group of a `File`: an `h5py.Group` that may cross ``fork``, ``spawn`` and ``pickle``.

    All methods are those of `h5py.Group` and return objects of the same `File`.

    See Also
    --------
    shardkeep.hdf5.open : Opens a file.
    """

    create_group = _wrapping(h5py.Group.create_group)
    create_dataset = _wrapping(h5py.Group.create_dataset)
    create_virtual_dataset = _wrapping(h5py.Group.create_virtual_dataset)
    visit = _pinning(h5py.Group.visit)
    visititems = _pinning(h5py.Group.visititems)
    visit_links = _pinning(h5py.Group.visit_links)
    visititems_links = _pinning(h5py.Group.visititems_links)

    def __getitem__(self, name: Any) -> Any:
        with phil:
            owner = self._owner
            # Thousands of mappings take HDF5 a tenth of a second to open.
            if isinstance(name, str) and self._id and owner._virtuals and not owner.writes:
                path = _joined(self._path, name)
                oid = owner._open_virtuals.get(path)
                if oid is not None:
                    return Dataset._of(owner, path, oid)
                if path in owner._virtuals:
                    return Dataset._unopened(owner, path, owner._virtuals[path])
            return self._wrap(super().__getitem__(name), name)

    def get(self, name: Any, default: Any = None, getclass: bool = False, getlink: bool = False) -> Any:
        """Return an object, its class or its link, as `h5py.Group.get`.

        Parameters
        ----------
        name : str or h5py.Reference
            Name of the object.
        default : object, optional
            Returned if the object does not exist.
        getclass, getlink : bool
            Return the class, or the link, in place of the object.

        Returns
        -------
        object
        """
        if getclass or getlink:
            return super().get(name, default, getclass=getclass, getlink=getlink)
        # Not by `in`: a link whose file is missing raises in h5py's `get` too.
        try:
            return self[name]
        except KeyError:
            return default

    def __iter__(self) -> Iterator[str]:
        with phil:
            names = list(super().__iter__())
        for name in names:
            if name in ("", ".") or "/" in name:
                where = f"{self._path!r} of {self._owner.filename!r}"
                message = f"{where} has the name {name!r}, which HDF5 reads as a path: the file is damaged"
                raise CorruptDataError(f"{message}, restore it from a copy", path=self._owner.filename)
        return iter(names)

    def __reversed__(self) -> Iterator[str]:
        with phil:
            names = list(super().__reversed__())
        return iter(names)

    def _created(self, item: Any) -> Any:
        """Return a created object as one of this file; an object without a name stays h5py's."""
        with phil:
            name = h5py.h5i.get_name(item.id)
            return item if name is None else self._wrap(item, self._d(name))

    def _wrap(self, item: Any, name: Any) -> Any:
        if isinstance(item, Member):
            return item
        if not isinstance(item, (h5py.Group, h5py.Dataset)):
            self._owner.pins += 1  # a named type, whose identifier cannot be renewed
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
    def _of(cls, owner: FileHandle, path: str, oid: Any) -> Any:
        made = cls.__new__(cls)
        made._owner, made._path, made._token = owner, path, owner._token
        h5py.Group.__init__(made, oid)
        owner.remember(made)
        return made


class Dataset(Member, h5py.Dataset):  # type: ignore[misc]
    """A dataset of a `File`: an `h5py.Dataset` that may cross ``fork``, ``spawn`` and ``pickle``.

    All methods are those of `h5py.Dataset`. Rows of a virtual dataset are read from its sources, and an error
    is raised for a source that cannot be read, where HDF5 returns fill values.

    See Also
    --------
    shardkeep.hdf5.open : Opens a file.
    """

    _virtual: VirtualDataset | None
    # While the file has this token, virtual rows are read without an identifier.
    _known_by: object = _DROPPED

    @classmethod
    def _of(cls, owner: FileHandle, path: str, oid: Any) -> Dataset:
        made = cls.__new__(cls)
        made._owner, made._path, made._token = owner, path, owner._token
        h5py.Dataset.__init__(made, oid, readonly=not owner.writes)
        owner.remember(made)
        made._opened()
        return made

    @classmethod
    def _unopened(cls, owner: FileHandle, path: str, virtual: VirtualDataset) -> Dataset:
        """Return a virtual dataset that HDF5 has not opened, which reading its rows does not need."""
        made = cls.__new__(cls)
        made._owner, made._path, made._token = owner, path, _DROPPED
        h5py.Dataset.__init__(made, h5py.h5d.DatasetID(0), readonly=True)  # opens it with h5py 3.12
        made._virtual, made._known_by = virtual, owner._token
        made._cache_props["shape"] = virtual.shape
        owner.remember(made)
        return made

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype, as `h5py.Dataset.dtype`."""
        with phil:
            owner = self._owner
            if self._virtual is not None and self._known_by is owner._token and owner._pid == _getpid():
                return self._virtual.dtype
            found: np.dtype[Any] = super().dtype
            return found

    def __getitem__(self, args: Any, new_dtype: Any = None) -> Any:
        with phil:
            token = self._owner._token
            if token not in (self._token, self._known_by) or self._owner._pid != _getpid():
                self._resolve()
            if self._virtual is None:
                self._owner.used = True
                rows = self._read(args, new_dtype)
                if self._fast_read_ok and new_dtype is None:
                    return rows
            else:
                with self._owner.pinned():
                    rows = self._virtual.read(self, args, new_dtype)
            return self._in_stored_order(rows, args, new_dtype)

    def _read(self, args: Any, new_dtype: Any) -> Any:
        if not self._fast_read_ok and not self._owner.writes and self.dtype.hasobject:
            refuse_damage(self._owner._absolute_path, name=self._owner.filename, rows=True)
        try:
            return super().__getitem__(args, new_dtype=new_dtype)
        except (OSError, RuntimeError):
            require_filters(self)
            raise

    def _in_stored_order(self, rows: Any, args: Any, new_dtype: Any) -> Any:
        """Correct the byte order of rows that h5py has read, also of selected fields."""
        dtype = self.dtype if self._virtual is None else self._virtual.dtype
        if new_dtype is not None:
            dtype = np.dtype(new_dtype)
        if not dtype.hasobject:
            return rows
        names = [one for one in (args if isinstance(args, tuple) else (args,)) if isinstance(one, str)]
        if names and dtype.names is not None:
            dtype = dtype[names[0]] if len(names) == 1 else dtype[names]
        return in_stored_order(rows, dtype.base)

    def __setitem__(self, args: Any, value: Any) -> None:
        with phil:
            self._refuse_virtual()
            super().__setitem__(args, value)

    def read_direct(self, dest: Any, source_sel: Any = None, dest_sel: Any = None) -> None:
        """Read rows into an array, as `h5py.Dataset.read_direct`.

        Parameters
        ----------
        dest : ndarray
            C-contiguous array.
        source_sel, dest_sel : optional
            Selections (`numpy.s_`); by default everything.

        Raises
        ------
        ShardkeepError
            A source of a virtual dataset cannot be read.
        """
        with phil:
            # Values of variable length are read with the correction of their byte order.
            if self._id and self._virtual is None and not self.dtype.hasobject:
                try:
                    super().read_direct(dest, source_sel, dest_sel)
                except (OSError, RuntimeError):
                    require_filters(self)
                    raise
                return
        rows = self[() if source_sel is None else source_sel]
        if dest_sel is None:
            dest[...] = np.reshape(rows, dest.shape)
        else:
            dest[dest_sel] = rows

    def write_direct(self, source: Any, source_sel: Any = None, dest_sel: Any = None) -> None:
        """Write an array into rows, as `h5py.Dataset.write_direct`.

        Parameters
        ----------
        source : ndarray
            C-contiguous array.
        source_sel, dest_sel : optional
            Selections (`numpy.s_`); by default everything.

        Raises
        ------
        PlanError
            The dataset is virtual.
        """
        with phil:
            self._refuse_virtual()
            super().write_direct(source, source_sel, dest_sel)

    @property
    def dims(self) -> Any:
        """The dimension scales, as `h5py.Dataset.dims`; the file stays open from now on."""
        self._owner.pins += 1
        return super().dims

    def check_sources(self) -> None:
        """Check the sources of a virtual dataset again; has no effect on other datasets.

        Raises
        ------
        ShardkeepError, PermissionError
            A source is missing, cannot be read, is too short or has another type.
        """
        with phil:
            if self._id and self._virtual is not None:
                self._virtual.check()

    def _refuse_virtual(self) -> None:
        if self._id and self._virtual is not None:
            message = f"{self._path!r} of {self._owner.filename!r} is virtual: write to its sources"
            raise PlanError(message, path=self._owner.filename)

    def _renew(self) -> None:
        if not hasattr(h5py.Dataset, "_dcpl"):  # h5py 3.12 reads filters and chunks when an object is created
            h5py.Dataset.__init__(self, self._oid, readonly=not self._owner.writes)
        self._opened()

    def _drop(self) -> None:
        # h5py keeps readers by the number of the identifier, which HDF5 uses again for another one.
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
        if layout.get_nfilters():
            offer_filters(filter_codes(layout))
        if owner.checks_sources and is_virtual(layout):
            self._virtual = owner.virtual(self._path, self._oid)
        if not owner.writes:
            size_bytes = _SIEVE_BYTES
            if layout.get_layout() == h5py.h5d.CHUNKED:
                values = int(np.prod(self._oid.shape, dtype=np.int64))
                size_bytes = min(owner.rdcc_nbytes, values * self._oid.get_type().get_size())
            open_file_budget.add_cache(owner, size_bytes)


class Attributes(h5py.AttributeManager):  # type: ignore[misc]
    """The attributes of an object of a `File`: an `h5py.AttributeManager`, used as a mapping.

    Parameters
    ----------
    parent : File, Group or Dataset
    """

    def __init__(self, parent: Member) -> None:
        self._parent = parent

    @property
    def _id(self) -> Any:
        return self._parent._id

    def __getitem__(self, name: Any) -> Any:
        with phil:
            value = super().__getitem__(name)
            if isinstance(value, np.ndarray | np.void):
                return in_stored_order(value, self.get_id(name).dtype)
            return value

    def __iter__(self) -> Iterator[str]:
        with phil:
            names = list(super().__iter__())
        return iter(names)


def _joined(path: str, name: str) -> str:
    """Return the absolute path of a name in a group as HDF5 reads it, for which ".." is an ordinary name."""
    parts = (name if name.startswith("/") else f"{path}/{name}").split("/")
    return "/" + "/".join(part for part in parts if part not in ("", "."))


def _member(owner: Any, path: str) -> Any:
    return owner[path]
