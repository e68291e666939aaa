"""Division of TFRecord files into shards."""

from __future__ import annotations

import os
from concurrent.futures import Executor
from functools import partial

from shardkeep.files.incomplete import Incomplete
from shardkeep.files.kinds.urls import path_or_url
from shardkeep.files.paths import PathsLike
from shardkeep.files.publish import Exists
from shardkeep.files.remote.copies import accepts_urls
from shardkeep.jobs.division.assignment import Mode, Places, Sizes, assign, warn_of_odd_shards
from shardkeep.jobs.division.divide import SplitReport, divide
from shardkeep.progress import Progress
from shardkeep.tfrecord.damage import OnCorrupt
from shardkeep.tfrecord.format.compression import WrittenCompression
from shardkeep.tfrecord.shard_names import early_name, lock_name, shard_names

__all__ = ["split"]


@accepts_urls("paths")
def split(
    paths: PathsLike,
    pattern: str | os.PathLike[str],
    *,
    shards: int | None = None,
    shard_bytes: int | None = None,
    shard_records: int | None = None,
    mode: Mode = "contiguous",
    compression: WrittenCompression | None = None,
    exists: Exists = "fail",
    verify: bool = True,
    on_corrupt: OnCorrupt = "raise",
    incomplete: Incomplete = "refuse",
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> SplitReport:
    """Divide the records of TFRecord files into new files, which appear together or not at all.

    Parameters
    ----------
    paths : path, pattern, or iterable of them
        TFRecord files, compressed or not; their records are taken in this order.
    pattern : str or os.PathLike
        Pattern of the new names: ``"train-{shard:05d}-of-{shards:05d}.tfrecord"``.
    shards : int
        Number of files. With more files than records some files are empty. Pass exactly one of `shards`,
        `shard_bytes` and `shard_records`.
    shard_bytes : int
        Largest size of a file; a longer record has a file for itself. Not with "round-robin".
    shard_records : int
        Largest number of records of a file. Not with "balanced".
    mode : {"contiguous", "round-robin", "balanced"}
        "contiguous": each file gets a run of consecutive records, and all files in order are the input.
        The numbers of records differ by at most one with `shards`. "round-robin": record i goes to file
        i modulo the number of files. "balanced": the largest records first, each to the file that is
        smallest so far; sizes differ by at most the largest record. In each file records keep their order.
    compression : {None, "gzip", "zlib"}
        Compression of the new files, whatever that of the old ones. `shard_bytes` is a size without it.
    exists : {"fail", "replace"}
        What to do if one of the new files exists. It may be one of `paths`.
    verify : bool
        True to check the checksum of every payload. Those of the lengths are always checked.
    on_corrupt : {"raise", "skip", "repair"}
        What to do with a damaged record: fail, leave it out, or correct it if one bit is flipped (and fail at
        other damage). The report names each of them. Not with ``verify=False``.
    incomplete : {"refuse", "warn", "allow"}
        Treatment of a set of shards that is not whole, as for `shardkeep.Loader`.
    progress : callable, optional
        Called as ``progress(done_bytes, total_bytes)``. The total is the size of the sources, of which the
        scan, the copy and the sync have shares.
    executor : concurrent.futures.Executor, optional
        Executor of the work; by default threads of this process. Its workers must see the same files.

    Returns
    -------
    SplitReport
        Sources, new files and a digest of all records.

    Warns
    -----
    RuntimeWarning
        Shards have no record, or a record is larger than `shard_bytes`.

    Raises
    ------
    CorruptRecordError, TruncatedFileError
        A source is damaged; the message has its path, the record and the offset.
    CorruptDataError
        A source changed during the copy, or the new files do not have the records that were read.
    FormatError, NotFoundError
        A source is of another kind, or does not exist.
    PlanError
        The arguments contradict each other, the pattern yields the same name for two files, a source is named
        twice, or a set of sources ``-of-00008`` is not whole.
    ExistsError, LockTimeoutError, DurabilityError
        As for `shardkeep.tfrecord.ShardWriter`.

    After an error none of the new files exists.

    Notes
    -----
    Frames are copied unchanged, not decoded. Before the new files get their names they are read back: every
    checksum must match, and be that of the record that was read.

    Equal sources and arguments yield equal files. Two runs with one pattern exclude each other. Each thread
    opens two descriptors, whatever the number of files. Memory: about 30 bytes for each record, and at most
    64 MiB for each thread.

    After a kill no new name exists, unless the kill came during the renames. Then the first files exist, each
    of them whole; the last file is renamed last, so its existence proves the whole set.

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
    name = path_or_url(pattern)
    if shards is None:
        early_name(name, 0)
    else:
        shard_names(name, shards)

    def plan(sizes: Sizes) -> tuple[Places, int]:
        places, count = assign(
            sizes, shards=shards, shard_bytes=shard_bytes, shard_records=shard_records, mode=mode
        )
        warn_of_odd_shards(
            name,
            records=len(sizes),
            shards=count,
            shard_bytes=shard_bytes,
            largest_bytes=int(sizes.max(initial=0)),
        )
        return places, count

    return divide(
        paths,
        plan=plan,
        names=partial(shard_names, name),
        lock=lock_name(name, shards),
        mode=mode,
        compression=compression,
        exists=exists,
        verify=verify,
        on_corrupt=on_corrupt,
        incomplete=incomplete,
        progress=progress,
        executor=executor,
    )
