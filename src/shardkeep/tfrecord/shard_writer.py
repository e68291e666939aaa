"""Writing of a set of shards that appear together."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import os
import threading
from collections.abc import Mapping
from typing import Any

from shardkeep._paths_in_messages import shown
from shardkeep.errors import BudgetError, DurabilityError, InternalError, PlanError, UntrustedFileError
from shardkeep.files.budget import budget
from shardkeep.files.durable import durably
from shardkeep.files.file_set import FileSet
from shardkeep.files.kinds.urls import is_url, path_or_url
from shardkeep.files.leftovers import open_temporary
from shardkeep.files.locks.lock import FileLock
from shardkeep.files.owner import OwnProcess
from shardkeep.files.publish import Exists
from shardkeep.plan.checks import checked_int
from shardkeep.progress import Progress
from shardkeep.tfrecord.example.example import encode_example
from shardkeep.tfrecord.format.compression import WrittenCompression, written_compression
from shardkeep.tfrecord.format.frame import as_record
from shardkeep.tfrecord.shard_names import checked_sizes, early_name, lock_name, shard_names
from shardkeep.tfrecord.shard_sinks import BufferedSink, OpenSink, SharedBuffers, Sink, frame_bytes
from shardkeep.tfrecord.unclosed import ReportedWriter, describe_loss

__all__ = ["ShardWriter", "shard_of_key"]

_SHARDS = 8
# Share of the descriptors that the readers of the process leave for other uses.
_SHARE_OF_RESERVE = 2


class ShardWriter(ReportedWriter):
    """Write records into several files that appear together, or not at all.

    Parameters
    ----------
    pattern : str or os.PathLike
        Path with ``{shard}`` and optionally ``{shards}``, as in
        ``"train-{shard:05d}-of-{shards:05d}.tfrecord"``.
    shards : int, optional
        Number of files; 8 if none of the three is passed. Records go to them in turn, or as the arguments of
        `write` say.
    shard_bytes : int, optional
        Instead: start the next file when the next record would make the current one longer than this. A
        longer record has a separate file. Framing counts (16 bytes a record), compression does not.
    shard_records : int, optional
        Instead: start the next file after this number of records.
    compression : {None, "gzip", "zlib"}
        Compression of each whole file.
    exists : {"fail", "replace"}
        What to do if any of the files exists.

    Attributes
    ----------
    paths : list of str
        The names of the files. With `shard_bytes` and `shard_records` they are known only after the writer is
        closed, since ``{shards}`` is; there is at least one, which may be without records.

    Raises
    ------
    ExistsError, LockTimeoutError, NotFoundError, DurabilityError
        As for `Writer`. With `shard_bytes` and `shard_records`, an existing name raises at the end.
    PlanError
        The pattern gives two shards the same name, or arguments contradict each other.
    BudgetError
        More compressed shards are open at once than there are descriptors. (Uncompressed shards are not
        limited: beyond half of the reserve of `shardkeep.files.budget` they are buffered in memory, 64 MiB
        altogether, and written in turn.)

    Notes
    -----
    Every shard is whole and synced before the first rename. A process that is killed, or a machine that
    stops, during the renames can leave a part of the files, each whole; if the last shard exists, the set is
    complete.

    A writer that is dropped without `close` publishes nothing, with a `RuntimeWarning`; see `Writer`.

    After a write error (`DurabilityError`) every later call raises it again, `close` too, and nothing is
    published: records are missing, and free space does not restore them.

    Several threads may write; each record is written whole, or `write` raises `PlanError` since another
    thread has closed the writer. In a forked child a writer of the parent raises an error.

    Examples
    --------
    >>> import os, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with ShardWriter(os.path.join(folder, "part-{shard}-of-{shards}"), shard_records=2) as w:
    ...     for i in range(5):
    ...         w.write(b"%d" % i)
    >>> sorted(os.listdir(folder)), w.records
    (['part-0-of-3', 'part-1-of-3', 'part-2-of-3'], [2, 2, 1])

    All records of a user in one shard:

    >>> with ShardWriter(os.path.join(folder, "users-{shard}"), shards=4) as w:
    ...     for user in ("ann", "bob", "ann"):
    ...         w.write(user.encode(), key=user)
    >>> shard_of_key("ann", 4), shard_of_key("bob", 4), w.records
    (1, 0, [1, 2, 0, 0])
    """

    def __init__(
        self,
        pattern: str | os.PathLike[str],
        *,
        shards: int | None = None,
        shard_bytes: int | None = None,
        shard_records: int | None = None,
        compression: WrittenCompression | None = None,
        exists: Exists = "fail",
    ) -> None:
        self.pattern = path_or_url(pattern)
        self._process = OwnProcess(self.pattern)
        given = {"shards": shards, "shard_bytes": shard_bytes, "shard_records": shard_records}
        chosen = checked_sizes(given)
        if len(chosen) > 1:
            raise PlanError("pass only one of shards=, shard_bytes= and shard_records=")
        self._rolling = shard_bytes is not None or shard_records is not None
        self._most_bytes, self._most_records = shard_bytes, shard_records
        self._packing = written_compression(compression)
        self.paths: list[str] = [] if self._rolling else shard_names(self.pattern, shards or _SHARDS)
        first = early_name(self.pattern, 0) if self._rolling else self.paths[0]
        self._sinks: list[Sink] = []
        self._mutex = threading.Lock()
        self._next = self._filled_bytes = 0
        self._before: list[int] = []
        with contextlib.ExitStack() as stack:
            if not is_url(self.pattern):  # the creation of an object is exclusive itself
                stack.enter_context(
                    FileLock(lock_name(self.pattern, len(self.paths)), timeout_s=0, if_unsafe="warn")
                )
            stack.callback(_drop, self._sinks)  # not a method: the writer would be in a cycle
            self._files = stack.enter_context(FileSet(exists=exists))
            self._numbers = [self._files.add(path) for path in self.paths or [first]]
            self._open()
            self._stack = stack.pop_all()
        self._closed = False
        self._failure: DurabilityError | UntrustedFileError | None = None
        self._begin()

    @property
    def records(self) -> list[int]:
        """Records written so far, shard by shard."""
        return [sink.records for sink in self._sinks]

    def write(self, record: bytes, *, shard: int | None = None, key: str | bytes | None = None) -> None:
        """Write one record.

        Parameters
        ----------
        record : bytes-like
        shard : int, optional
            Number of the shard; in turn by default.
        key : str or bytes, optional
            Instead: all records of one key go to the same shard, which is `shard_of_key`.

        Raises
        ------
        SchemaError
            `record` is not bytes-like.
        PlanError
            The writer is closed, or the shard does not exist.
        DurabilityError, UntrustedFileError
            A write fails, or failed at an earlier call; no shard will be published.
        LockError
            In a forked child.
        """
        self._process.check()
        record = as_record(record)
        try:
            with self._mutex:
                self._check_open()
                sink = self._sink_of(record, shard, key)
                if self._rolling:  # before another thread closes this shard
                    sink.write(record)
                    return
            sink.write(record)
        except (DurabilityError, UntrustedFileError) as error:
            self._failure = self._failure or copy.copy(error)
            raise

    def write_example(
        self, features: Mapping[str, Any], *, shard: int | None = None, key: str | bytes | None = None
    ) -> None:
        """Write one `tf.train.Example`; see `encode_example` for the values.

        Parameters
        ----------
        features : mapping of str to value
            Values as `encode_example` takes them.
        shard, key
            As in `write`.

        Raises
        ------
        SchemaError
            An Example cannot hold a value. Nothing is written then.
        PlanError, DurabilityError, UntrustedFileError, LockError
            As `write`.
        """
        self.write(encode_example(features), shard=shard, key=key)

    def add_file(self, path: str | os.PathLike[str], content: bytes) -> None:
        """Publish another small file together with the shards, before the first of them.

        For data that a reader needs in addition to the records, such as the names of labels.

        Parameters
        ----------
        path : str or os.PathLike
            Final path of the file.
        content : bytes

        Raises
        ------
        ExistsError, NotFoundError, DurabilityError
            As for the shards.
        """
        self._process.check()
        self._check_open()
        name = path_or_url(path)
        number = self._files.add(name)
        try:
            with durably("write", name):
                fd = open_temporary(self._files.temporary(number), os.O_WRONLY)
                with open(fd, "wb") as file:
                    file.write(content)
        except (DurabilityError, UntrustedFileError) as error:
            self._failure = self._failure or copy.copy(error)
            raise
        self._before.append(number)

    def close(self, *, progress: Progress | None = None) -> None:
        """Finish and publish all shards.

        Parameters
        ----------
        progress : callable, optional
            Called as ``progress(synced_files, all_files)``.

        Raises
        ------
        ExistsError, NotFoundError, DurabilityError, UntrustedFileError
            The shards cannot be finished or published; none of them remains.
        LockError
            In a forked child.
        """
        self._end(None, progress)

    def abort(self) -> None:
        """Discard all shards."""
        self._end(InternalError("aborted"))

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._end(error)

    # -- routing ---------------------------------------------------------------------------------------

    def _sink_of(self, record: bytes, shard: int | None, key: str | bytes | None) -> Sink:
        if self._rolling:
            if shard is not None or key is not None:
                raise PlanError("shard= and key= need a fixed number of files: pass shards= to the writer")
            return self._rolled(record)
        if key is not None:
            if shard is not None:
                raise PlanError("pass shard= or key=, not both")
            shard = shard_of_key(key, len(self._sinks))
        elif shard is None:
            shard = self._next
            self._next = (self._next + 1) % len(self._sinks)
        else:
            shard = checked_int("shard", shard, 0, len(self._sinks) - 1)
        return self._sinks[shard]

    def _rolled(self, record: bytes) -> Sink:
        size_bytes = frame_bytes(record)
        last = self._sinks[-1]
        full = self._most_records is not None and self._next >= self._most_records
        full |= self._most_bytes is not None and self._filled_bytes + size_bytes > self._most_bytes
        if full and self._next:
            last.finish()
            self._numbers.append(self._files.add(early_name(self.pattern, len(self._numbers))))
            last = self._open_one(self._numbers[-1])
            self._next = self._filled_bytes = 0
        self._next += 1
        self._filled_bytes += size_bytes
        return last

    # -- files -----------------------------------------------------------------------------------------

    def _open(self) -> None:
        most_open = max(1, budget().reserve // _SHARE_OF_RESERVE)
        if len(self._numbers) <= most_open:
            for number in self._numbers:
                self._open_one(number)
        elif self._packing is None:
            buffers = SharedBuffers()
            self._sinks += (
                BufferedSink(self._files.temporary(number), path, buffers)
                for number, path in zip(self._numbers, self.paths, strict=True)
            )
        else:
            raise BudgetError(
                f"{self.pattern}: {len(self._numbers)} compressed shards at once, with descriptors for"
                f" {most_open}: write them without compression, take fewer, or raise the limit (ulimit -n)"
            )

    def _open_one(self, number: int) -> Sink:
        sink = OpenSink(self._files.temporary(number), self._files.paths[number], compression=self._packing)
        self._sinks.append(sink)
        return sink

    def _check_open(self) -> None:
        if self._closed:
            raise PlanError(f"{self.pattern}: the writer is closed")
        self._check_whole()

    def _check_whole(self) -> None:
        if self._failure is not None:
            raise copy.copy(self._failure)

    def __repr__(self) -> str:
        try:
            records = f", {sum(self.records):,} records in {len(self._sinks)} shards"
        except RuntimeError:  # another thread writes at this moment
            records = ""
        return f"<ShardWriter {shown(self.pattern)!r}{records}, {'closed' if self._closed else 'open'}>"

    def _end(self, error: BaseException | None, progress: Progress | None = None) -> None:
        # In a forked child a missing thread may hold the lock.
        with contextlib.nullcontext() if self._process.is_forked else self._mutex:
            if self._closed:
                return
            self._closed = True
        self._finished()
        try:
            if error is None:
                self._process.check()
                self._check_whole()
                for sink in self._sinks[-1:] if self._rolling else self._sinks:
                    sink.finish()
                self._name()
                self._files.publish(self._before + self._numbers, progress=progress)
        except BaseException as failure:
            self._stack.__exit__(type(failure), failure, failure.__traceback__)
            raise
        self._stack.__exit__(type(error) if error else None, error, None)

    def _loss(self) -> str:
        return describe_loss(self.pattern, sum(self.records), published=True)

    def _name(self) -> None:
        if not self._rolling:
            return
        self.paths = shard_names(self.pattern, len(self._numbers))
        for number, path in zip(self._numbers, self.paths, strict=True):
            self._files.rename(number, path)


def _drop(sinks: list[Sink]) -> None:
    for sink in sinks:
        sink.drop()


def shard_of_key(key: str | bytes, shards: int) -> int:
    """Return the shard of a key: BLAKE2b of its bytes, 64 bits little-endian, modulo `shards`.

    The result is the same in every process, on every machine and in every version.

    Parameters
    ----------
    key : str or bytes
        The key; a str is encoded as UTF-8.
    shards : int

    Examples
    --------
    >>> shard_of_key("user-17", 8) == shard_of_key(b"user-17", 8)
    True
    """
    if not isinstance(key, (str, bytes)):
        raise PlanError(f"key must be a str or bytes, not {key!r:.60}")
    data = key.encode() if isinstance(key, str) else key
    digest = hashlib.blake2b(data, digest_size=8).digest()
    return int.from_bytes(digest, "little") % shards
