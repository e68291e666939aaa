"""Divide the records of TFRecord files into other files."""

from __future__ import annotations

import os
from concurrent.futures import Executor
from functools import partial

from shardkeep.files.paths import PathsLike
from shardkeep.files.publish import Exists
from shardkeep.jobs.division.assignment import Mode, assign
from shardkeep.jobs.division.divide import Progress, SplitReport, divide
from shardkeep.tfrecord.shard_names import early_name, lock_name, shard_names

__all__ = ["split"]


def split(
    paths: PathsLike,
    pattern: str | os.PathLike[str],
    *,
    shards: int | None = None,
    shard_bytes: int | None = None,
    shard_records: int | None = None,
    mode: Mode = "contiguous",
    compression: str | None = None,
    exists: Exists = "fail",
    verify: bool = True,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> SplitReport:
    """Divide the records of some files into others; those appear together, or not at all.

    Parameters
    ----------
    paths : path, pattern, or iterable of them
        TFRecord files, compressed or not; their records are taken in this order.
    pattern : str or os.PathLike
        Of the new names: ``"train-{shard:05d}-of-{shards:05d}.tfrecord"``.
    shards : int
        How many files. There may be more than records; then some are empty.
    shard_bytes : int
        Instead: no file is longer, but for one that has a single record. Not with "round-robin".
    shard_records : int
        Instead: no file has more records. Not with "balanced".
    mode : {"contiguous", "round-robin", "balanced"}
        "contiguous": each file gets a run of consecutive records, and all files in order are the input.
        The numbers of records differ by at most one with `shards`. "round-robin": record i goes to file
        i modulo the number of files. "balanced": the largest records first, each to the file that is
        smallest so far; sizes differ by at most the largest record. In each file records keep their order.
    compression : {None, "gzip", "zlib"}
        Of the new files; whatever the old ones have, None is none. The sizes above are those without.
    exists : {"fail", "replace"}
        What to do if one of the new files is there. It may be one of `paths`.
    verify : bool
        Check every payload's checksum. Those of the lengths are checked in any case.
    progress : callable, optional
        Called with the bytes of records done and of all.
    executor : concurrent.futures.Executor, optional
        Who does the work: threads of this process by default. Its workers must see the same files.

    Returns
    -------
    SplitReport

    Raises
    ------
    CorruptRecordError, TruncatedFileError
        The input is damaged: path, record and offset are in the message.
    CorruptDataError
        A file changed meanwhile, or what was written is not what was read.
    FormatError, NotFoundError
        An input is of another kind, or not there.
    PlanError
        The arguments contradict each other, or the pattern does not give each file a name of its own.
    ExistsError, LockTimeoutError, DurabilityError
        As for `shardkeep.tfrecord.ShardWriter`.

    In all these cases nothing is left of the new files.

    Notes
    -----
    Frames are copied as they are, not decoded. Everything is read back from the new files before they get
    their names: every checksum must hold there, and be that of the record which was read.

    The same input gives the same files. Two runs for one pattern exclude each other. Any number of files
    takes two descriptors a thread. Memory: about 30 bytes a record, and at most 64 MiB a thread.

    After a kill nothing has a new name unless it came in the moment of the renames; then a first part has,
    each file whole, and the last file proves the set.

    Examples
    --------
    >>> import os, tempfile
    >>> from shardkeep.tfrecord import Reader, Writer
    >>> folder = tempfile.mkdtemp()
    >>> with Writer(os.path.join(folder, "all.tfrecord")) as w:
    ...     for i in range(5):
    ...         w.write(b"%d" % i)
    >>> pattern = os.path.join(folder, "part-{shard}-of-{shards}.tfrecord")
    >>> report = split(os.path.join(folder, "all.tfrecord"), pattern, shards=2)
    >>> [(os.path.basename(one.path), one.records, list(Reader(one.path))) for one in report.outputs]
    [('part-0-of-2.tfrecord', 2, [b'0', b'1']), ('part-1-of-2.tfrecord', 3, [b'2', b'3', b'4'])]
    """
    name = os.fspath(pattern)
    if shards is None:
        early_name(name, 0)
    else:
        shard_names(name, shards)
    return divide(
        paths,
        plan=partial(assign, shards=shards, shard_bytes=shard_bytes, shard_records=shard_records, mode=mode),
        names=partial(shard_names, name),
        lock=lock_name(name, shards),
        mode=mode,
        compression=compression,
        exists=exists,
        verify=verify,
        progress=progress,
        executor=executor,
    )
