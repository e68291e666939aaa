"""An HDF5 file that is only read: opened with errors of the tree, checked, described."""

from __future__ import annotations

import os
from typing import Any

import h5py
import numpy as np

from shardkeep.errors import CorruptDataError
from shardkeep.files.locks.lock import FileLock
from shardkeep.hdf5.journal.live_view import OWN_GROUP, open_consistent
from shardkeep.hdf5.locking.damage import refuse_damage
from shardkeep.hdf5.locking.open_errors import open_error
from shardkeep.hdf5.locking.reading import read_access
from shardkeep.hdf5.read_errors import is_of_hdf5, reading, unknown_type
from shardkeep.hdf5.segments.commit_record import CommitRecord, read_record
from shardkeep.hdf5.sources.links import NameCheck
from shardkeep.hdf5.storage.names import is_own_table, is_reserved, own_names

__all__ = ["Source", "open_id", "open_source"]


class Source:
    """A file that is open for reading; made by `open_source`.

    Attributes
    ----------
    path : str
    file : h5py.File
    record : CommitRecord or None
        If it is a sealed segment.
    collected : bool
        Whether a collector wrote it.
    """

    def __init__(self, path: str, file: h5py.File, view: FileLock | None = None) -> None:
        self.path = path
        self.file = file
        self._view = view
        self._datasets: dict[str, h5py.Dataset] = {}
        self.record: CommitRecord | None = read_record(file, path)
        clients = f"{OWN_GROUP}/clients"
        self.collected = clients in file and is_own_table(file.id, clients)

    def dataset_names(self) -> list[str]:
        """Return the names of all datasets that are the user's, in the file's order.

        Of a segment: those with rows, then the values that were put with this commit. What the user has
        under names that only Shardkeep may use comes last.
        """
        if self.record is not None:
            return self.record.objects

        reserved: dict[str, h5py.Dataset] = {}

        check = NameCheck(self.file.id)

        def visit(name: str, item: Any) -> None:
            check.add(name)
            if isinstance(item, h5py.Dataset):
                (reserved if is_reserved(name) else self._datasets)[name] = item

        with reading(self.path):
            self.file.visititems(visit)
            check.finish()
            own = own_names(self.file.id, reserved) if reserved else ()
        self._datasets.update((name, item) for name, item in reserved.items() if name not in own)
        return list(self._datasets)

    def collector_names(self) -> list[str]:
        """Return the names of the datasets in which a collector keeps who wrote what."""
        names: list[str] = []
        if self.collected:
            with reading(self.path):
                self.file["_collector"].visititems(
                    lambda name, item: (
                        names.append(f"_collector/{name}") if isinstance(item, h5py.Dataset) else None
                    )
                )
        return names

    def dataset(self, name: str) -> h5py.Dataset:
        """Return a dataset.

        Raises
        ------
        CorruptDataError
            It is not there or cannot be opened although the file names it.
        """
        known = self._datasets.get(name)
        if known is not None:
            return known
        with reading(self.path, name, "dataset"):
            item = self.file[name]
        if not isinstance(item, h5py.Dataset):
            message = f"{name!r} in {self.path!r} must be a dataset and is a group"
            raise CorruptDataError(f"{message}: restore the file from a copy", path=self.path)
        self._datasets[name] = item
        return item

    def schema(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return shape and dtype of a dataset."""
        dataset = self.dataset(name)
        try:
            # An "empty" dataset (H5S_NULL) has no shape at all; here it counts as a scalar.
            return tuple(dataset.shape or ()), dataset.dtype
        except Exception as error:
            if not is_of_hdf5(error):
                raise
            raise unknown_type(self.path, name, error) from error

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self._datasets.clear()
        try:
            self.file.close()
        finally:
            if self._view is not None:
                self._view.release()


def open_source(path: str) -> Source:
    """Open an HDF5 file for reading; that of a collector stays as it is until it is closed.

    Raises
    ------
    NotFoundError, LockError, BudgetError, TruncatedFileError, FormatError, CorruptDataError
        It is not there; a writer has it open; there are no descriptors left; it is cut off; it is
        another kind of file; HDF5 cannot read it.
    PermissionError
        This user may not read it.
    """
    file_id, view = open_consistent(path, 0.0, lambda: open_id(path), lambda opened: opened)
    file = h5py.File(file_id)
    try:
        with reading(path):
            return Source(path, file, view)
    except BaseException:
        file.close()
        if view is not None:
            view.release()
        raise


def open_id(path: str) -> h5py.h5f.FileID:
    """Open an HDF5 file for reading, without the objects of h5py around it; errors as `open_source`.

    Of a collector's file the caller holds the view (`shardkeep.hdf5.journal.live_view`).
    """
    refuse_damage(path)
    try:
        return h5py.h5f.open(os.fsencode(path), h5py.h5f.ACC_RDONLY, read_access())
    except Exception as error:
        raise open_error(path, error) from error
