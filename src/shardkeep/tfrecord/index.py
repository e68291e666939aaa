"""Where the records of a file start: the scan, and what is kept of it."""

from __future__ import annotations

import contextlib
import glob
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from shardkeep.errors import CorruptDataError, NotFoundError
from shardkeep.files.kind import require_kind
from shardkeep.files.paths import expand
from shardkeep.tfrecord import index_store
from shardkeep.tfrecord.index_fingerprint import OVERHEAD_BYTES, take
from shardkeep.tfrecord.index_scan import Starts, frame_starts, processors, scan_in_parts
from shardkeep.tfrecord.index_work import Work

__all__ = ["Index", "build_index", "frame_starts", "load_index", "load_indexes"]

Path = str | os.PathLike[str]
Progress = Callable[[int, int], object]

# A scan of less costs no more than to read an index file and to check whether it fits.
_WORTH_BYTES = 1 << 20
# Looking for index files is waiting where the file system is far away, and takes 70 us where it is not.
_QUICK_S = 0.002
_LOOKING = 16


@dataclass(frozen=True, eq=False)
class Index:
    """Where the frames of a TFRecord file start.

    Attributes
    ----------
    starts : ndarray of uint64, shape (records + 1,), read-only
        The offset in bytes of each frame, and at the end that of the end of the file.

    Notes
    -----
    It holds no path: the same file elsewhere has the same index, and `==` compares the offsets.

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
        """How many records the file has."""
        return len(self.starts) - 1

    @property
    def size_bytes(self) -> int:
        """How large the file is."""
        return int(self.starts[-1])

    @property
    def lengths(self) -> Starts:
        """The length in bytes of each record, without its frame: uint64, shape (records,)."""
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
    paths: Path, *, verify: bool = False, threads: int | None = None, progress: Progress | None = None
) -> Index: ...


@overload
def build_index(
    paths: Iterable[Path],
    *,
    verify: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[Index]: ...


def build_index(
    paths: Path | Iterable[Path],
    *,
    verify: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Index | list[Index]:
    """Scan files for where their records start, and store that for whoever opens them next.

    Parameters
    ----------
    paths : path, or iterable of paths and patterns
        Uncompressed TFRecord files. One path gives an `Index`, an iterable a list of them.
    verify : bool
        Check the CRC of every payload too. The headers' are checked in any case.
    threads : int, optional
        How many files are scanned at once; by default as many as there are processors.
    progress : callable, optional
        Called as ``progress(done_bytes, total_bytes)`` in the calling thread, a few times a second and at the
        end. What it raises ends the scan.

    Returns
    -------
    Index or list of Index

    Raises
    ------
    CorruptRecordError, TruncatedFileError
        Damage, with record number and offset; of several files, the first that has one.
    FormatError
        A file of another kind, or a compressed one, whose records have no offsets.
    NotFoundError
        A file, or a match of a pattern, that is not there.

    Notes
    -----
    Files are always scanned, whatever is stored. The index goes to ``<path>.skidx``, or where that cannot be
    written, to a cache folder (``$SHARDKEEP_INDEX_DIR``, by default ``$XDG_CACHE_HOME/shardkeep/index``); if
    neither can, it is still returned. With the environment variable ``SHARDKEEP_INDEX=cache`` it goes to the
    cache folder in any case, with ``SHARDKEEP_INDEX=off`` none is stored or used.

    An index file appears whole or not at all: any number of processes may build at once, while others read.
    It is used only as long as it fits: when the file has changed since, it is made again, and when the file
    has only grown, the scan goes on from its old end.

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
        return build_index([_one_path(paths)], verify=verify, threads=threads, progress=progress)[0]
    names = expand(paths)
    total_bytes = sum(_size_bytes(name) for name in names)
    work = Work(progress, total_bytes)
    return work.run(
        lambda name: Index(_scan_and_save(name, verify=verify, afresh=True, tick=work.tick)),
        names,
        threads or processors(),
    )


