"""Writing of a TFRecord file: published whole under its final name, or appended to under a lock."""

from __future__ import annotations

import contextlib
import copy
import os
import threading
from collections.abc import Mapping
from typing import Any, Literal

from shardkeep import _core
from shardkeep._paths_in_messages import shown
from shardkeep.errors import (
    DurabilityError,
    InternalError,
    PlanError,
    ShardkeepError,
)
from shardkeep.files.durable import durability_error, durably
from shardkeep.files.kinds.special import refuse_special
from shardkeep.files.kinds.urls import display, is_url, path_or_url
from shardkeep.files.locks.lock import FileLock, IfUnsafe
from shardkeep.files.owner import OwnProcess
from shardkeep.files.publish import publish_raw
from shardkeep.tfrecord.append import cut, cut_torn_tail, open_to_append
from shardkeep.tfrecord.example.example import encode_example
from shardkeep.tfrecord.example.row_columns import as_columns
from shardkeep.tfrecord.format.compression import WrittenCompression, written_compression
from shardkeep.tfrecord.format.frame import as_record
from shardkeep.tfrecord.reader import lock_of_file
from shardkeep.tfrecord.unclosed import ReportedWriter, describe_loss

__all__ = ["RecordSink", "Writer"]

_LEVEL = 6


class RecordSink:
    """Output of records to a descriptor, for all threads of the process that opened it.

    Errors of the operating system become `DurabilityError`, and each later call raises the first one again:
    the file then lacks records, so nothing may be appended or published. Calls in a forked child raise an
    error. After `finish` or `give_up` the descriptor is never used again, even if other threads still write.
    """

    def __init__(self, fd: int, path: str, *, compression: Any) -> None:
        self._frames = _core.FrameWriter(fd, path, compression=compression, level=_LEVEL)
        self._path = path
        self._process = OwnProcess(path)
        self._mutex = threading.Lock()
        self._finished = False
        self._failure: ShardkeepError | None = None

    @property
    def records(self) -> int:
        """Records written so far."""
        return self._frames.records

    def write(self, record: bytes) -> None:
        """Write one record; it may stay in memory until `finish`."""
        self._process.check()
        record = as_record(record)
        with self._mutex:
            self._check_open()
            try:
                self._frames.write(record)
            except OSError as error:
                raise self._failed(error) from error

    def write_rows(self, names: list[str], columns: list[Any], rows: int) -> None:
        """Write an Example for each row; see `as_columns` for the columns."""
        self._process.check()
        with self._mutex:
            self._check_open()
            try:
                self._frames.write_rows(names, columns, rows)
            except OSError as error:
                raise self._failed(error) from error

    def flush(self) -> None:
        """Write the records so far to the operating system; a compressor keeps its buffered input."""
        self._process.check()
        with self._mutex:
            self._check_open()
            try:
                self._frames.flush()
            except OSError as error:
                raise self._failed(error) from error

    def finish(self) -> None:
        """Write everything to the operating system, with the trailer of a compressed stream; once."""
        self._process.check()
        with self._mutex:
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
        """Stop writing, and discard the buffered records."""
        if not self._process.is_forked:  # where a missing thread may hold the lock
            with self._mutex:
                self._finished = True

    def _check_open(self) -> None:
        if self._finished:
            raise PlanError(f"{self._path}: the writer is closed", path=self._path)
        if self._failure is not None:
            raise copy.copy(self._failure)

    def _failed(self, error: OSError) -> ShardkeepError:
        failure = error if isinstance(error, ShardkeepError) else durability_error("write", self._path, error)
        self._failure = copy.copy(failure)  # without the traceback, whose frames reference the file
        return failure


