"""The spill file: batches of a client on its own disk, while the collector cannot take them.

::

    header    "SKSPILL1" | client id (16 bytes) | u32 rank | u32 number of clients that took the file over
    batch     u64 length of the rest without the CRC | u64 sequence | u32 parts | table | rows | u32 CRC-32C
    schema    the same with sequence 0, no parts, and JSON as its table; before the first rows of a dataset

The file survives its process. The next client of that rank with the same folder takes over the identity in
the file, so that every batch is stored once. The collector may also have batches that never were in the file:
the next client begins with a number far beyond theirs (`first_sequence`). It also declares the datasets of
the batches in the file: it sends these batches before its caller may have declared anything, and possibly to
a collector that has no such datasets. The file survives the death of processes, not a power cut. A file that
another user may have prepared is not read, with a warning.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import struct

import numpy as np

from shardkeep._core import crc32c
from shardkeep.collector.client.buffers import Payload
from shardkeep.collector.protocol.messages import Part, pack_parts, unpack_table
from shardkeep.collector.protocol.schema import Schema
from shardkeep.errors import CorruptDataError, LockTimeoutError, UntrustedFileError
from shardkeep.files.durable import durably, write_all
from shardkeep.files.locks.lock import FileLock
from shardkeep.files.sidecar import make_sidecar, open_sidecar
from shardkeep.files.user_warning import warn_user

__all__ = ["SpillFile", "holds_batches"]

_MAGIC = b"SKSPILL1"
_HEAD = struct.Struct("<8s16sII")
_BATCH = struct.Struct("<QQI")
_SUFFIX = ".spill"
# No client makes 2^40 batches.
_BATCHES_BITS = 40
_COPY_BYTES = 1 << 20


class SpillFile:
    """The spill file of one client.

    Parameters
    ----------
    folder : str
        The folder; it is made if it does not exist.
    identity : bytes
        The identity of the client, unless it takes over the file of a killed one.
    rank : int

    Attributes
    ----------
    identity : bytes
        The identity in the file.
    left : list of int
        The numbers of the batches that a killed client left.
    schemas : dict of str to Schema
        The datasets that are described in the file.
    first_sequence : int
        The number of the first batch that this client makes itself.
    """

    def __init__(self, folder: str, identity: bytes, rank: int) -> None:
        with durably("make the folder", folder):
            os.makedirs(folder, exist_ok=True)
        self.identity = identity
        self.first_sequence = 1
        self.left: list[int] = []
        self.schemas: dict[str, Schema] = {}
        self._ranges: dict[int, tuple[int, int]] = {}
        self._fd = -1
        self._end = _HEAD.size
        self._rank = rank
        prefix = f"rank-{rank:05d}-"
        for name in sorted(os.listdir(folder)):
            if name.startswith(prefix) and name.endswith(_SUFFIX) and self._adopt(os.path.join(folder, name)):
                return
        self.path = os.path.join(folder, f"{prefix}{identity.hex()}{_SUFFIX}")
        self._lock = FileLock(self.path, timeout_s=0, if_unsafe="warn").acquire()
        with durably("make", self.path):
            self._fd = make_sidecar(self.path)
            os.write(self._fd, _HEAD.pack(_MAGIC, identity, rank, 0))

    @property
    def is_used(self) -> bool:
        """Whether a batch is in it, so that later ones have to follow."""
        return bool(self._ranges)

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._ranges

    def write(self, sequence: int, payloads: list[Payload]) -> None:
        """Append a batch, after the schemas of its datasets if they are not in the file yet.

        Raises
        ------
        DurabilityError
            This disk is full too.
        """
        for one in payloads:
            if one.schema is not None and one.name not in self.schemas:
                self._append(0, 0, json.dumps(one.schema.to_json()).encode(), [])
                self.schemas[one.name] = one.schema
        parts = [Part(one.name, one.rows, one.size_bytes, None, one.keyed, one.is_value) for one in payloads]
        data = [bytes(one.data) for one in payloads]
        self._ranges[sequence] = self._append(sequence, len(parts), pack_parts(parts), data)

    def read(self, sequence: int) -> list[Payload]:
        """Return the payloads of a batch.

        Raises
        ------
        CorruptDataError
            The file was changed.
        """
        offset, size = self._ranges[sequence]
        found = _parse(os.pread(self._fd, size, offset))
        if found is None or found[0] != sequence:
            raise CorruptDataError(
                f"{self.path!r} has changed: batch {sequence} is lost", path=self.path, offset_bytes=offset
            )
        return found[1]

    def forget(self, sequence: int) -> None:
        """Note that the collector has made batches up to `sequence` durable."""
        if not self._ranges:
            return
        self._ranges = {number: place for number, place in self._ranges.items() if number > sequence}
        if not self._ranges:
            with durably("shorten", self.path):
                os.ftruncate(self._fd, _HEAD.size)
            self._end = _HEAD.size
            self.schemas = {}

    def close(self) -> None:
        """Close the file; it is removed if no batch is in it."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        if not self._ranges:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)
        os.close(fd)
        self._lock.release()

    def _append(self, sequence: int, parts: int, table: bytes, rows: list[bytes]) -> tuple[int, int]:
        body = b"".join([len(table).to_bytes(4, "little"), table, *rows])
        record = _BATCH.pack(len(body) + 12, sequence, parts) + body
        record += crc32c(record).to_bytes(4, "little")
        begin = self._end
        with durably("write", self.path):
            write_all(self._fd, record, begin)
        self._end = begin + len(record)
        return begin, len(record)

    def _adopt(self, path: str) -> bool:
        """Take over the file of a killed client; False if it is in use, or not a file of this rank."""
        try:
            lock = FileLock(path, timeout_s=0, if_unsafe="warn").acquire()
        except LockTimeoutError:
            return False
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(lock.release)
            try:
                with durably("open", path), contextlib.suppress(FileNotFoundError):
                    self._fd = open_sidecar(path, "spill file", os.O_RDWR)
            except UntrustedFileError as error:
                warn_user(f"rows in {path!r}, if any, are not sent: {error}")
            if self._fd < 0:
                return False
            head = os.pread(self._fd, _HEAD.size, 0)
            if len(head) < _HEAD.size or head[:8] != _MAGIC or _HEAD.unpack(head)[2] != self._rank:
                os.close(self._fd)
                self._fd = -1
                return False
            on_failure.pop_all()
        self.path, self._lock = path, lock
        _, self.identity, _, takeovers = _HEAD.unpack(head)
        with durably("write", path):
            os.pwrite(self._fd, _HEAD.pack(_MAGIC, self.identity, self._rank, takeovers + 1), 0)
        self.first_sequence = ((takeovers + 1) << _BATCHES_BITS) + 1
        while self._read_record(takeovers):
            pass
        with durably("shorten", path):
            os.ftruncate(self._fd, self._end)
        # A client that ends appends batches that it had sent after batches that it could not send.
        self.left.sort()
        return True

    def _read_record(self, takeovers: int) -> bool:
        """Note the batch or schema at the end of what was read; False if there is none."""
        length = os.pread(self._fd, 8, self._end)
        size = int.from_bytes(length, "little") + 8 + 4 if len(length) == 8 else 0
        rest = os.fstat(self._fd).st_size - self._end
        record = os.pread(self._fd, size, self._end) if 24 <= size <= rest else b""
        found = _parse(record)
        if found is None:
            if record:
                self._keep_damaged(takeovers, rest)
            return False
        if found[0] == 0:
            schema = Schema.from_json(json.loads(record[_BATCH.size + 4 : -4]))
            self.schemas[schema.name] = schema
        else:
            self.left.append(found[0])
            self._ranges[found[0]] = (self._end, size)
        self._end += size
        return True

    def _keep_damaged(self, takeovers: int, lost_bytes: int) -> None:
        """Copy a file with a damaged batch, and warn; an incomplete batch, left by a kill, is not damage."""
        with durably("copy", self.path):
            kept = self._copy(f"{self.path}.{takeovers}")
        message = f"the spill file {self.path!r} is damaged at byte {self._end}"
        warn_user(
            f"{message}: {lost_bytes} bytes of rows from there on are not sent; a copy is kept as {kept!r}"
        )

    def _copy(self, name: str) -> str:
        """Copy the file to a free name; return it."""
        for number in itertools.count():
            kept = f"{name}.damaged" if number == 0 else f"{name}.{number}.damaged"
            with contextlib.suppress(FileExistsError):
                fd = make_sidecar(kept)
                break
        with open(fd, "wb") as copy, open(self._fd, "rb", closefd=False) as whole:
            whole.seek(0)
            shutil.copyfileobj(whole, copy, _COPY_BYTES)
        return kept


def holds_batches(path: str) -> bool:
    """Return True if a file is a spill file with batches that the collector may not have.

    Raises
    ------
    UntrustedFileError, OSError
        It cannot be read, or another user may have prepared it.
    """
    fd = open_sidecar(path, "spill file")
    try:
        head = os.pread(fd, _HEAD.size + 1, 0)
    finally:
        os.close(fd)
    return len(head) > _HEAD.size and head.startswith(_MAGIC)


def _parse(record: bytes) -> tuple[int, list[Payload]] | None:
    """Return the number and the payloads of a record, number 0 for a schema; None if it is damaged."""
    if len(record) < _BATCH.size + 8 or crc32c(record[:-4]) != int.from_bytes(record[-4:], "little"):
        return None
    _, sequence, count = _BATCH.unpack_from(record)
    if not sequence:
        return 0, []
    size = int.from_bytes(record[_BATCH.size : _BATCH.size + 4], "little")
    place = _BATCH.size + 4 + size
    payloads = []
    for part in unpack_table(record[place - size : place], count):
        data = np.frombuffer(record, np.uint8, part.bytes, place)
        payloads.append(Payload(part.name, part.rows, data, keyed=part.keyed, is_value=part.is_value))
        place += part.bytes
    return sequence, payloads
