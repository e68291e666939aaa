"""Writing a set of shards that appear together."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from shardkeep.errors import InternalError, PlanError
from shardkeep.files.lock import FileLock
from shardkeep.files.publish import Exists, publish_set
from shardkeep.tfrecord.example import encode_example
from shardkeep.tfrecord.reader import compression_name
from shardkeep.tfrecord.writer import RecordSink

__all__ = ["ShardWriter"]


class ShardWriter:
    """Write records into several files that appear together, or not at all.

    Parameters
    ----------
    pattern : str or os.PathLike
        With ``{shard}`` and, if wanted, ``{shards}``, as in ``"train-{shard:05d}-of-{shards:05d}.tfrecord"``.
    shards : int
        How many files.
    compression : {None, "gzip", "zlib"}
        Of each whole file.
    exists : {"fail", "replace"}
        What to do if any of the files is there.

    Raises
    ------
    ExistsError, LockTimeoutError, NotFoundError, DurabilityError
        As for `Writer`.
    PlanError
        A pattern that does not give each shard a name of its own.

    Notes
    -----
    Every shard is whole and synced before the first gets its name. A machine that stops in the moment of
    the renames can leave some of the names, each file whole; the last shard proves the set.

    Examples
    --------
    >>> import os, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with ShardWriter(os.path.join(folder, "part-{shard}-of-{shards}"), shards=2) as w:
    ...     for i in range(5):
    ...         w.write(b"%d" % i)
    >>> sorted(os.listdir(folder))
    ['part-0-of-2', 'part-1-of-2']
    """

    def __init__(
        self,
        pattern: str | os.PathLike[str],
        *,
        shards: int = 8,
        compression: str | None = None,
        exists: Exists = "fail",
    ) -> None:
        self.pattern = os.fspath(pattern)
        self.paths = _names(self.pattern, shards)
        packing = compression_name(compression)
        with contextlib.ExitStack() as stack:
            stack.enter_context(FileLock(self.pattern, timeout_s=0))
            files = stack.enter_context(publish_set(self.paths, exists=exists))
            self._sinks = [
                RecordSink(file.fileno(), path, compression=packing)
                for file, path in zip(files, self.paths, strict=True)
            ]
            self._stack = stack.pop_all()
        self._next = 0
        self._closed = False

    @property
    def records(self) -> list[int]:
        """Records written so far, shard by shard."""
        return [sink.records for sink in self._sinks]

    def write(self, record: bytes, *, shard: int | None = None) -> None:
        """Write one record.

        Parameters
        ----------
        record : bytes-like
        shard : int, optional
            Which shard it goes to; in turn by default.
        """
        if self._closed:
            raise PlanError(f"{self.pattern}: the writer is closed")
        if shard is None:
            shard = self._next
            self._next = (self._next + 1) % len(self._sinks)
        elif not 0 <= shard < len(self._sinks):
            raise PlanError(f"shard={shard}: there are {len(self._sinks)} shards, counted from 0")
        self._sinks[shard].write(record)

    def write_example(self, features: Mapping[str, Any], *, shard: int | None = None) -> None:
        """Write one `tf.train.Example`; see `encode_example` for what it may hold."""
        self.write(encode_example(features), shard=shard)

    def close(self) -> None:
        """Finish all shards; this is the moment they appear."""
        self._end(None)

    def abort(self) -> None:
        """Give all shards up; nothing is left of them."""
        self._end(InternalError("given up"))

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            if error is None:
                for sink in self._sinks:
                    sink.finish()
        except BaseException as failure:
            self._stack.__exit__(type(failure), failure, failure.__traceback__)
            raise
        self._stack.__exit__(type(error) if error else None, error, None)


def _names(pattern: str, shards: int) -> list[str]:
    if shards < 1:
        raise PlanError(f"shards={shards}: at least one file is needed")
    try:
        names = [pattern.format(shard=shard, shards=shards) for shard in range(shards)]
    except (KeyError, IndexError, ValueError) as error:
        raise PlanError(f"{pattern!r} is no pattern of shard names ({error}); use {{shard:05d}}") from None
    if len(set(names)) < shards:
        raise PlanError(f"{pattern!r} gives {shards} shards the same name; put {{shard:05d}} in it")
    return names
