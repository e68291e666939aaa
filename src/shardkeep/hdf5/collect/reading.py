"""`snapshot`: a whole view of a file that a collector is writing, or was when it died."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import h5py

from shardkeep.errors import LockTimeoutError, NotFoundError
from shardkeep.files.lock import FileLock
from shardkeep.hdf5.collect.live_file import recover
from shardkeep.hdf5.collect.redo_log import log_path
from shardkeep.hdf5.collect.store import reader_lock

__all__ = ["snapshot"]


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
    if os.path.exists(log_path(path)):
        # Nobody writes it, and yet there is a log: its collector was killed.
        with contextlib.suppress(LockTimeoutError), FileLock(path, timeout_s=0.0, if_unsafe="warn"):
            recover(path)
    with reader_lock(path, shared=True, timeout_s=timeout_s):
        try:
            file = h5py.File(path, "r", locking=False)
        except FileNotFoundError:
            raise NotFoundError(
                f"there is no file {path!r}: no collector has made it yet", path=path
            ) from None
        with file:
            yield file