class Writer(ReportedWriter):
    """Write a TFRecord file.

    Parameters
    ----------
    path : str or os.PathLike
        The final name; its folder must exist. Or the URL of an object in a remote store, which is written to
        a local file first, and uploaded by `close`.
    compression : {None, "gzip", "zlib"}
        Compression of the whole file. A compressed file has no random access.
    exists : {"fail", "replace", "append"}
        What to do if the file exists. "append" continues it (and creates a missing one), after reading and
        checking the whole file; a torn tail of a killed writer is cut off first. A gzip file gets another
        member; a zlib file is refused, since TensorFlow would not read the new part.
    lock_timeout_s : float or None
        How long to wait for another writer, or for a ``Reader(path, lock=True)``; None waits without limit.

    Raises
    ------
    ExistsError
        The file exists and ``exists="fail"``. With every value: the path is that of a folder, a device, a
        named pipe or a socket.
    LockTimeoutError
        Another writer or a locked reader holds the lock; the message names host, process and command. Raised
        before any byte changes.
    LockError
        ``exists="append"`` on a file system where a lock would exclude no other process.
    NotFoundError
        The folder does not exist.
    DurabilityError
        Full disk, quota, no permission, I/O error.
    CorruptRecordError, TruncatedFileError, CorruptDataError
        ``exists="append"`` and the file has damage other than a torn tail, which an append would hide. Also
        for a gzip file that is torn in its first member. The file is unchanged.
    RepairRefusedError
        ``exists="append"`` and whole records follow a torn one; a cut there would lose them. The message has
        the record and its offset, and the file is unchanged.

    Notes
    -----
    With "fail" and "replace" the file appears under its name when the writer is closed without an error:
    whole and synced, or not at all. Use the writer in a ``with`` statement; after an exception there, nothing
    is published. A writer that is dropped, or open when the interpreter exits, is aborted with a
    `RuntimeWarning` that has the number of records.

    With "append" records are written directly to the file. After a kill it holds whole records and perhaps a
    torn one, which the next "append" removes; readers report it until then. A last record of which a power
    cut left only NULs after the header is removed too. After a write error the torn record is cut off when
    the writer is closed. A gzip file cannot be cut within a member: the whole torn member is removed, which
    is everything that the killed or failed writer wrote.

    After a write error (`DurabilityError`) every later call raises it again, `close` too, and with "fail" and
    "replace" nothing is published: records are missing, and free space does not restore them.

    With "append" and "replace" the lock of a symbolic link is that of its target. Where a lock excludes no
    other process, "fail" and "replace" only warn: a file that appears whole needs no lock, and of several
    writers with "fail" one publishes and the others raise `ExistsError`.

    Several threads may write; each record is written whole, or `write` raises `PlanError` since another
    thread has closed the writer. In a forked child the calls raise an error; the parent's file and lock are
    unaffected by the end of the child.

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
        compression: WrittenCompression | None = None,
        exists: Literal["fail", "replace", "append"] = "fail",
        lock_timeout_s: float | None = 0.0,
    ) -> None:
        self.path = path_or_url(path)
        self._process = OwnProcess(self.path)
        self._packing = packing = written_compression(compression)
        if exists not in ("fail", "replace", "append"):
            raise PlanError(f'exists={exists!r} is not valid: use "fail", "replace" or "append"')
        if is_url(self.path) and exists == "append":
            name = display(self.path)
            message = (
                f'{name}: exists="append" needs a local file, since an object cannot be continued: write'
            )
            raise PlanError(f"{message} another object, and name both to the readers", path=name)
        refuse_special(self.path)
        with contextlib.ExitStack() as stack:
            unsafe: IfUnsafe = "refuse" if exists == "append" else "warn"
            # With "fail" the target of a link is not used: the link itself occupies the name.
            locked = FileLock if exists == "fail" else lock_of_file
            if not is_url(self.path):  # the creation of an object is exclusive itself
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
        # Acquired once and never released: one of several closing threads ends the writer.
        self._ending = threading.Lock()
        self._begin()

    @property
    def records(self) -> int:
        """Records written so far by this writer."""
        return self._sink.records

    def write(self, record: bytes) -> None:
        """Write one record.

        Parameters
        ----------
        record : bytes-like
            Any bytes; may be empty.

        Raises
        ------
        SchemaError
            `record` is not bytes-like.
        PlanError
            The writer is closed.
        DurabilityError
            A write fails, or failed at an earlier call.
        LockError
            In a forked child.
        """
        self._sink.write(record)

    def write_example(self, features: Mapping[str, Any]) -> None:
        """Write one `tf.train.Example`; see `encode_example` for the values.

        Parameters
        ----------
        features : mapping of str to value
            Values as `encode_example` takes them.

        Raises
        ------
        SchemaError
            An Example cannot hold a value. Nothing is written then.
        PlanError, DurabilityError, LockError
            As `write`.
        """
        self.write(encode_example(features))

    def write_examples(self, columns: Any) -> None:
        """Write one `tf.train.Example` for each row of some columns; faster than single calls.

        Parameters
        ----------
        columns : mapping of str to array, list or Ragged, or Arrow table
            Columns with the same number of rows along the first axis. Integers and booleans become
            ``int64_list``, floats ``float_list`` (float32), bytes and str ``bytes_list``. The rows of an
            array of shape ``(rows, *shape)`` are stored flat; those of a `Ragged`, with their own lengths.
            A pyarrow Table, a Polars DataFrame, and others with ``__arrow_c_stream__`` (pip install
            'shardkeep[arrow]'): lists and tensors are stored flat, and a null is a feature without values.

        Raises
        ------
        SchemaError
            Columns have different lengths, or an Example cannot hold the values. Nothing is written then.

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
        """Write the records so far to the operating system, so that `follow` yields them.

        Useful with "append" and without compression: otherwise the file does not exist before `close`.
        Nothing is synced; flushed records survive a kill of this process, not a power cut.

        Raises
        ------
        PlanError, DurabilityError, LockError
            As `write`.
        """
        if not self._ending.locked():
            self._sink.flush()

    def close(self) -> None:
        """Finish the file; with "fail" and "replace", publish it.

        Raises
        ------
        ExistsError
            With "fail", another process has created the file in the meantime.
        DurabilityError
            A write or sync fails. With "fail" and "replace" nothing is published.
        LockError
            In a forked child.
        """
        self._end(None)

    def abort(self) -> None:
        """Discard the file; with "append", the whole records written so far stay."""
        self._end(InternalError("aborted"))

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._end(error)

    def __repr__(self) -> str:
        try:
            records = f", {self.records:,} records"
        except RuntimeError:  # another thread writes at this moment
            records = ""
        return f"<Writer {shown(self.path)!r}{records}, {'closed' if self._ending.locked() else 'open'}>"

    def _end(self, error: BaseException | None) -> None:
        if not self._ending.acquire(blocking=False):
            return
        self._finished()
        try:
            if self._process.is_forked:
                # The file belongs to the parent, which may be writing: only the descriptor is the child's.
                if error is None:
                    self._process.check()
            elif error is None or self._appending is not None:
                self._finish()
            else:
                self._sink.give_up()
        except BaseException as failure:
            self._stack.__exit__(type(failure), failure, failure.__traceback__)
            raise
        # The publication receives the error and removes its temporary file.
        self._stack.__exit__(type(error) if error else None, error, None)

    def _loss(self) -> str:
        return describe_loss(self.path, self.records, published=self._appending is None)

    def _finish(self) -> None:
        try:
            self._sink.finish()
        except DurabilityError:
            if self._appending is not None:
                with contextlib.suppress(OSError, ShardkeepError):
                    self._remove_torn_tail(self._appending)
            raise
        if self._appending is not None:
            with durably("sync", self.path):
                os.fsync(self._appending)

    def _remove_torn_tail(self, fd: int) -> None:
        if self._packing is None:
            cut_torn_tail(fd, self.path, written_from=self._size_bytes)
        else:
            cut(fd, self.path, self._size_bytes)
