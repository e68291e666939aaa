"""Indexes of TFRecord files: the offset of each record, from a scan or from a stored index file."""

from __future__ import annotations

import contextlib
import functools
import glob
import os
import stat
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import overload

import numpy as np

from shardkeep.errors import CorruptDataError, NotFoundError, ShardkeepError
from shardkeep.files.kinds.kind import require_kind
from shardkeep.files.kinds.urls import display, is_pattern, is_url, local_path, path_or_url, url_parent
from shardkeep.files.paths import expand
from shardkeep.files.remote.store import ObjectInfo, stat_many
from shardkeep.files.threads.work import Tick, Work, WorkFile
from shardkeep.files.user_warning import warn_user
from shardkeep.progress import Progress
from shardkeep.tfrecord.format.frame import OVERHEAD_BYTES
from shardkeep.tfrecord.index import store
from shardkeep.tfrecord.index.fingerprint import sample_blocks
from shardkeep.tfrecord.index.remote import build_remote
from shardkeep.tfrecord.index.scan import Starts, frame_starts, scan_in_parts, thread_count
from shardkeep.tfrecord.index.together import store_together

__all__ = ["Index", "build_index", "find_index", "frame_starts", "load_index", "load_indexes"]

Path = str | os.PathLike[str]

# A scan of a smaller file costs no more than reading and checking an index file.
_WORTH_BYTES = 1 << 20
# The search for an index file takes 70 us on a local file system; on a remote one it is mostly waiting.
_QUICK_S = 0.002
_SEARCH_THREADS = 16
_FETCHES = 8


@dataclass(frozen=True, eq=False)
class Index:
    """Start offsets of the frames of a TFRecord file.

    Attributes
    ----------
    starts : ndarray of uint64, shape (records + 1,), read-only
        The offset in bytes of each frame, and last the size of the file.

    Notes
    -----
    An index holds no path: a copy of the file has an equal index, and `==` compares the offsets.

    Examples
    --------
    >>> index = Index(np.array([0, 17, 33, 51], dtype=np.uint64))
    >>> index.records, index.size_bytes, index.lengths
    (3, 51, array([1, 0, 2], dtype=uint64))
    """

    starts: Starts

    def __post_init__(self) -> None:
        starts = np.asarray(self.starts, dtype=np.uint64).view()
        starts.flags.writeable = False
        object.__setattr__(self, "starts", starts)

    @property
    def records(self) -> int:
        """Number of records in the file."""
        return len(self.starts) - 1

    @property
    def size_bytes(self) -> int:
        """Size of the file in bytes."""
        return int(self.starts[-1])

    @property
    def lengths(self) -> Starts:
        """Length in bytes of each record, without its frame: uint64, shape (records,)."""
        return np.diff(self.starts) - np.uint64(OVERHEAD_BYTES)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Index):
            return NotImplemented
        return np.array_equal(self.starts, other.starts)

    def __hash__(self) -> int:
        return hash((self.records, self.size_bytes))

    def __len__(self) -> int:
        return self.records

    def __reduce__(self) -> tuple[type[Index], tuple[Starts]]:
        return Index, (self.starts,)

    def __repr__(self) -> str:
        return f"<Index of {self.records:,} records in {self.size_bytes:,} bytes>"


