"""Writing a TFRecord file: whole under its final name, or appended to under a lock."""

from __future__ import annotations

import contextlib
import copy
import os
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from shardkeep import _core
from shardkeep.errors import (
    DurabilityError,
    InternalError,
    PlanError,
    ShardkeepError,
)
from shardkeep.files.lock import FileLock, IfUnsafe
from shardkeep.files.own_process import OwnProcess
from shardkeep.files.pending import durability_error, durably
from shardkeep.files.publish import publish_raw
from shardkeep.tfrecord.append import cut, cut_torn_tail, open_to_append
from shardkeep.tfrecord.example import encode_example
from shardkeep.tfrecord.example_columns import as_columns
from shardkeep.tfrecord.reader import lock_of_file, written_compression

__all__ = ["RecordSink", "Writer"]

_LEVEL = 6


class RecordSink:
    """Records into a descriptor, from any thread of the process that opened it.

    Errors of the operating system become `DurabilityError`, and each later call raises the first one again:
    the file has a hole then, so that nothing may follow and nothing be published. A forked child is refused.
    After `finish` or `give_up` the descriptor is never touched again, whoever still writes.
    """

    def __init__(self, fd: int, path: str, *, compression: Any) -> None:
        self._frames = _core.FrameWriter(fd, path, compression=compression, level=_LEVEL)
        self._path = path
        self._process = OwnProcess(path)
        self._turn = threading.Lock()
        self._finished = False
        self._failure: ShardkeepError | None = None

    @property
    def records(self) -> int:
        """Records written so far."""
        return self._frames.records

    @property
    def is_carried(self) -> bool:
        """Whether this is a forked child's copy."""
        return self._process.is_carried

    def write(self, record: bytes) -> None:
        """Write one record; it may stay in memory until `finish`."""
        self.check_owner()
        if not isinstance(record, bytes):
            record = bytes(memoryview(record))
        with self._turn:
            self._check_open()
            try:
                self._frames.write(record)
            except OSError as error:
                raise self._failed(error) from error

    def write_rows(self, names: list[str], columns: list[Any], rows: int) -> None:
        """Write an Example for each row; see `as_columns` for what columns are."""
        self.check_owner()
        with self._turn:
            self._check_open()
            try:
                self._frames.write_rows(names, columns, rows)
            except OSError as error:
                raise self._failed(error) from error

    def flush(self) -> None:
        """Hand the whole records so far to the operating system; a compressor keeps what it holds."""
        self.check_owner()
        with self._turn:
            self._check_open()
            try:
                self._frames.flush()
            except OSError as error:
                raise self._failed(error) from error

    def finish(self) -> None:
        """Hand everything to the operating system, with the trailer of a compressed stream; once."""
        self.check_owner()
        with self._turn:
            finished, self._finished = self._finished, True
            if self._failure is not None:
                raise copy.copy(self._failure)
            if finished:
                return
            try:
                self._frames.finish()
            except OSError as error:
                raise self._failed(error) from error

    def give_up(self) -> None:
        """Write nothing any more, also not what is still in memory."""
        if not self.is_carried:  # where the turn may be held by a thread that is not there
            with self._turn:
                self._finished = True

    def check_owner(self) -> None:
        """Refuse a forked child: what the parent has buffered would be written twice."""
        self._process.check()

    def _check_open(self) -> None:
        if self._finished:
            raise PlanError(f"{self._path}: the writer is closed", path=self._path)
        if self._failure is not None:
            raise copy.copy(self._failure)

    def _failed(self, error: OSError) -> ShardkeepError:
        failure = error if isinstance(error, ShardkeepError) else durability_error("write", self._path, error)
        self._failure = copy.copy(failure)  # without the traceback, whose frames hold the file
        return failure


