"""Segment that is being written: an HDF5 file under a temporary name until it is sealed.

HDF5 writes through a Python file (`shardkeep.files.temporary_file`) and not to a path, for three reasons:

- HDF5 cannot close a file whose flush failed. So it never sees a failed write; the error is kept and raised
  here.
- A forked child inherits an HDF5 library that would flush its stale copy of the file at exit. Its writes are
  dropped.
- HDF5 takes no lock, whatever ``HDF5_USE_FILE_LOCKING`` is: the lock of the rank excludes other writers.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import h5py

from shardkeep.files.pending import Pending, place_all
from shardkeep.files.positioned import signals_between_calls

__all__ = ["H5_VERSIONS", "Segment"]

# Superblock 3 and checksummed object headers; every HDF5 since 1.10 (2016) reads it.
H5_VERSIONS = ("v110", "v110")


class Segment:
    """HDF5 file under a temporary name in the folder of a rank, created when it is first needed.

    Parameters
    ----------
    folder : str
        Folder of the rank, whose lock the caller holds.
    durable : bool
        Whether `seal` syncs file and folder.
    """

    def __init__(self, folder: str, *, durable: bool) -> None:
        self._folder = folder
        self._durable = durable
        self._pending: Pending | None = None
        self._file: h5py.File | None = None
        self._pid = os.getpid()

    def group(self) -> h5py.File:
        """Return the open file; raise `DurabilityError` if it cannot be created, or a write failed."""
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
        """Raise the error of a write that failed in the body, which HDF5 did not see."""
        try:
            yield
        except Exception:
            self._raise_failure()
            raise
        self._raise_failure()

    def seal(self, path: str) -> None:
        """Close the file, sync it, rename it to `path`, and sync the folder.

        In this order, so that a power cut leaves the complete file under its name, or no such name.
        """
        file = self.group()
        assert self._pending is not None
        with signals_between_calls(), self.writing():
            file.close()
        self._file = None
        self._pending.rename(path)
        self._pending.seal()
        place_all([self._pending])
        pending, self._pending = self._pending, None
        pending.close()

    def abort(self) -> None:
        """Remove the file. In a forked child: close the copy of HDF5 and write nothing."""
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
