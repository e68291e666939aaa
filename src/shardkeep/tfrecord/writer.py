"""Writing a TFRecord file: whole under its final name, or appended to under a lock."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from shardkeep import _core
from shardkeep.errors import (
    CorruptDataError,
    CorruptRecordError,
    InternalError,
    LockError,
    PlanError,
    ShardkeepError,
    TruncatedFileError,
)
from shardkeep.files.lock import FileLock, IfUnsafe
from shardkeep.files.pending import durability_error, durably
from shardkeep.files.publish import publish_raw
from shardkeep.tfrecord.example import encode_example
from shardkeep.tfrecord.example_columns import as_columns
from shardkeep.tfrecord.index import frame_starts
from shardkeep.tfrecord.reader import written_compression

__all__ = ["RecordSink", "Writer"]

_LEVEL = 6


class RecordSink:
    """Records into a descriptor, from any thread of the process that opened it.

    Errors of the operating system become `DurabilityError`; a forked child is refused.
    """

    def __init__(self, fd: int, path: str, *, compression: Any) -> None:
        self._frames = _core.FrameWriter(fd, path, compression=compression, level=_LEVEL)
        self._path = path
        self._pid = os.getpid()
        self._turn = threading.Lock()

    @property
    def records(self) -> int:
        """Records written so far."""
        return self._frames.records

    def write(self, record: bytes) -> None:
        """Write one record; it may stay in memory until `finish`."""
        self.check_owner()
        if not isinstance(record, bytes):
            record = bytes(memoryview(record))
        with self._turn:
            try:
                self._frames.write(record)
            except OSError as error:
                raise self._failed(error) from error

    def write_rows(self, names: list[str], columns: list[Any], rows: int) -> None:
        """Write an Example for each row; see `as_columns` for what columns are."""
        self.check_owner()
        with self._turn:
            try:
                self._frames.write_rows(names, columns, rows)
            except OSError as error:
                raise self._failed(error) from error

    def flush(self) -> None:
        """Hand the whole records so far to the operating system; a compressor keeps what it holds."""
        self.check_owner()
        with self._turn:
            try:
                self._frames.flush()
            except OSError as error:
                raise self._failed(error) from error

    def finish(self) -> None:
        """Hand everything to the operating system, with the trailer of a compressed stream."""
        self.check_owner()
        with self._turn:
            try:
                self._frames.finish()
            except OSError as error:
                raise self._failed(error) from error

    def check_owner(self) -> None:
        """Refuse a forked child: what the parent has buffered would be written twice."""
        if os.getpid() != self._pid:
            raise LockError(
                f"{self._path}: a writer was carried across fork; open another file in the child",
                path=self._path,
            )

    def _failed(self, error: OSError) -> ShardkeepError:
        return error if isinstance(error, ShardkeepError) else durability_error("write", self._path, error)


class Writer:
    """Write a TFRecord file.

    Parameters
    ----------
    path : str or os.PathLike
        The final name; its folder must exist.
    compression : {None, "gzip", "zlib"}
        Of the whole file. Such a file has no random access.
    exists : {"fail", "replace", "append"}
        What to do if the file is there. "append" continues it (and makes it if it is not there); a torn
        tail that a killed writer left is cut off first. A gzip file gets another member; a zlib file is
        refused, since TensorFlow would not see what was appended.
    lock_timeout_s : float or None
        How long to wait for another writer, or for a ``Reader(path, lock=True)``; None waits for ever.

    Raises
    ------
    ExistsError
        The file is there and ``exists="fail"``.
    LockTimeoutError
        Another writer has it, or a locked reader; the message names host, process and command. Raised
        before a byte changes.
    LockError
        ``exists="append"`` on a file system where a lock would exclude nobody.
    NotFoundError
        There is no such folder.
    DurabilityError
        Full disk, quota, no permission, I/O error.
    CorruptRecordError
        ``exists="append"`` and the file is damaged before its tail: continuing would hide that.

    Notes
    -----
    With "fail" and "replace" the file appears under its name when the writer is closed without an
    error: whole and synced, or not at all. Use it in a ``with``; an exception there publishes nothing.

    With "append" records go straight to the file. After a kill it holds whole records and perhaps a torn
    one, which the next "append" removes; readers report it until then. On a full disk the torn record is cut
    off at once.

    Where a lock excludes nobody, "fail" and "replace" only warn: a file that appears whole needs no lock, and
    of several writers with "fail" one gets the name and the others `ExistsError`.

    Several threads may write; each record goes in whole. A writer that was carried across `fork` refuses.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "train.tfrecord")
    >>> with Writer(path) as w:
    ...     w.write(b"any bytes")
    ...     w.write_example({"label": 3})
    ...     w.records
    2
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        compression: str | None = None,
        exists: str = "fail",
        lock_timeout_s: float | None = 0.0,
    ) -> None:
        self.path = os.fspath(path)
        packing = written_compression(compression)
        if exists not in ("fail", "replace", "append"):
            raise PlanError(f'exists={exists!r} means nothing here: use "fail", "replace" or "append"')
        with contextlib.ExitStack() as stack:
            unsafe: IfUnsafe = "refuse" if exists == "append" else "warn"
            stack.enter_context(FileLock(self.path, timeout_s=lock_timeout_s, if_unsafe=unsafe))
            if exists == "append":
                self._file: Any = None
                fd = _open_to_append(self.path, packing)
                stack.callback(os.close, fd)
                self._appending: int | None = fd
            else:
                self._file = stack.enter_context(
                    publish_raw(self.path, exists="fail" if exists == "fail" else "replace")
                )
                fd = self._file.fileno()
                self._appending = None
            self._sink = RecordSink(fd, self.path, compression=packing)
            self._stack = stack.pop_all()
        self._closed = False

    @property
    def records(self) -> int:
        """Records written so far by this writer."""
        return self._sink.records

    def write(self, record: bytes) -> None:
        """Write one record.

        Parameters
        ----------
        record : bytes-like
            Any bytes, also none.
        """
        if self._closed:
            raise PlanError(f"{self.path}: the writer is closed", path=self.path)
        self._sink.write(record)

    def write_example(self, features: Mapping[str, Any]) -> None:
        """Write one `tf.train.Example`; see `encode_example` for what it may hold."""
        self.write(encode_example(features))

    def write_examples(self, columns: Mapping[str, Any]) -> None:
        """Write one `tf.train.Example` for each row of some columns: the fast way for many.

        Parameters
        ----------
        columns : mapping of str to array, list or Ragged
            As many rows in each, along the first axis. Integers and booleans become ``int64_list``, floats
            ``float_list`` (float32), bytes and str ``bytes_list``. Of an array of shape (rows, *shape) each
            row is stored flat; of a `Ragged`, what it has.

        Raises
        ------
        SchemaError
            Columns of different lengths, or values that an Example cannot hold. Nothing is written then.

        Examples
        --------
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "table.tfrecord")
        >>> with Writer(path) as w:
        ...     w.write_examples({"x": [[1, 2], [3, 4]], "name": ["a", "b"]})
        ...     w.records
        2
        """
        if self._closed:
            raise PlanError(f"{self.path}: the writer is closed", path=self.path)
        self._sink.write_rows(*as_columns(columns))

    def flush(self) -> None:
        """Hand the records written so far to the operating system, so that `follow` yields them.

        It makes sense with "append" and without compression: otherwise there is no file to follow before
        `close`. Nothing is synced; what was flushed survives the kill of this process, not a power cut.
        """
        if not self._closed:
            self._sink.flush()

    def close(self) -> None:
        """Finish the file; with "fail" and "replace" this is the moment it appears."""
        self._end(None)

    def abort(self) -> None:
        """Give the file up; with "append", what was written so far stays, in whole records."""
        self._end(InternalError("given up"))

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(error)

    def __repr__(self) -> str:
        return f"<Writer {self.path!r}, {'closed' if self._closed else 'open'}>"

    def _end(self, error: BaseException | None) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            if error is None or self._appending is not None:
                self._finish()
        except BaseException as failure:
            self._stack.__exit__(type(failure), failure, failure.__traceback__)
            raise
        # The publication sees the error and takes its temporary file back.
        self._stack.__exit__(type(error) if error else None, error, None)

    def _finish(self) -> None:
        try:
            self._sink.finish()
        except ShardkeepError:
            if self._appending is not None:
                with contextlib.suppress(OSError, ShardkeepError):
                    _cut_torn_tail(self._appending, self.path)
            raise
        if self._appending is not None:
            with durably("sync", self.path):
                os.fsync(self._appending)


