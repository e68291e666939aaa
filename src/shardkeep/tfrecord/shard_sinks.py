"""Outputs of one shard: an open file, or a buffer and a file that is opened for each flush."""

from __future__ import annotations

import contextlib
import copy
import os
import threading
from collections.abc import Iterator
from typing import Any, Protocol

from shardkeep.errors import DurabilityError, PlanError, ShardkeepError
from shardkeep.files.durable import durably
from shardkeep.files.leftovers import mark_alive, open_temporary
from shardkeep.files.owner import OwnProcess
from shardkeep.tfrecord.format.frame import OVERHEAD_BYTES, as_record
from shardkeep.tfrecord.writer import RecordSink

__all__ = ["BufferedSink", "OpenSink", "SharedBuffers", "Sink", "frame_bytes"]

_MOST_HELD_BYTES = 64 << 20
# A buffered record also needs its bytes object.
_OBJECT_BYTES = 64


def frame_bytes(record: bytes) -> int:
    """Return the size of a record's frame in an uncompressed file."""
    return len(record) + OVERHEAD_BYTES


class Sink(Protocol):
    """Output of the records of one shard."""

    @property
    def records(self) -> int:
        """Records written so far."""

    def write(self, record: bytes) -> None:
        """Write one record."""

    def finish(self) -> None:
        """Write everything to the operating system and close the file."""

    def drop(self) -> None:
        """Close the file without further writes."""


class OpenSink:
    """Output of a shard with its own descriptor.

    Parameters
    ----------
    temporary : str
        The temporary file, which must exist.
    path : str
        The final name, for messages.
    compression : {None, "gzip", "zlib"}
    """

    def __init__(self, temporary: str, path: str, *, compression: Any) -> None:
        self._path = path
        with durably("open", path):
            self._fd = open_temporary(temporary, os.O_WRONLY)
        mark_alive(self._fd)
        self._sink = RecordSink(self._fd, path, compression=compression)

    @property
    def records(self) -> int:
        """Records written so far."""
        return self._sink.records

    def write(self, record: bytes) -> None:
        """Write one record; it may stay in memory until `finish`."""
        self._sink.write(record)

    def finish(self) -> None:
        """Write everything to the operating system and close the file."""
        self._sink.finish()
        self.drop()

    def drop(self) -> None:
        """Close the file."""
        self._sink.give_up()  # before the descriptor number can belong to another file
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with durably("write", self._path):
                os.close(fd)


class BufferedSink:
    """Output of a shard whose file is open only during a flush of its buffer; without compression.

    Parameters
    ----------
    temporary, path : str
        As for `OpenSink`.
    buffers : SharedBuffers
        Shared by the shards of a set: it bounds their memory together.
    """

    def __init__(self, temporary: str, path: str, buffers: SharedBuffers) -> None:
        self._temporary, self._path, self._buffers = temporary, path, buffers
        self._buffered: list[bytes] = []
        self._finished = False
        self._process = OwnProcess(path)
        self.records = 0
        buffers.sinks.append(self)

    def write(self, record: bytes) -> None:
        """Buffer one record; if the buffers of the set are full, flush all of them."""
        self._process.check()
        record = as_record(record)
        with self._buffers.lock:
            if self._finished:
                raise PlanError(f"{self._path}: the writer is closed", path=self._path)
            self._buffers.check()
            self._buffered.append(record)
            self.records += 1
            self._buffers.add(len(record) + _OBJECT_BYTES)

    def finish(self) -> None:
        """Write the buffered records."""
        self._process.check()
        with self._buffers.lock:
            self._finished = True
            self._buffers.check()
            self.drain()

    def drop(self) -> None:
        """Discard the buffered records."""
        if not self._process.is_forked:  # in a forked child a missing thread may hold the lock
            with self._buffers.lock:
                self._finished = True
                self._buffered = []

    def drain(self) -> None:
        """Write all buffered records; the caller holds the lock."""
        buffered, self._buffered = self._buffered, []
        if not buffered:
            return
        with self._buffers.storing_error(self._path):
            with durably("open", self._path):
                fd = open_temporary(self._temporary, os.O_WRONLY | os.O_APPEND)
            try:
                sink = RecordSink(fd, self._path, compression=None)
                for record in buffered:
                    sink.write(record)
                sink.finish()
            finally:
                os.close(fd)


class SharedBuffers:
    """The buffer memory of the shards of a set, and their first write error.

    After such an error records are missing in one of the files, so the set must not be published: each later
    call raises it again.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sinks: list[BufferedSink] = []
        self._bytes = 0
        self._failure: ShardkeepError | None = None

    def check(self) -> None:
        """Raise the error of an earlier call again."""
        if self._failure is not None:
            raise copy.copy(self._failure)

    @contextlib.contextmanager
    def storing_error(self, path: str) -> Iterator[None]:
        """Store any exception of the body, also an interrupt between two records."""
        try:
            yield
        except ShardkeepError as error:
            self._failure = copy.copy(error)
            raise
        except BaseException as error:
            message = f"{path}: a write was interrupted by {type(error).__name__}; write the set again"
            self._failure = DurabilityError(message, path=path)
            raise

    def add(self, count_bytes: int) -> None:
        """Count newly buffered bytes; at the limit, flush the buffers of all shards."""
        self._bytes += count_bytes
        if self._bytes >= _MOST_HELD_BYTES:
            self._bytes = 0
            for sink in self.sinks:
                sink.drain()
