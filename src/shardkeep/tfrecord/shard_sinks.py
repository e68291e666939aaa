"""Where the records of one shard go: into an open file, or into memory and a file that opens now and then."""

from __future__ import annotations

import contextlib
import copy
import os
import threading
from collections.abc import Iterator
from typing import Any, Protocol

from shardkeep.errors import DurabilityError, PlanError, ShardkeepError
from shardkeep.files.leftovers import mark_alive, open_temporary
from shardkeep.files.own_process import OwnProcess
from shardkeep.files.pending import durably
from shardkeep.tfrecord.writer import RecordSink

__all__ = ["BufferedSink", "Held", "OpenSink", "Sink", "frame_bytes"]

_MOST_HELD_BYTES = 64 << 20
_FRAME_OVERHEAD_BYTES = 16
# A record that is held costs its bytes object too.
_OBJECT_BYTES = 64


def frame_bytes(record: bytes) -> int:
    """Return what a record takes in an uncompressed file."""
    return len(record) + _FRAME_OVERHEAD_BYTES


class Sink(Protocol):
    """One shard that is being written."""

    @property
    def records(self) -> int:
        """Records written so far."""

    def write(self, record: bytes) -> None:
        """Write one record."""

    def finish(self) -> None:
        """Hand everything to the operating system and let the file go."""

    def drop(self) -> None:
        """Let the file go; nothing is written any more."""


class OpenSink:
    """A shard with a descriptor of its own.

    Parameters
    ----------
    temporary : str
        The file, which exists.
    path : str
        The final name, for messages.
    compression : {None, "gzip", "zlib"}
    """

    def __init__(self, temporary: str, path: str, *, compression: Any) -> None:
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
        """Hand everything to the operating system and close the file."""
        self._sink.finish()
        self.drop()

    def drop(self) -> None:
        """Close the file."""
        self._sink.give_up()  # before the number of the descriptor is another file's
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class BufferedSink:
    """A shard whose file is open only while what was held in memory is written; without compression.

    Parameters
    ----------
    temporary, path : str
        As for `OpenSink`.
    held : Held
        Shared by the shards of a set: it bounds their memory together.
    """

    def __init__(self, temporary: str, path: str, held: Held) -> None:
        self._temporary, self._path, self._all = temporary, path, held
        self._waiting: list[bytes] = []
        self._finished = False
        self._process = OwnProcess(path)
        self.records = 0
        held.sinks.append(self)

    def write(self, record: bytes) -> None:
        """Keep one record; now and then write those of all shards."""
        self._process.check()
        record = record if isinstance(record, bytes) else bytes(memoryview(record))
        with self._all.turn:
            if self._finished:
                raise PlanError(f"{self._path}: the writer is closed", path=self._path)
            self._all.check()
            self._waiting.append(record)
            self.records += 1
            self._all.add(len(record) + _OBJECT_BYTES)

    def finish(self) -> None:
        """Write what is held."""
        self._process.check()
        with self._all.turn:
            self._finished = True
            self._all.check()
            self.drain()

    def drop(self) -> None:
        """Forget what is held."""
        if not self._process.is_carried:  # in a forked child a thread that is not there may have the turn
            with self._all.turn:
                self._finished = True
                self._waiting = []

    def drain(self) -> None:
        """Write what is held, in one go; the caller has the turn."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        with self._all.remembered(self._path):
            with durably("open", self._path):
                fd = open_temporary(self._temporary, os.O_WRONLY | os.O_APPEND)
            try:
                sink = RecordSink(fd, self._path, compression=None)
                for record in waiting:
                    sink.write(record)
                sink.finish()
            finally:
                os.close(fd)


class Held:
    """The memory that the shards of a set share, and the first error of writing it.

    After such an error records are missing in one of the files, so that the set must not appear: each later
    call raises it again.
    """

    def __init__(self, most_bytes: int = _MOST_HELD_BYTES) -> None:
        self.turn = threading.Lock()
        self.sinks: list[BufferedSink] = []
        self._bytes = 0
        self._most_bytes = most_bytes
        self._failure: ShardkeepError | None = None

    def check(self) -> None:
        """Raise the error of an earlier call again."""
        if self._failure is not None:
            raise copy.copy(self._failure)

    @contextlib.contextmanager
    def remembered(self, path: str) -> Iterator[None]:
        """Remember whatever the body raises, also an interrupt between two records."""
        try:
            yield
        except ShardkeepError as error:
            self._failure = copy.copy(error)
            raise
        except BaseException as error:
            message = f"{path}: a write was broken off by {type(error).__name__}; write the set again"
            self._failure = DurabilityError(message, path=path)
            raise

    def add(self, count_bytes: int) -> None:
        """Count what a shard holds more; when it is too much, all shards write what they hold."""
        self._bytes += count_bytes
        if self._bytes >= self._most_bytes:
            self._bytes = 0
            for sink in self.sinks:
                sink.drain()
