"""`snapshot`: a consistent view of a file that a collector writes, or wrote until it was killed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import h5py

from shardkeep.collector.protocol.remote_file import local_file
from shardkeep.errors import NotFoundError
from shardkeep.files.kinds.urls import path_or_url
from shardkeep.hdf5.journal.live_view import open_consistent
from shardkeep.hdf5.journal.paths import log_path
from shardkeep.hdf5.locking.reading import open_for_reading

__all__ = ["snapshot"]

_CACHE_BYTES = 1 << 20


@contextlib.contextmanager
def snapshot(path: str | os.PathLike[str], *, timeout_s: float = 10.0) -> Iterator[h5py.File]:
    """Open the file of a collector for reading, also while it is being written.

    Parameters
    ----------
    path : str or os.PathLike
        The HDF5 file; or a URL, on the host of its collector, until the upload.
    timeout_s : float
        How long to wait while the collector applies new rows to the file, which takes milliseconds.

    Yields
    ------
    h5py.File
        Every dataset with complete rows only: those that were durable at one moment of about the last two
        seconds. It does not change until the body ends; open it again for newer rows.

    Raises
    ------
    NotFoundError
        The file does not exist.
    LockTimeoutError
        The collector, or the recovery of the file, took longer than `timeout_s`.

    Notes
    -----
    While the body runs, the collector receives rows and makes them durable, but does not apply them to the
    file: keep the body short, or other readers see no new rows. A file whose collector was killed is first
    restored to its last commit.

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
    path = local_file(path_or_url(path))
    missing = NotFoundError(f"{path!r} does not exist: no collector has created it yet", path=path)
    if not os.path.exists(path) and not os.path.exists(log_path(path)):
        raise missing

    def open_file() -> h5py.File:
        # As in `shardkeep.hdf5.open`: HDF5 opens a file twice in a process only with the same options.
        return h5py.File(open_for_reading(os.path.abspath(path), path, timeout_s, _CACHE_BYTES, {})[0])

    try:
        file, lock = open_consistent(path, timeout_s, open_file, lambda file: file.id)
    except FileNotFoundError:
        raise missing from None
    try:
        with file:
            yield file
    finally:
        if lock is not None:
            lock.release()