def _open_to_append(path: str, compression: Any) -> int:
    made = not os.path.exists(path)
    with durably("open", path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if made:
            with durably("make", path):
                folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
        elif os.fstat(fd).st_size:
            found = _core.sniff_compression(path)
            if found != compression:
                raise PlanError(
                    f"{path}: the file has compression={found!r}, the writer {compression!r}: give the same",
                    path=path,
                )
            if compression == "zlib":
                # TensorFlow reads the first of several zlib streams and calls it the end.
                raise PlanError(
                    f"{path}: nothing is appended to a zlib file, TensorFlow would not see it; use gzip",
                    path=path,
                )
            if compression is None:
                _cut_torn_tail(fd, path)
            else:
                # Members of a compressed file follow each other; a torn one cannot be cut off.
                for _ in _core.RecordIterator(path, compression=compression):
                    pass
        os.lseek(fd, 0, os.SEEK_END)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _cut_torn_tail(fd: int, path: str) -> None:
    """Cut off a partial last record, or the NULs that a power cut left behind the last whole one."""
    try:
        frame_starts([path])
        return
    except TruncatedFileError as error:
        whole = error.offset_bytes
    except CorruptRecordError as error:
        if error.offset_bytes is None or not _is_nul_to_the_end(fd, error.offset_bytes):
            raise
        whole = error.offset_bytes
    except CorruptDataError:
        raise
    if whole is None:
        raise InternalError(f"{path}: a torn tail without an offset", path=path)
    with durably("cut the torn tail off", path):
        os.ftruncate(fd, whole)
        os.fsync(fd)


def _is_nul_to_the_end(fd: int, offset_bytes: int) -> bool:
    while block := os.pread(fd, 1 << 20, offset_bytes):
        if block.strip(b"\0"):
            return False
        offset_bytes += len(block)
    return True
