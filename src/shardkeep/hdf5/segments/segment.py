"""One segment while it is being written: an HDF5 file without a name, until it is sealed.

HDF5 writes through a Python file (`shardkeep.files.temporary_file`) and not to a path,
for three reasons. A failed write never reaches HDF5, which cannot close a file whose flush failed;
it is kept, and raised here. A forked child inherits an HDF5 library that would flush its stale
view of the file at exit; its writes go nowhere. And no lock of HDF5's own is taken, whatever
``HDF5_USE_FILE_LOCKING`` says: the rank's lock excludes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import h5py

from shardkeep.files.durable import durably
from shardkeep.files.pending import Pending

__all__ = ["H5_VERSIONS", "Segment"]

# Superblock 3 and checksummed object headers; every HDF5 since 1.10 (2016) reads it.
H5_VERSIONS = ("v110", "v110")


class Segment:
    """A file under a temporary name in the folder of a rank, made when it is first needed.

    Parameters
    ----------
    folder : str
        Of the rank; its lock is held.
    durable : bool
        Whether sealing syncs file and folder.
    """

    def __init__(self, folder: str, *, durable: bool) -> None:
        self._folder = folder
        self._durable = durable
        self._pending: Pending | None = None
        self._file: h5py.File | None = None
        self._pid = os.getpid()

    def group(self) -> h5py.File:
        """Return the open file.

        Raises
        ------
        DurabilityError
            It cannot be made, or something that was written to it failed.
        """
        if self._file is None:
            self._pending = Pending(
                os.path.join(self._folder, "segment.h5"), replace=False, durable=self._durable
            )
            self._pending.file.deferred = True
            self._file = h5py.File(self._pending.file, "w", libver=H5_VERSIONS)
        self._raise_failure()
        return self._file

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Raise what failed in the body: HDF5 does not see it, or stumbles over it later."""
        try:
            yield
        except (OSError, RuntimeError):
            self._raise_failure()
            raise
        self._raise_failure()

    def seal(self, path: str) -> None:
        """Close the file, sync it, and give it its final name: from then on it is committed.

        Notes
        -----
        In this order, so that a power cut finds the whole file under its name or no such name:
        bytes, name, folder.
        """
        file = self.group()
        assert self._pending is not None
        with self.writing():
            file.close()
        self._file = None
        self._pending.rename(path)
        self._pending.seal()
        self._pending.place()
        self._pending.sync_folder()
        pending, self._pending = self._pending, None
        try:
            with durably("close", path):  # a network's file system may say only now that a quota is full
                pending.close()
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise

    def abort(self) -> None:
        """Drop the file. In a forked child: close HDF5's view of it and touch nothing."""
        pending, self._pending = self._pending, None
        file, self._file = self._file, None
        if pending is None:
            return
        pending.file.ignore()
        with contextlib.suppress(Exception):
            if file is not None:
                file.close()
        if self._pid == os.getpid():
            pending.undo()
        pending.close()

    def _raise_failure(self) -> None:
        if self._pending is not None:
            self._pending.file.raise_failure()