class Writer:
    """Write a TFRecord file.

    Parameters
    ----------
    path : str or os.PathLike
        The final name; its folder must exist.
    compression : {None, "gzip", "zlib"}
        Of the whole file. Such a file has no random access.
    exists : {"fail", "replace", "append"}
        What to do if the file is there. "append" continues it (and makes it if it is not there), after
        reading and checking the whole file; a torn tail that a killed writer left is cut off first. A gzip
        file gets another member; a zlib file is refused, since TensorFlow would not see what was appended.
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
    CorruptRecordError, TruncatedFileError, CorruptDataError
        ``exists="append"`` and the file is damaged otherwise than by a torn tail: continuing would hide that.
        Also a gzip file that is torn in its first member. The file stays as it is.
    RepairRefusedError
        ``exists="append"`` and whole records follow a torn one: to cut there would lose them. The message has
        the record and its offset, and the file stays as it is.

    Notes
    -----
    With "fail" and "replace" the file appears under its name when the writer is closed without an
    error: whole and synced, or not at all. Use it in a ``with``; an exception there publishes nothing.

    With "append" records go straight to the file. After a kill it holds whole records and perhaps a torn
    one, which the next "append" removes; readers report it until then. So it does with a last record of
    which a power cut left nothing but NULs behind the header. After a write error the torn record is cut off
    when the writer is closed. A gzip file has no place to cut within a member: the whole torn one is removed,
    which is all that the killed or failed writer wrote.

    After a write error (`DurabilityError`) every later call raises it again, `close` too, and with "fail" and
    "replace" nothing is published: records are missing, and making room does not bring them back.

    With "append" and "replace" the lock of a symbolic link is that of the file which it leads to.

    Where a lock excludes nobody, "fail" and "replace" only warn: a file that appears whole needs no lock, and
    of several writers with "fail" one gets the name and the others `ExistsError`.

    Several threads may write; each record goes in whole, or `write` raises `PlanError` since another thread
    has closed the writer. A writer that was carried across `fork` refuses; however it ends in the child, the
    parent's file and lock are left alone.

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
        self._packing = packing = written_compression(compression)
        if exists not in ("fail", "replace", "append"):
            raise PlanError(f'exists={exists!r} means nothing here: use "fail", "replace" or "append"')
        with contextlib.ExitStack() as stack:
            unsafe: IfUnsafe = "refuse" if exists == "append" else "warn"
            # Under "fail" nothing behind a link is touched: the link itself has the name.
            locked = FileLock if exists == "fail" else lock_of_file
            stack.enter_context(locked(self.path, timeout_s=lock_timeout_s, if_unsafe=unsafe))
            if exists == "append":
                self._file: Any = None
                fd = open_to_append(self.path, packing)
                stack.callback(os.close, fd)
                self._appending: int | None = fd
                self._size_bytes = os.fstat(fd).st_size
            else:
                self._file = stack.enter_context(
                    publish_raw(self.path, exists="fail" if exists == "fail" else "replace")
                )
                fd = self._file.fileno()
                self._appending = None
            self._sink = RecordSink(fd, self.path, compression=packing)
            self._stack = stack.pop_all()
        # Taken once and for good: of several threads that close it, one ends it.
        self._ending = threading.Lock()

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
        self._sink.write_rows(*as_columns(columns))

    def flush(self) -> None:
        """Hand the records written so far to the operating system, so that `follow` yields them.

        It makes sense with "append" and without compression: otherwise there is no file to follow before
        `close`. Nothing is synced; what was flushed survives the kill of this process, not a power cut.
        """
        if not self._ending.locked():
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
        return f"<Writer {self.path!r}, {'closed' if self._ending.locked() else 'open'}>"

    def _end(self, error: BaseException | None) -> None:
        if not self._ending.acquire(blocking=False):
            return
        try:
            if self._sink.is_carried:
                # The file is the parent's, who may be in the middle of a write: only the descriptor is ours.
                if error is None:
                    self._sink.check_owner()
            elif error is None or self._appending is not None:
                self._finish()
            else:
                self._sink.give_up()
        except BaseException as failure:
            self._stack.__exit__(type(failure), failure, failure.__traceback__)
            raise
        # The publication sees the error and takes its temporary file back.
        self._stack.__exit__(type(error) if error else None, error, None)

    def _finish(self) -> None:
        try:
            self._sink.finish()
        except DurabilityError:
            if self._appending is not None:
                with contextlib.suppress(OSError, ShardkeepError):
                    self._take_back(self._appending)
            raise
        if self._appending is not None:
            with durably("sync", self.path):
                os.fsync(self._appending)

    def _take_back(self, fd: int) -> None:
        if self._packing is None:
            cut_torn_tail(fd, self.path, written_from=self._size_bytes)
        else:
            cut(fd, self.path, self._size_bytes)
