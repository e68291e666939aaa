"""`Group`: h5py's own class, whose objects are those of a `File`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import h5py

from shardkeep.errors import CorruptDataError
from shardkeep.hdf5.h5py_private import phil
from shardkeep.hdf5.open.dataset import Dataset
from shardkeep.hdf5.open.handle import FileHandle
from shardkeep.hdf5.open.member import Member
from shardkeep.hdf5.storage.names import decode_name

__all__ = ["Group"]


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
            # h5py returns a name that is not UTF-8 as bytes.
            if isinstance(name, str) and (name in ("", ".") or "/" in name):
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
            return item if name is None else self._wrap(item, name)

    def _wrap(self, item: Any, name: Any) -> Any:
        if isinstance(item, Member):
            return item
        if not isinstance(item, (h5py.Group, h5py.Dataset)):
            self._owner.pins += 1  # a named type, whose identifier cannot be renewed
            return item
        owner = self._owner
        inner = h5py.h5i.get_name(item.id)
        if h5py.h5f.get_name(item.id) != owner.hdf5_name:
            linked = None if owner.writes or inner is None else owner.linked(item.id, decode_name(inner))
            if linked is None:
                owner.pins += 1
                return item
            return linked
        if inner is not None:
            path = decode_name(inner)
        elif isinstance(name, (str, bytes)):
            path = _joined(self._path, name if isinstance(name, str) else decode_name(name))
        else:  # a reference
            owner.pins += 1
            return item
        kind = Group if isinstance(item, h5py.Group) else Dataset
        return kind._of(owner, path, item.id)

    @classmethod
    def _of(cls, owner: FileHandle, path: str, oid: Any) -> Any:
        made = cls.__new__(cls)
        made._owner, made._path, made._token = owner, path, owner._token
        h5py.Group.__init__(made, oid)
        owner.remember(made)
        return made


def _joined(path: str, name: str) -> str:
    """Return the absolute path of a name in a group as HDF5 reads it, for which ".." is an ordinary name."""
    parts = (name if name.startswith("/") else f"{path}/{name}").split("/")
    return "/" + "/".join(part for part in parts if part not in ("", "."))
