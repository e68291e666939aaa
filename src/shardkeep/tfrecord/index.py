"""Where the records of a file start."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from shardkeep import _core
from shardkeep.errors import CorruptRecordError, FormatError
from shardkeep.files.kind import identify, require_kind

__all__ = ["frame_starts"]


def frame_starts(
    paths: Sequence[str | os.PathLike[str]], *, verify: bool = False, threads: int | None = None
) -> list[npt.NDArray[np.uint64]]:
    """Scan files for where their records start, several files at once.

    Parameters
    ----------
    paths : sequence of paths
        Uncompressed TFRecord files.
    verify : bool
        Check the CRC of every payload too. The headers' are checked in any case, and payloads of large
        records are stepped over, so that without `verify` little is read.
    threads : int, optional
        One for each processor by default.

    Returns
    -------
    list of ndarray of uint64, shape (records + 1,)
        For each file the offset in bytes of each frame, and at the end that of the end of the file.

    Raises
    ------
    CorruptRecordError, TruncatedFileError
        Damage, with record number and offset; the first file that has one is named.
    FormatError
        A file of another kind, or a compressed one, whose records have no offsets.
    NotFoundError
        A file that is not there.
    """
    names = [os.fspath(path) for path in paths]
    threads = threads or len(os.sched_getaffinity(0))
    try:
        return _core.scan_frames(names, verify=verify, threads=threads)
    except CorruptRecordError as error:
        if error.record == 0 and error.path is not None:
            kind = identify(error.path)
            if kind.compression is not None:
                raise FormatError(
                    f"{error.path}: the file is {kind.compression}-compressed as a whole, so its records have"
                    " no offsets; write it again without compression to shuffle or to jump",
                    path=error.path,
                ) from None
            if not kind.described.startswith(("binary data", "zero bytes", "damaged")):
                require_kind(error.path, "tfrecord", found=kind)
        raise
