"""`open`: opens an HDF5 file that several processes use, with errors where h5py would lose data."""

from __future__ import annotations

import os
from typing import Any, Literal

from shardkeep.errors import PlanError
from shardkeep.files.kinds.urls import is_url, local_path, path_or_url
from shardkeep.files.locks.lock import IfUnsafe
from shardkeep.hdf5.open.file import File

__all__ = ["Mode", "open"]

Mode = Literal["r", "r+", "a", "w", "x", "w-"]
_OPTIONS = frozenset(
    [
        "alignment_interval",
        "alignment_threshold",
        "fs_page_size",
        "fs_persist",
        "fs_strategy",
        "fs_threshold",
        "libver",
        "meta_block_size",
        "min_meta_keep",
        "min_raw_keep",
        "page_buf_size",
        "rdcc_nbytes",
        "rdcc_nslots",
        "rdcc_w0",
        "swmr",
        "track_order",
        "track_times",
        "userblock_size",
    ]
)
_REFUSED = {
    "driver": "the file is opened by its path; for another driver use h5py.File",
    "locking": "locking follows the file system; if_unsafe= and HDF5_USE_FILE_LOCKING change it",
}


def open(
    path: str | os.PathLike[str],
    mode: Mode = "r",
    *,
    timeout_s: float | None = 0.0,
    if_unsafe: IfUnsafe = "refuse",
    check_sources: bool = True,
    **options: Any,
) -> File:
    """Open an HDF5 file as `h5py.File` does, safely for several processes.

    Parameters
    ----------
    path : str or os.PathLike
        Path of the file. With mode "r" it may be a URL: the file is a local copy of the object.
    mode : {"r", "r+", "a", "w", "x", "w-"}
        "r": read. "r+": read and write an existing file. "a": the same, created if it does not exist. "w":
        created, or emptied if it exists. "x" or "w-": created; an error if it exists.
    timeout_s : float or None
        How long to wait for the locks of other processes. 0 tries once, None waits without a limit.
    if_unsafe : {"refuse", "warn", "trust"}
        Reaction of a writer to a file system whose locks do not exclude all processes: see `files.lock`.
    check_sources : bool
        Whether the sources of virtual datasets are checked. Without it HDF5 reads them, and returns fill
        values for sources that it cannot read.
    **options
        Options of `h5py.File`, except ``driver`` and ``locking``.

    Returns
    -------
    File
        An `h5py.File` whose attribute `locking` describes how other processes are excluded.

    Raises
    ------
    LockTimeoutError
        The lock of another process excludes this mode. `holder` and the message name that process where it
        can be found. Raised before a byte is touched, also for "w".
    LockError
        The file would be written on a file system whose locks do not exclude all processes. Later: a writer
        is used in a forked child, or pickled.
    NotFoundError, ExistsError, FormatError, TruncatedFileError, CorruptDataError, BudgetError
        As their names say; of a virtual file also about its sources, which the message names.
    SchemaError
        A source of a virtual dataset has no such dataset, or a type that does not fit.
    PermissionError
        This user may not read or write the file.
    PlanError
        An argument is not valid. Later: the file is used after `close`.
    MissingExtraError
        This version of h5py is not supported.

    Notes
    -----
    **Processes.** A reader, its groups and its datasets may cross ``fork``, ``spawn`` and ``pickle``: each
    process opens its own handle at first use. A writer belongs to the process that opened it: in a forked
    child it raises, and neither use, ``close`` nor exit of the child changes the file or frees the lock.

    **Many files.** Readers over the process's budget (an eighth of ``ulimit -n``, and 256 MiB of chunk
    caches or ``SHARDKEEP_HDF5_CACHE_BYTES``) are closed, the least recently used first, and opened again
    at their next use. Low-level identifiers (``dataset.id``) are valid until then.

    **Locks.** A reader holds a shared ``flock`` on the file and a writer an exclusive one, as in plain h5py,
    so both kinds of program exclude each other. A writer also holds ``path.lock``. ``HDF5_USE_FILE_LOCKING``
    is honoured; `File.locking` reports its effect, and writers warn.

    **Collectors.** The file of a collector may be read while it is written: a reader sees complete rows of
    all datasets as of one moment in the last seconds, until it is closed, or reopened by the budget.
    Meanwhile the collector accepts rows, but does not change the file.

    **Virtual datasets.** All sources are checked when the file is opened, and again when they are read.

    **Crashes.** A writer that is killed may leave a damaged file, as with plain h5py; its locks are freed.
    `WorkerFile` commits survive a crash.

    Examples
    --------
    >>> import pickle, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a.h5")
    >>> with open(path, "w") as f:
    ...     f["x"] = [1, 2, 3]
    >>> with open(path) as f:
    ...     pickle.loads(pickle.dumps(f["x"]))[1:]
    array([2, 3])
    """
    if mode not in ("r", "r+", "a", "w", "x", "w-"):
        raise PlanError(f'mode must be "r", "r+", "a", "w" or "x", not {mode!r}')
    if if_unsafe not in ("refuse", "warn", "trust"):
        raise PlanError(f'if_unsafe must be "refuse", "warn" or "trust", not {if_unsafe!r}')
    for name in options:
        if name not in _OPTIONS:
            reason = _REFUSED.get(name, "h5py.File has no such option")
            raise PlanError(f"option {name}= is not accepted: {reason}")
    settings: dict[str, Any] = {
        "timeout_s": timeout_s,
        "if_unsafe": if_unsafe,
        "check_sources": check_sources,
        "options": {name: value for name, value in options.items() if value is not None},
    }
    if mode == "r" and is_url(path):
        return File.of_url(path_or_url(path), settings)
    return File(local_path(path), "x" if mode == "w-" else mode, **settings)
