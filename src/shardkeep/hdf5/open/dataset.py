"""`Dataset`: h5py's own class, which reads virtual rows from their checked sources."""

from __future__ import annotations

import os
from typing import Any

import h5py
import numpy as np

from shardkeep.errors import PlanError
from shardkeep.hdf5.h5py_private import phil
from shardkeep.hdf5.locking.damage import refuse_damage
from shardkeep.hdf5.locking.open_file_budget import open_file_budget
from shardkeep.hdf5.open.handle import FileHandle
from shardkeep.hdf5.open.member import DROPPED, Member
from shardkeep.hdf5.storage.byte_order import in_stored_order
from shardkeep.hdf5.storage.compression import filter_codes, offer_filters, require_filters
from shardkeep.hdf5.virtual.dataset import VirtualDataset
from shardkeep.hdf5.virtual.layout import is_virtual

__all__ = ["Dataset"]

_getpid = os.getpid
# Attributes of a dataset that stay when its file is closed; h5py adds others.
_KEPT = {"_owner", "_path", "_token", "_oid", "_readonly", "_cache_props", "_dxpl", "_virtual"}
# HDF5's sieve buffer, of an open dataset without chunks.
_SIEVE_BYTES = 64 * 1024


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
    _known_by: object = DROPPED

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
        made._owner, made._path, made._token = owner, path, DROPPED
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
