"""Base of the objects of a `File`, and `Attributes`: h5py classes whose identifiers are renewed when needed.

All of h5py reads the attribute ``_id`` of an object first. Here that is a property: it returns the identifier
while the file is open, and otherwise opens the file again and the object by its path. So the file may be
closed while its objects exist (by a budget, a fork, a pickle), and all of h5py and of what builds on it still
works: ``isinstance(f, h5py.File)`` is true.

An identifier is used under h5py's lock, and a file is closed under it, so no call loses its file while it
runs. Where a call runs code of the caller (``visititems``), the file is pinned.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from shardkeep.hdf5.h5py_private import phil
from shardkeep.hdf5.locking.reading import link_access, locks
from shardkeep.hdf5.open.handle import FileHandle
from shardkeep.hdf5.storage.byte_order import in_stored_order
from shardkeep.hdf5.storage.names import encode_name

__all__ = ["DROPPED", "Attributes", "Member"]

DROPPED = object()
"""Token of an object without an identifier."""

_getpid = os.getpid


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

    def __repr__(self) -> str:
        return f"<Attributes of {self._parent!r}>"

    def __iter__(self) -> Iterator[str]:
        with phil:
            names = list(super().__iter__())
        return iter(names)


class Member:
    """Base of the objects of a `File`, which are identified by their path."""

    _owner: FileHandle
    _path: str
    _token: object
    _oid: Any
    _d: Any  # of h5py: decodes names

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

    @property
    def _lapl(self) -> Any:
        return link_access(locked=self._owner.writes or locks(self._owner._absolute_path))

    def _resolve(self) -> Any:
        with phil:
            root = self._owner._id
            self._oid = h5py.h5o.open(root, encode_name(self._path), lapl=self._lapl)
            self._token = self._owner._token
            self._owner.remember(self)
            self._renew()
            return self._oid

    def _renew(self) -> None:
        """Renew what depends on the identifier."""

    def _drop(self) -> None:
        """Drop the identifier: the file is being closed."""
        self._oid, self._token = None, DROPPED

    @property
    def file(self) -> Any:
        """The `File` of the object."""
        return self._owner

    @property
    def name(self) -> str:
        """The path under which it was opened; bytes if it is not UTF-8, as in h5py."""
        name: str = self._d(encode_name(self._path))
        return name

    @property
    def attrs(self) -> Attributes:
        """The attributes of the object."""
        return Attributes(self)

    def __bool__(self) -> bool:
        return bool(self._owner)

    def __repr__(self) -> str:
        with phil, contextlib.suppress(Exception):  # damage, or a type that NumPy does not have
            if self._token is self._owner._token and self._owner._pid == _getpid():
                described: str = super().__repr__()
                return described
        # Without an identifier: a repr opens no file.
        kind = type(self).__name__.lower()
        if not self:
            return f"<Closed HDF5 {kind}>"
        return f'<HDF5 {kind} "{self._path}" of {self._owner.filename!r}>'

    def __eq__(self, other: object) -> Any:
        if isinstance(other, Member) and other._owner is self._owner and other._path == self._path:
            return True
        return super().__eq__(other)

    def __hash__(self) -> int:
        # An identifier's hash changes when its file is opened again.
        return hash((self._owner.filename, self._path))

    def __reduce__(self) -> Any:
        return _member, (self._owner, self._path)


def _member(owner: Any, path: str) -> Any:
    return owner[encode_name(path)]
