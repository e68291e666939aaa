"""Reading of a TFRecord file: in order, or any record by its number."""

from __future__ import annotations

import contextlib
import operator
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, BinaryIO, Literal, cast, overload

import numpy as np
import numpy.typing as npt

from shardkeep import _core
from shardkeep._summary import facts_html
from shardkeep.errors import CorruptRecordError, FormatError, LockError, PlanError, ShardkeepError
from shardkeep.files.kinds.kind import HEAD_BYTES, Compression, FileKind, identify_bytes, require_kind
from shardkeep.files.kinds.urls import display, is_url, path_or_url
from shardkeep.files.locks.lock import FileLock, IfUnsafe
from shardkeep.files.remote.cache import View
from shardkeep.quantities import human_bytes
from shardkeep.tfrecord.file_object import FileObject, is_file_object
from shardkeep.tfrecord.format.compression import compression_name
from shardkeep.tfrecord.format.file_kind import may_hold_records, with_file_kind
from shardkeep.tfrecord.index.index import load_index
from shardkeep.tfrecord.ranged_file import RangedFile

__all__ = ["Reader", "lock_of_file"]


class Reader:
    """The records of one file.

    Parameters
    ----------
    path : str, os.PathLike or binary file
        A TFRecord file; the URL of one, which is fetched into the local cache when it is iterated, or when
        that is cheaper than to read single records; or an object to read one from, as of `io.BytesIO` or
        fsspec (see `FileObject`).
    compression : {"auto", None, "gzip", "zlib", "zstd"}
        "auto" detects it from the content, not from the name. TensorFlow's "GZIP", "ZLIB" and "" are
        accepted.
    verify : bool
        Check the CRC of every payload. The CRC of every length is always checked.
    lock : bool
        Hold a shared lock (`shardkeep.files.lock`) while the file is read, which excludes Shardkeep's
        writers. Only a file that is written in place needs this: ``Writer(path, exists="append")``. A file
        that is replaced as a whole does not, and neither do several readers.
    lock_timeout_s : float or None
        How long to wait for a writer; None waits without limit.

    Raises
    ------
    NotFoundError
        The file does not exist.
    FormatError
        The file is of another kind, which the message names. Also for random access to a compressed file.
    CorruptRecordError
        A checksum does not match.
    TruncatedFileError
        The file ends inside a record or a compressed stream. TensorFlow takes some of these cases for a clean
        end; here it is always an error.
    LockTimeoutError
        With ``lock=True``: a writer holds the lock; the message names host, process and command.
    LockError
        With ``lock=True``: on this file system a lock would exclude no other process. Also for an iteration
        that continues after `fork`, since the lock stays with the parent; start another iteration in the
        child.

    Notes
    -----
    Iteration yields every record as a separate `bytes`, in file order, with constant memory. The file is read
    by offset only, so any number of readers, threads and processes may read it at once, and a reader works
    after `fork` and `pickle`; no file position is shared. Descriptors come from the process-wide budget
    (`shardkeep.files.budget`).

    With ``lock=True`` the lock is held from the first record to the end of the iteration (also an end by an
    error, by ``close()`` of the iterator or by leaving it to the garbage collector), and during each other
    call; the kernel releases it if the process is killed. It needs permission to create ``<path>.lock``; for
    a symbolic link, that of its target.

    ``len``, ``r[i]``, slices and `read_many` need the offsets of the records (8 bytes a record): from the
    index file ``<path>.skidx`` if there is one that matches, otherwise from one scan of the headers, after
    which such a file is stored if the shard has a megabyte or more (see `build_index`). If the file has
    grown, only the new part is scanned.

    Examples
    --------
    >>> import os, tempfile
    >>> from shardkeep.tfrecord import Writer
    >>> path = os.path.join(tempfile.mkdtemp(), "three.tfrecord")
    >>> with Writer(path) as w:
    ...     for record in (b"a", b"bb", b""):
    ...         w.write(record)
    >>> r = Reader(path)
    >>> list(r), len(r), r[-2], r[:2], r.read_many([2, 0, 0])
    ([b'a', b'bb', b''], 3, b'bb', [b'a', b'bb'], [b'', b'a', b'a'])
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | BinaryIO,
        *,
        compression: Compression | Literal["auto"] | None = "auto",
        verify: bool = True,
        lock: bool = False,
        lock_timeout_s: float | None = 10.0,
    ) -> None:
        self._object = FileObject(cast(BinaryIO, path)) if is_file_object(path) else None
        self._url: str | None = None
        self._view: View | None = None
        self._ranged: RangedFile | None = None
        self._path = path_or_url(cast(str, path)) if self._object is None else self._object.name
        self.verify = bool(verify)
        self.lock = bool(lock)
        if self.lock and (self._object is not None or is_url(self._path)):
            raise PlanError(f"{self._path}: only a local file has a lock; pass its path")
        self._compression: Any = "auto" if compression == "auto" else compression_name(compression)
        if self._object is None and is_url(self._path):
            self._url = self._path
            self._open_remote(self._url)
        self.lock_timeout_s = lock_timeout_s
        self._found: tuple[tuple[int, ...], Callable[..., list[bytes]] | None, int] | None = None
        if self._ranged is not None:
            return
        # Raises now for a file that is missing or of another kind.
        with self._locked():
            kind = self._kind()
        if kind.name == "other" and self._compression == "auto" and not may_hold_records(kind):
            require_kind(self._path, "tfrecord", "empty", found=kind)

    @property
    def path(self) -> str:
        """Path or URL of the file."""
        return self._path if self._url is None else display(self._url)

    @property
    def compression(self) -> Compression | None:
        """Compression of the file: None, "gzip", "zlib" or "zstd"."""
        name: Any = self._compression
        if self._ranged is not None:
            return None
        if name == "auto" and self._object is not None:
            name = self._object.records(compression="auto", verify=False).compression
        elif name == "auto":
            name = _core.sniff_compression(self._path)
        return cast("Compression | None", name)

    def __iter__(self) -> Iterator[bytes]:
        return self._locked_records() if self.lock else self._records()

    def __len__(self) -> int:
        if self._object is not None and not self._object.seekable:
            # list() calls len() too, and continues without it after a TypeError.
            raise TypeError(f"{self._path}: a file object without seek has no length: it is read once")
        with self._locked():
            return self._indexed()[1]

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return self.read_many(np.arange(*index.indices(len(self))))
        return self.read_many([operator.index(index)])[0]

    def read_many(self, indices: Iterable[int]) -> list[bytes]:
        """Return the records with these numbers, in this order.

        Parameters
        ----------
        indices : iterable of int
            Record numbers in any order, repetitions allowed; negative numbers count from the end.

        Returns
        -------
        list of bytes
            One record for each number.

        Raises
        ------
        IndexError
            A number is not valid for the file.
        FormatError
            The file is compressed as a whole, so that its records have no offsets.
        """
        with self._locked():
            return self._read_many(indices)

    def __repr__(self) -> str:
        return f"<Reader {self.path!r}>"

    def _repr_html_(self) -> str:
        facts = {}
        if self._object is None and self._url is None:
            facts["size"] = human_bytes(os.path.getsize(self._path))
            try:
                for record in self._records():
                    names = ", ".join(sorted(_core.decode_example(record)))
                    facts["first_record"] = f"{human_bytes(len(record))}: {names}"
                    break
            except ShardkeepError as error:
                facts["first_record"] = str(error)
        return facts_html(self, "path", "compression", **facts)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_found": None, "_view": None, "_ranged": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._url is not None:
            self._open_remote(self._url)

    def _open_remote(self, url: str) -> None:
        self._ranged, self._path = RangedFile(url), display(url)
        if self._ranged.starts is None or self._compression not in ("auto", None):
            self._fetch()

    def _fetch(self) -> None:
        if self._ranged is not None:
            self._path, self._view = self._ranged.fetch()
            self._ranged = None

    def _read_many(self, indices: Iterable[int]) -> list[bytes]:
        read_many, count = self._indexed()
        if read_many is None:
            raise FormatError(
                f"{self._path}: a {self.compression}-compressed file has no random access; read it in order,"
                " or write it again without compression",
                path=self._path,
            )
        try:
            if not isinstance(indices, np.ndarray):
                indices = np.fromiter(map(operator.index, indices), np.int64)
        except (TypeError, OverflowError):
            raise IndexError(
                f"{self._path}: record numbers are integers below 2^63 in a list, not {indices!r:.60}"
            ) from None
        numbers = _absolute(indices, count, self._path)
        try:
            return read_many(numbers)
        except CorruptRecordError as error:
            raise with_file_kind(error) from None

    def _read_ranges(self, numbers: npt.NDArray[np.uint64]) -> list[bytes]:
        assert self._ranged is not None
        records = self._ranged.read_many(numbers, verify=self.verify)
        if records is not None:
            return records
        self._fetch()
        return self._read_many(numbers)

    def _records(self) -> Iterator[bytes]:
        self._fetch()
        options: Any = {"compression": self._compression, "verify": self.verify}
        if self._object is not None:
            return self._guarded(self._object.records(**options))
        return self._guarded(_core.RecordIterator(self._path, **options))

    def _kind(self) -> FileKind:
        if self._object is None:
            return require_kind(self._path, "tfrecord", "empty", "other")
        head = self._object.head(HEAD_BYTES)
        return FileKind("empty", "") if head is None else identify_bytes(head)

    def _locked_records(self) -> Iterator[bytes]:
        with lock_of_file(self._path, shared=True, timeout_s=self.lock_timeout_s) as mine:
            for record in self._records():
                yield record
                if not mine.held:
                    raise LockError(
                        f"{self._path}: an iteration under a lock cannot continue after fork, since the lock"
                        " stays with the parent;"
                        " start another iteration in the child",
                        path=self._path,
                    )

    def _locked(self) -> contextlib.AbstractContextManager[object]:
        if not self.lock:
            return contextlib.nullcontext()
        return lock_of_file(self._path, shared=True, timeout_s=self.lock_timeout_s)

    def _guarded(self, records: Iterator[bytes]) -> Iterator[bytes]:
        try:
            yield from records
        except CorruptRecordError as error:
            raise with_file_kind(error) from None

    def _indexed(self) -> tuple[Callable[[npt.NDArray[np.uint64]], list[bytes]] | None, int]:
        """Return a function that reads records by number (None if compressed), and their count."""
        if self._object is not None:
            if self.compression is not None:
                return None, sum(1 for _ in self)
            file = self._object
            return partial(file.read_many, verify=self.verify), len(file.starts(verify=self.verify)) - 1
        if self._ranged is not None and self._ranged.starts is not None:
            return self._read_ranges, len(self._ranged.starts) - 1
        stat = os.stat(self._path)
        identity = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if self._found is None or self._found[0] != identity:
            if self.compression is None:
                index = load_index(self._path)
                read_many = _core.RecordFile(self._path, index.starts, verify=self.verify).read_many
                self._found = (identity, read_many, index.records)
            else:
                self._found = (identity, None, sum(1 for _ in self))
        return self._found[1], self._found[2]


def lock_of_file(
    path: str, *, shared: bool = False, timeout_s: float | None, if_unsafe: IfUnsafe = "refuse"
) -> FileLock:
    """Return the lock of the target of `path`, so that a symbolic link and its target share one.

    Messages keep the path of the caller.
    """
    lock_path = os.path.realpath(path) + ".lock" if os.path.islink(path) else None
    return FileLock(path, shared=shared, timeout_s=timeout_s, if_unsafe=if_unsafe, lock_path=lock_path)


def _absolute(wanted: npt.NDArray[Any], count: int, path: str) -> npt.NDArray[np.uint64]:
    if wanted.dtype.kind not in "iu":
        raise IndexError(f"{path}: record numbers are integers, not {wanted.dtype}")
    if wanted.ndim != 1:
        raise IndexError(f"{path}: record numbers have one dimension, not {wanted.ndim}")
    bad = (wanted < -count) | (wanted >= count)
    if bad.any():
        raise IndexError(f"{path}: record {int(wanted[bad][0])} does not exist: the file has {count}")
    return np.where(wanted < 0, wanted + count, wanted).astype(np.uint64)
