"""`snapshot`: a whole view of a file that a collector is writing, or was when it died."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import h5py

from shardkeep.errors import NotFoundError
from shardkeep.hdf5.journal.live_view import open_consistent
from shardkeep.hdf5.journal.paths import log_path
from shardkeep.hdf5.locking.reading import open_for_reading

__all__ = ["snapshot"]

_CACHE_BYTES = 1 << 20


@contextlib.contextmanager
def snapshot(path: str | os.PathLike[str], *, timeout_s: float = 10.0) -> Iterator[h5py.File]:
    """Open a collector's file for reading, also while it is written.

    Parameters
    ----------
    path : str or os.PathLike
    timeout_s : float
        How long to wait while the collector brings new rows into the file, which takes milliseconds.

    Yields
    ------
    h5py.File
        Every dataset with whole rows only: those that were durable at some moment of the last two seconds
        or so. It stays as it is until the body ends; open it again for newer rows.

    Raises
    ------
    NotFoundError
        There is no such file.
    LockTimeoutError
        It could not be had in time.

    Notes
    -----
    While the body runs, the collector goes on taking rows and making them durable, but does not bring them
    into the file: be brief, or other readers see nothing new. A file whose collector was killed is brought
    to its last commit first.

    Examples
    --------
    >>> import os, tempfile
    >>> from shardkeep.hdf5 import Collector
    >>> path = os.path.join(tempfile.mkdtemp(), "all.h5")
    >>> with Collector(path) as collector:
    ...     with snapshot(path) as file:
    ...         "loss" in file
    False
    """
    path = os.fspath(path)
    if not os.path.exists(path) and not os.path.exists(log_path(path)):
        raise NotFoundError(f"there is no file {path!r}: no collector has made it yet", path=path)

    def open_it() -> h5py.File:
        # As `shardkeep.hdf5.open` does it: HDF5 opens a file twice in a process only in the same way.
        return h5py.File(open_for_reading(os.path.abspath(path), path, timeout_s, _CACHE_BYTES, {})[0])

    try:
        file, lock = open_consistent(path, timeout_s, open_it, _id_of)
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {path!r}: no collector has made it yet", path=path) from None
    try:
        with file:
            yield file
    finally:
        if lock is not None:
            lock.release()


def _id_of(file: h5py.File) -> h5py.h5f.FileID:
    return file.id
