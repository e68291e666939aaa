"""Concatenation of TFRecord files."""

from __future__ import annotations

import os
from concurrent.futures import Executor

import numpy as np

from shardkeep.files.incomplete import Incomplete
from shardkeep.files.kinds.urls import path_or_url
from shardkeep.files.paths import PathsLike
from shardkeep.files.publish import Exists
from shardkeep.files.remote.copies import accepts_urls
from shardkeep.jobs.division.divide import SplitReport, divide
from shardkeep.progress import Progress
from shardkeep.tfrecord.damage import OnCorrupt
from shardkeep.tfrecord.format.compression import WrittenCompression

__all__ = ["concat"]


@accepts_urls("paths")
def concat(
    paths: PathsLike,
    output: str | os.PathLike[str],
    *,
    compression: WrittenCompression | None = None,
    exists: Exists = "fail",
    verify: bool = True,
    on_corrupt: OnCorrupt = "raise",
    incomplete: Incomplete = "refuse",
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> SplitReport:
    """Write the records of several files, in the order of `paths`, to one that appears whole or not at all.

    For uncompressed files the result is that of ``cat``, but verified: ``cat`` also joins files that are
    damaged, truncated or of another kind, and a reader then stops in the middle. Compressed files are
    accepted, too.

    Parameters
    ----------
    paths : path, pattern, or iterable of them
        TFRecord files, compressed or not.
    output : str or os.PathLike
        Path of the new file.
    compression, exists, verify, on_corrupt, incomplete, progress, executor
        As for `shardkeep.split`.

    Returns
    -------
    SplitReport
        A report with one output and the mode "concat".

    Raises
    ------
    CorruptDataError, FormatError, NotFoundError, PlanError, ExistsError, LockTimeoutError, DurabilityError
        As for `shardkeep.split`; after an error the output does not exist.

    Examples
    --------
    >>> import os, tempfile
    >>> from shardkeep.tfrecord import Reader, Writer
    >>> folder = tempfile.mkdtemp()
    >>> for name in ("a", "b"):
    ...     with Writer(os.path.join(folder, name), compression="gzip") as w:
    ...         w.write(name.encode())
    >>> report = concat(os.path.join(folder, "[ab]"), os.path.join(folder, "ab.tfrecord"))
    >>> report.records, list(Reader(report.outputs[0].path))
    (2, [b'a', b'b'])
    """
    name = path_or_url(output)
    return divide(
        paths,
        plan=lambda sizes: (np.zeros(len(sizes), np.int32), 1),
        names=lambda _: [name],
        lock=name,
        mode="concat",
        compression=compression,
        exists=exists,
        verify=verify,
        on_corrupt=on_corrupt,
        incomplete=incomplete,
        progress=progress,
        executor=executor,
    )