@overload
def build_index(  # type: ignore[overload-overlap]  # a str is an iterable of str too
    paths: Path,
    *,
    verify: bool = False,
    threads: int | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Index: ...


@overload
def build_index(
    paths: Iterable[Path],
    *,
    verify: bool = False,
    threads: int | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> list[Index]: ...


def build_index(
    paths: Path | Iterable[Path],
    *,
    verify: bool = False,
    threads: int | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Index | list[Index]:
    """Scan files for the start of each record, and store the indexes for later readers.

    Parameters
    ----------
    paths : path, or iterable of paths and patterns
        Uncompressed TFRecord files, or URLs of them. For one path the result is an `Index`, for an iterable a
        list of them.
    verify : bool
        Check the CRC of every payload too. The headers' are checked in any case.
    threads : int, optional
        Number of files that are scanned at once; by default the number of processors, with URLs 8.
    executor : concurrent.futures.Executor, optional
        Its workers scan the files and store their indexes instead of threads; see `shardkeep.engine`.
    progress : callable, optional
        Called as ``progress(done_bytes, total_bytes)`` in the calling thread, a few times a second and at the
        end. An exception that it raises ends the scan.

    Returns
    -------
    Index or list of Index

    Raises
    ------
    CorruptRecordError, TruncatedFileError
        A file is damaged; the error has record number and offset, and names the first damaged file.
    FormatError
        A file is of another kind, or compressed, so that its records have no offsets.
    NotFoundError
        A file does not exist, also for a worker of the executor, or a pattern has no match.
    EngineError
        The executor did not finish a task.
    DurabilityError
        An index cannot be stored, neither in the folder of its file nor in the cache folder: no permission,
        full disk. The other indexes may be stored.
    RemoteError, MissingExtraError
        A URL cannot be read.

    Notes
    -----
    Files are always scanned, even if an index is stored. The index is written to ``<path>.skidx``, or if that
    fails, to a cache folder (``$SHARDKEEP_INDEX_DIR``, by default ``$XDG_CACHE_HOME/shardkeep/index``). With
    the environment variable ``SHARDKEEP_INDEX=cache`` it is always written to the cache folder, with
    ``SHARDKEEP_INDEX=off`` no index is stored or used, only returned. The index of a file that changes during
    the scan is returned and not stored, with a `RuntimeWarning`.

    The index of a URL is uploaded to ``<url>.skidx`` in the same way, and those of several in a folder also
    to one object there, ``all.skidx``. If the store refuses an index, it is only stored in the cache of the
    host (``$SHARDKEEP_CACHE_DIR``), with a `RuntimeWarning`.

    An index file appears whole or not at all: any number of processes may build at once, while others read.
    It is used only while it matches the file: if the file has changed, it is built again, and if the file has
    only grown, the scan continues from its old end.

    Examples
    --------
    >>> import os, tempfile
    >>> from shardkeep.tfrecord import Writer
    >>> path = os.path.join(tempfile.mkdtemp(), "train.tfrecord")
    >>> with Writer(path) as w:
    ...     for record in (b"a", b"bb", b""):
    ...         w.write(record)
    >>> build_index(path)
    <Index of 3 records in 51 bytes>
    >>> build_index([path])[0].starts
    array([ 0, 17, 35, 51], dtype=uint64)
    """
    if isinstance(paths, (str, os.PathLike)):
        return build_index(
            [_one_path(paths)], verify=verify, threads=threads, executor=executor, progress=progress
        )[0]
    names = expand(paths)
    remote = stat_many([name for name in names if is_url(name)])
    sizes = {info.url: info.size_bytes for info in remote}
    files = [WorkFile(name, sizes[name] if is_url(name) else _size_bytes(name)) for name in names]
    work = Work(progress, sum(file.size_bytes for file in files), executor)
    count = _FETCHES if remote and threads is None else thread_count(threads)
    found = work.run(functools.partial(_build, verify), files, count)
    warnings = {what: why for *_, what, why in reversed(found) if what}  # one for each store
    together = [stored for _, stored, _, _ in found if stored is not None]
    if together and not warnings and store.index_mode(automatic=False) == "beside":
        try:
            store_together(together)
        except ShardkeepError as error:
            warnings["each shard has its index, but there is no object with those of all"] = str(error)
    for what, why in reversed(warnings.items()):
        warn_user(f"{what}: {why}")
    return [Index(starts) for starts, *_ in found]


def load_index(path: Path) -> Index:
    """Return the index of one file; see `load_indexes`."""
    return load_indexes([path])[0]


def load_indexes(paths: Sequence[Path], *, threads: int | None = None) -> list[Index]:
    """Return the index of each file: a stored one that matches, or that of a scan, which is then stored.

    Parameters
    ----------
    paths : sequence of paths
        Uncompressed TFRecord files.
    threads : int, optional
        Number of files that are processed at once; by default the number of processors.

    Raises
    ------
    CorruptRecordError, TruncatedFileError, FormatError, NotFoundError
        As `build_index`.

    Notes
    -----
    A file of less than a megabyte is scanned every time, and nothing is stored for it.
    """
    names = [local_path(path) for path in paths]
    threads = thread_count(threads)
    sizes = [_size_bytes(name) for name in names]
    small = [i for i, size_bytes in enumerate(sizes) if size_bytes < _WORTH_BYTES]
    large = [i for i, size_bytes in enumerate(sizes) if size_bytes >= _WORTH_BYTES]
    work = Work(None, 0)
    found = dict(zip(small, frame_starts([names[i] for i in small], threads=threads), strict=True))
    stored = work.run(lambda i, _: _find(names[i]), large, max(threads, _SEARCH_THREADS), quick_s=_QUICK_S)
    found.update((i, starts) for i, starts in zip(large, stored, strict=True) if starts is not None)
    missing = [i for i in large if i not in found]
    scanned = work.run(
        lambda i, tick: _scan_and_save(names[i], verify=False, rebuild=False, tick=tick), missing, threads
    )
    found.update((i, starts) for i, (starts, _) in zip(missing, scanned, strict=True))
    return [Index(found[i]) for i in range(len(names))]


def find_index(path: str) -> Starts | None:
    """Return the stored offsets that `load_index` would use for a file; nothing is scanned or stored."""
    return _find(path) if _size_bytes(path) >= _WORTH_BYTES else None


def _one_path(path: Path) -> str:
    name = path_or_url(path)
    if is_pattern(name) if is_url(name) else glob.has_magic(name) and not os.path.lexists(name):
        raise NotFoundError(f"{name}: no such file; pass a pattern in a list, [{name!r}]", path=name)
    return name


def _size_bytes(path: str) -> int:
    try:
        status = os.stat(path)
    except OSError:
        return 0  # the scan raises the error
    if not stat.S_ISREG(status.st_mode):
        # Checked before the open, which would block on a pipe without a writer; a device has no size.
        require_kind(path, "tfrecord")
    return status.st_size


# -- one file -------------------------------------------------------------------------------------------


def _find(path: str) -> Starts | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None  # the scan raises the error
    try:
        status = os.fstat(fd)
        starts = store.find(path, fd, status)
    finally:
        os.close(fd)
    return starts if starts is not None and int(starts[-1]) == status.st_size else None


def _build(
    verify: bool, file: WorkFile, tick: Tick
) -> tuple[Starts, tuple[ObjectInfo, bytes] | None, str, str]:
    """Return offsets, for a URL the index, and if it is not where the caller expects it, what and why."""
    if is_url(file.path):
        starts, stored, error = build_remote(file.path, verify=verify, tick=tick)
        what = f"indexes of {display(url_parent(file.path))} are only in the cache of this host"
        return (starts, stored, "", "") if error is None else (starts, None, what, str(error))
    starts, is_stored = _scan_and_save(file.path, verify=verify, rebuild=True, tick=tick)
    what = f"{file.path!r} changed during the scan, and its index is not stored"
    return (starts, None, "", "") if is_stored else (starts, None, what, "index it again")


def _scan_and_save(path: str, *, verify: bool, rebuild: bool, tick: Tick) -> tuple[Starts, bool]:
    """Scan a file, or only its new part unless `rebuild`, and store the index of the whole file.

    Returns
    -------
    ndarray of uint64
    bool
        False if the file changed during the scan, so that the index that was requested is not stored.
    """
    with contextlib.ExitStack() as stack:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, fd)
            status = os.fstat(fd)
            fingerprint, _ = sample_blocks(fd, status.st_size, status.st_mtime_ns)
        except OSError:
            # Missing, not a file, or no descriptor left: the scan raises, and has a budget of descriptors.
            return frame_starts([path], verify=verify, threads=1)[0], True
        known = None if rebuild else store.find(path, fd, status)
        try:
            starts, parts = scan_in_parts(path, known, verify=verify, tick=tick)
        except CorruptDataError:
            if known is None:
                raise
            # The old part may have changed in spite of the fingerprint: scan the whole file.
            starts, parts = scan_in_parts(path, None, verify=verify, tick=tick)
        saved = store.save(path, status, fingerprint, starts, automatic=not rebuild)
        if saved is None and (parts > 1 or known is not None) and _is_another(path, status):
            # The file was replaced during the scan: the parts may be of two files.
            starts = frame_starts([path], verify=verify, threads=1)[0]
        return starts, saved is not None or not rebuild or next(store.index_paths(path), None) is None


def _is_another(path: str, status: os.stat_result) -> bool:
    try:
        return not os.path.samestat(os.stat(path), status)
    except OSError:
        return False  # removed: the scanned content cannot be read again
