"""`open`: an HDF5 file that many processes may use, with errors instead of losses."""

from __future__ import annotations

import os
from typing import Any, Literal

from shardkeep.errors import PlanError
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
_NOT_HERE = {
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
    """Open an HDF5 file as `h5py.File` does, safely between processes.

    Parameters
    ----------
    path : str or os.PathLike
    mode : {"r", "r+", "a", "w", "x"}
        Read; read and write what is there; the same, made if missing; emptied or made; made, and an error if
        it is there ("w-" is the same).
    timeout_s : float or None
        How long to wait for others to let go of the file. 0 tries once, None waits for ever.
    if_unsafe : {"refuse", "warn", "trust"}
        For writers, what to do on a file system whose locks do not exclude everybody: see `files.lock`.
    check_sources : bool
        Whether the sources of virtual datasets are looked at. Without it HDF5 reads them, and fills in for
        what it cannot read.
    **options
        Those of `h5py.File`, but for ``driver`` and ``locking``.

    Returns
    -------
    File
        An `h5py.File`, with `locking` (how others are kept out) besides.

    Raises
    ------
    LockTimeoutError
        Another process has it open in a way that does not go together with this one. `holder` and the
        message say which, where that can be found. Raised before a byte is touched, by "w" too.
    LockError
        Writing on a file system without locks between all who see it; says what to do instead. A writer
        used in a forked child, or pickled.
    NotFoundError, ExistsError, FormatError, TruncatedFileError, CorruptDataError, BudgetError
        As their names say. For a virtual file also about its sources, which the message names.
    SchemaError
        A source of a virtual dataset has no such dataset, or a type that does not fit.
    PermissionError
        This user may not read or write it.
    PlanError
        An option that means nothing here; later, a file that was closed.

    Notes
    -----
    **Processes.** A reader may cross ``fork``, ``spawn`` and ``pickle``, and so may its groups and datasets:
    each process opens a handle of its own at first use. A writer belongs to the process that opened it: in a
    forked child it raises, and neither the child's use, ``close`` nor end touches the file or frees the lock.

    **Many files.** Readers over the process's budget (an eighth of ``ulimit -n``, and 256 MiB of chunk
    caches or ``SHARDKEEP_HDF5_CACHE_BYTES``) are closed, the least recently used first, and opened again
    when they are used. Low-level identifiers (``dataset.id``) last only as long as that.

    **Locks.** A reader holds a shared ``flock`` on the file and a writer an exclusive one, as plain h5py
    does, so both kinds of program exclude each other. A writer also holds ``path.lock``.
    ``HDF5_USE_FILE_LOCKING`` is honoured, and what it does is told: `File.locking`, a warning for writers.

    **Collectors.** The file of a collector may be read while it is written: a reader sees whole rows of
    every dataset, as of some moment of the last seconds, and these until it is closed, or reopened by the
    budget. Meanwhile the collector goes on, but brings nothing newer into the file.

    **Virtual datasets.** All sources are checked when the file is opened, and looked at again when read.

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
        raise PlanError(f'mode={mode!r} means nothing here: use "r", "r+", "a", "w" or "x"')
    if if_unsafe not in ("refuse", "warn", "trust"):
        raise PlanError(f'if_unsafe={if_unsafe!r} means nothing here: use "refuse", "warn" or "trust"')
    for name in options:
        if name not in _OPTIONS:
            reason = _NOT_HERE.get(name, "it is no option of h5py.File")
            raise PlanError(f"{name}= means nothing here: {reason}")
    return File(
        os.fspath(path),
        "x" if mode == "w-" else mode,
        timeout_s=timeout_s,
        if_unsafe=if_unsafe,
        check_sources=check_sources,
        options={name: value for name, value in options.items() if value is not None},
    )
