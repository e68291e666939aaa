"""`SpillFile`: batches of a client on its own disk, while the collector cannot take them.

::

    header    "SKSPILL1" | client id (16 bytes) | u32 rank | u32 how often a next client took it over
    batch     u64 length of what follows but the CRC | u64 sequence | u32 parts | table | rows | u32 CRC-32C
    schema    the same with sequence 0, no parts, and JSON as its table; before the first rows of a dataset

The file survives its process. The next client of that rank that is given the same folder goes on
with the identity that is in it, so that every batch is stored once. The collector may also have batches
that never were in the file: the next client begins with a number far beyond theirs (`first_sequence`). It
declares the datasets of what was left too: it sends that before its caller may have declared anything, and to
a collector that may never have heard of them. What is in the file is safe from the death of processes, not
from a power cut. A file that another user may have prepared is left where it is, with a warning.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import struct
from collections.abc import Mapping

import numpy as np

from shardkeep._core import crc32c
from shardkeep.collector.client.outbox import Batch
from shardkeep.collector.client.pen import Pen, Rows
from shardkeep.collector.protocol.messages import Part, pack_parts, unpack_table
from shardkeep.collector.protocol.schema import Schema
from shardkeep.errors import CorruptDataError, LockTimeoutError, UntrustedFileError
from shardkeep.files.durable import durably, write_all
from shardkeep.files.locks.lock import FileLock
from shardkeep.files.sidecar import make_sidecar, open_sidecar
from shardkeep.files.user_warning import warn_user

__all__ = ["SpillFile"]

_MAGIC = b"SKSPILL1"
_HEAD = struct.Struct("<8s16sII")
_BATCH = struct.Struct("<QQI")
_SUFFIX = ".spill"
# No client makes as many batches.
_BATCHES_BITS = 40
_COPY_BYTES = 1 << 20


class SpillFile:
    """The spill file of one client.

    Parameters
    ----------
    folder : str
    identity : bytes
        Of the client; the one of a file that was left is used instead (`identity`).
    rank : int

    Attributes
    ----------
    identity : bytes
    left : list of Batch
        What was in the file; their rows are read when they are sent.
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
        self.left: list[Batch] = []
        self.schemas: dict[str, Schema] = {}
        self._places: dict[int, tuple[int, int]] = {}
        self._fd = -1
        self._lock: FileLock | None = None
        for name in sorted(os.listdir(folder)):
            if (
                name.startswith(f"rank-{rank:05d}-")
                and name.endswith(_SUFFIX)
                and self._adopt(os.path.join(folder, name), rank)
            ):
                return
        self.path = os.path.join(folder, f"rank-{rank:05d}-{identity.hex()}{_SUFFIX}")
        self._lock = FileLock(self.path, timeout_s=0, if_unsafe="warn").acquire()
        with durably("make", self.path):
            self._fd = make_sidecar(self.path)
            os.write(self._fd, _HEAD.pack(_MAGIC, identity, rank, 0))
        self._end = _HEAD.size

    @property
    def is_used(self) -> bool:
        """Whether a batch is in it, so that later ones have to follow."""
        return bool(self._places)

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._places

    def write(self, batch: Batch, pens: Mapping[str, Pen]) -> None:
        """Append a batch, behind what its datasets are if the file does not say so yet.

        Raises
        ------
        DurabilityError
            This disk is full too.
        """
        rows = [one for one in batch.rows if not one.is_value and one.name in pens]
        for name in {one.name for one in rows} - self.schemas.keys():
            schema = pens[name].schema
            self._append(0, 0, json.dumps(schema.to_json()).encode(), [])
            self.schemas[name] = schema
        parts = [Part(one.name, one.rows, len(one.data), None, one.keyed, one.is_value) for one in batch.rows]
        place = self._append(
            batch.sequence, len(parts), pack_parts(parts), [bytes(one.data) for one in batch.rows]
        )
        self._places[batch.sequence] = place

    def read(self, sequence: int) -> list[Rows]:
        """Return the rows of a batch."""
        offset, size = self._places[sequence]
        record = os.pread(self._fd, size, offset)
        found = _parse(record)
        if found is None or found[0] != sequence:
            raise CorruptDataError(
                f"{self.path!r} has changed: batch {sequence} is lost", path=self.path, offset_bytes=offset
            )
        return found[1]

    def forget(self, sequence: int) -> None:
        """Note that batches up to `sequence` are durable elsewhere."""
        if not self._places:
            return
        for one in [one for one in self._places if one <= sequence]:
            del self._places[one]
        if not self._places:
            with durably("shorten", self.path):
                os.ftruncate(self._fd, _HEAD.size)
            self._end = _HEAD.size
            self.schemas = {}

    def close(self) -> None:
        """Let it go; it is removed if nothing is in it."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        if not self._places:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)
        os.close(fd)
        if self._lock is not None:
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

    def _adopt(self, path: str, rank: int) -> bool:
        try:
            lock = FileLock(path, timeout_s=0, if_unsafe="warn").acquire()
        except LockTimeoutError:
            return False
        try:
            with durably("open", path):
                try:
                    fd = open_sidecar(path, "spill file", os.O_RDWR)
                except FileNotFoundError:
                    lock.release()
                    return False
        except UntrustedFileError as error:
            lock.release()
            warn_user(f"rows in {path!r}, if any, are not sent: {error}")
            return False
        except BaseException:
            lock.release()
            raise
        head = os.pread(fd, _HEAD.size, 0)
        if len(head) < _HEAD.size or head[:8] != _MAGIC or _HEAD.unpack(head)[2] != rank:
            os.close(fd)
            lock.release()
            return False
        self.path, self._fd, self._lock = path, fd, lock
        _, self.identity, _, takeovers = _HEAD.unpack(head)
        with durably("write", path):
            os.pwrite(fd, _HEAD.pack(_MAGIC, self.identity, rank, takeovers + 1), 0)
        self.first_sequence = ((takeovers + 1) << _BATCHES_BITS) + 1
        self._end = _HEAD.size
        while True:
            length = os.pread(fd, 8, self._end)
            size = int.from_bytes(length, "little") + 8 + 4 if len(length) == 8 else 0
            rest = os.fstat(fd).st_size - self._end
            record = os.pread(fd, size, self._end) if 24 <= size <= rest else b""
            found = _parse(record)
            if found is None:
                if record:
                    self._tell_damage(takeovers)
                with durably("shorten", path):
                    os.ftruncate(fd, self._end)
                # A client that leaves writes what it had sent behind what it could not send.
                self.left.sort(key=lambda one: one.sequence)
                return True
            if found[0] == 0:
                schema = Schema.from_json(json.loads(record[_BATCH.size + 4 : -4]))
                self.schemas[schema.name] = schema
            else:
                batch = Batch(found[0], [])
                batch.size = 0
                self.left.append(batch)
                self._places[found[0]] = (self._end, size)
            self._end += size

    def _tell_damage(self, takeovers: int) -> None:
        """Keep a file with a damaged batch, and say so; half of one, left by a kill, is no damage."""
        with durably("copy", self.path):
            kept = self._copy(f"{self.path}.{takeovers}")
            lost = os.fstat(self._fd).st_size - self._end
        message = f"the spill file {self.path!r} is damaged at byte {self._end}"
        warn_user(f"{message}: {lost} bytes of rows from there on are not sent; a copy is kept as {kept!r}")

    def _copy(self, name: str) -> str:
        """Copy the file to a name that is free; return it."""
        for number in itertools.count():
            kept = f"{name}.damaged" if number == 0 else f"{name}.{number}.damaged"
            with contextlib.suppress(FileExistsError):
                fd = make_sidecar(kept)
                break
        with open(fd, "wb") as copy, open(self._fd, "rb", closefd=False) as whole:
            whole.seek(0)
            shutil.copyfileobj(whole, copy, _COPY_BYTES)
        return kept


def _parse(record: bytes) -> tuple[int, list[Rows]] | None:
    if len(record) < _BATCH.size + 8 or crc32c(record[:-4]) != int.from_bytes(record[-4:], "little"):
        return None
    _, sequence, count = _BATCH.unpack_from(record)
    if not sequence:
        return 0, []
    size = int.from_bytes(record[_BATCH.size : _BATCH.size + 4], "little")
    place = _BATCH.size + 4 + size
    rows = []
    for part in unpack_table(record[place - size : place], count):
        data = np.frombuffer(record, np.uint8, part.bytes, place)
        rows.append(Rows(part.name, part.rows, data, keyed=part.keyed, is_value=part.is_value))
        place += part.bytes
    return sequence, rows