def load_index(path: Path) -> Index:
    """Return the index of one file; see `load_indexes`."""
    return load_indexes([path])[0]


def load_indexes(paths: Sequence[Path], *, threads: int | None = None) -> list[Index]:
    """Return the index of each file: the stored one if it fits, otherwise by a scan, which is then stored.

    Parameters
    ----------
    paths : sequence of paths
        Uncompressed TFRecord files.
    threads : int, optional
        How many files are looked at at once; by default as many as there are processors.

    Raises
    ------
    CorruptRecordError, TruncatedFileError, FormatError, NotFoundError
        As `build_index`.

    Notes
    -----
    A file of less than a megabyte is scanned every time, and nothing is stored for it.
    """
    names = [os.fspath(path) for path in paths]
    threads = threads or processors()
    sizes = [_size_bytes(name) for name in names]
    small = [i for i, size_bytes in enumerate(sizes) if size_bytes < _WORTH_BYTES]
    large = [i for i, size_bytes in enumerate(sizes) if size_bytes >= _WORTH_BYTES]
    work = Work(None, 0)
    found = dict(zip(small, frame_starts([names[i] for i in small], threads=threads), strict=True))
    stored = work.run(lambda i: _find(names[i]), large, max(threads, _LOOKING), quick_s=_QUICK_S)
    found.update((i, starts) for i, starts in zip(large, stored, strict=True) if starts is not None)
    missing = [i for i in large if i not in found]
    scanned = work.run(
        lambda i: _scan_and_save(names[i], verify=False, afresh=False, tick=work.tick), missing, threads
    )
    found.update(zip(missing, scanned, strict=True))
    return [Index(found[i]) for i in range(len(names))]


def _one_path(path: Path) -> str:
    name = os.fspath(path)
    if glob.has_magic(name) and not os.path.lexists(name):
        raise NotFoundError(f"{name}: there is no such file; give a pattern in a list, [{name!r}]", path=name)
    return name


def _size_bytes(path: str) -> int:
    try:
        status = os.stat(path)
    except OSError:
        return 0  # the scan says what is wrong
    if not stat.S_ISREG(status.st_mode):
        # Before anything opens it: a pipe without a writer would be waited for, and a device has no size.
        require_kind(path, "tfrecord")
    return status.st_size


# -- one file -------------------------------------------------------------------------------------------


def _find(path: str) -> Starts | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None  # the scan says what is wrong
    try:
        status = os.fstat(fd)
        starts = index_store.find(path, fd, status)
    finally:
        os.close(fd)
    return starts if starts is not None and int(starts[-1]) == status.st_size else None


def _scan_and_save(path: str, *, verify: bool, afresh: bool, tick: Callable[[int], None]) -> Starts:
    """Scan a file, or unless `afresh` what it has grown by, and store the index of all of it."""
    with contextlib.ExitStack() as stack:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, fd)
            status = os.fstat(fd)
            fingerprint, _ = take(fd, status.st_size, status.st_mtime_ns)
        except OSError:
            # Not there, no file, or no descriptor left: the scan tells, and has a budget of descriptors.
            return frame_starts([path], verify=verify, threads=1)[0]
        known = None if afresh else index_store.find(path, fd, status)
        try:
            starts, parts = scan_in_parts(path, known, verify=verify, tick=tick)
        except CorruptDataError:
            if known is None:
                raise
            # Perhaps the old part is not what it was, after all: a scan of everything will tell.
            starts, parts = scan_in_parts(path, None, verify=verify, tick=tick)
        saved = index_store.save(path, status, fingerprint, starts, unasked=not afresh)
        if saved is None and (parts > 1 or known is not None) and _is_another(path, status):
            # Replaced meanwhile: the parts may be of two files.
            return frame_starts([path], verify=verify, threads=1)[0]
        return starts


def _is_another(path: str, status: os.stat_result) -> bool:
    try:
        return not os.path.samestat(os.stat(path), status)
    except OSError:
        return False  # removed; what was scanned is all there is
